package migratestore

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theclaw/agents/cmd/agentctl/internal/homelock"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/store/sqlite/db"
)

// run runs the command line in a home.
func run(t *testing.T, home string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	e := command.New(strings.NewReader(""), &out, &errs, func(string) string { return "" }, "test")
	e.Flags.Home, e.Flags.JSON = home, args[len(args)-1] == "--json"
	c := Command(e)
	c.SilenceErrors, c.SilenceUsage = true, true
	c.PersistentFlags().Bool("json", false, "")
	code = e.Report(command.Execute(t.Context(), e, c, args))
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	return out.String(), errs.String(), code
}

// Agents go there and back; a rehearsal changes nothing, and one that fails does not
// stop the others.
func TestMigrateStore(t *testing.T) {
	at := filepath.Join(t.TempDir(), "home")
	home, err := agentdir.OpenHome(at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = home.Close() }()
	for _, id := range []string{"alice", "bob"} {
		if _, err := home.Create(id, agentdir.Spec{Prepare: func(dir string) error {
			_, err := db.Create(filepath.Join(dir, "inbox"))
			return err
		}}); err != nil {
			t.Fatal(err)
		}
	}
	dsn := pgtest.Database(t)
	named := filepath.Join(t.TempDir(), "dsn") // so that no password is in a list of processes
	if err := os.WriteFile(named, []byte(dsn+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	there := []string{"--to", "database", "--dsn", "file:" + named}
	back := []string{"--to", "home", "--dsn", dsn}
	with := func(base []string, more ...string) []string { return append(append([]string{}, base...), more...) }

	out, _, code := run(t, at, with(there, "alice")...)
	if code != 0 || !strings.Contains(out, "the same on both sides; nothing was changed") {
		t.Errorf("rehearsal: %d, %s", code, out)
	}
	if ids, err := home.IDs(); err != nil || len(ids) != 2 {
		t.Errorf("after a rehearsal: %v, %v", ids, err)
	}
	// bob's inbox is none any more.
	inbox := filepath.Join(home.AgentDir("bob"), "inbox", "events.db")
	if err := os.WriteFile(inbox, []byte("this is no database, and it is longer than a header would be"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _, code = run(t, at, with(there, "--all", "--apply", "--json")...)
	var said struct {
		To     string
		Agents []outcome
	}
	if err := json.Unmarshal([]byte(out), &said); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if code != 1 || len(said.Agents) != 2 || !said.Agents[0].Moved || said.Agents[0].Kept == "" || said.Agents[1].Moved || said.Agents[1].Error == "" {
		t.Errorf("exit %d, %+v", code, said)
	}
	if ids, err := home.IDs(); err != nil || len(ids) != 1 || ids[0] != "bob" {
		t.Errorf("left: %v, %v", ids, err)
	}
	digest := said.Agents[0].Digest
	out, _, code = run(t, at, with(back, "--all", "--apply", "--json")...)
	if err := json.Unmarshal([]byte(out), &said); err != nil || code != 0 || len(said.Agents) != 1 || said.Agents[0].Digest != digest || !said.Agents[0].Moved {
		t.Errorf("back: %v, %d, %s", err, code, out)
	}

	unlock, _, err := homelock.Take(home.Home)
	if err != nil {
		t.Fatal(err)
	}
	_, errs, code := run(t, at, with(there, "alice")...)
	if code != 1 || !strings.Contains(errs, "a registry serves") {
		t.Errorf("beside a registry: %d, %s", code, errs)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	if _, errs, code = run(t, at, "--to", "database", "--dsn", "env:THECLAW_NO_SUCH", "alice"); code != 1 || !strings.Contains(errs, "THECLAW_NO_SUCH is not set") {
		t.Errorf("a variable that is none: %d, %s", code, errs)
	}
	_, errs, code = run(t, at, "--to", "database", "--dsn", "postgres:///none?host=/no/such", "alice")
	if code != 1 || !strings.Contains(errs, "the database cannot be used") {
		t.Errorf("no database: %d, %s", code, errs)
	}
}
