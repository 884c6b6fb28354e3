package migrate

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	_ "modernc.org/sqlite"

	"github.com/theclaw/agents/cmd/agentctl/internal/doctor"
	"github.com/theclaw/agents/cmd/agentctl/internal/legacy"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/agentdir/layout"
)

// old makes a directory as the earlier agent's init did (recorded: config.yaml and
// the tree), for another id.
func old(t *testing.T, h layout.Home, id string, config func(string) string) string {
	t.Helper()
	dir := h.AgentDir(id)
	for line := range strings.Lines(read(t, "testdata/init-tree.txt")) {
		name := filepath.Join(dir, strings.TrimSpace(line))
		switch filepath.Base(name) {
		case "events.db", "events.jsonl", "config.yaml":
		case "IDENTITY.md", "USAGE.md":
			put(t, name, "# "+id+"\n")
		default:
			if err := os.MkdirAll(name, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	text := strings.ReplaceAll(read(t, "testdata/config.yaml"), "e1", id)
	text = strings.ReplaceAll(strings.ReplaceAll(text, "provider: fake", "provider: offline"), "fake-model", "offline")
	put(t, filepath.Join(dir, "config.yaml"), config(text))
	conversation(t, dir, "inbox", "inbox", "agent run "+id, "NULL")
	return dir
}

// conversation makes a thread with the external tool's tables; says are
// source, content pairs.
func conversation(t *testing.T, dir, id, consumer, handler, filter string, says ...string) {
	t.Helper()
	path := filepath.Join(dir, id)
	for _, sub := range []string{"run", "logs"} {
		if err := os.MkdirAll(filepath.Join(path, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	put(t, filepath.Join(path, "events.jsonl"), "")
	exec1(t, filepath.Join(path, "events.db"), "PRAGMA journal_mode=WAL; "+
		strings.ReplaceAll(read(t, "testdata/schema.sql"), "CREATE TABLE sqlite_sequence(name,seq);", "")+
		fmt.Sprintf("; INSERT INTO subscriptions VALUES('%s', '%s', %s)", consumer, handler, filter))
	for i := 0; i < len(says); i += 2 {
		exec1(t, filepath.Join(path, "events.db"), fmt.Sprintf("INSERT INTO events(source, type, content) VALUES('%s', 'message', '%s')", says[i], says[i+1]))
	}
}

func exec1(t *testing.T, path, statements string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), statements); err != nil {
		t.Fatalf("%s: %v", statements, err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func one(t *testing.T, path, query string) (out string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if err := db.QueryRowContext(t.Context(), query).Scan(&out); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return out
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// lock makes a lock of a process that is gone, an hour ago.
func lock(t *testing.T, path string) {
	t.Helper()
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	put(t, path, strconv.Itoa(gone.ProcessState.Pid()))
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
}

// earlier is a home with what is known of directories of the earlier agent.
func earlier(t *testing.T) layout.Home {
	t.Helper()
	h := layout.At(filepath.Join(t.TempDir(), "home"))
	same := func(s string) string { return s }
	const meant = "'type = ''message'' AND source = ''self'''"
	dir := old(t, h, "e1", same)
	peer := func(id, filter string, says ...string) {
		path := filepath.Join(dir, "threads/peers", id)
		conversation(t, dir, "threads/peers/"+id, "outbound", "agent deliver --thread "+path+" --consumer outbound", filter, says...)
		exec1(t, filepath.Join(path, "events.db"), "INSERT INTO consumer_progress SELECT 'outbound', COALESCE(MAX(id),0), '2026-11-20T10:00:00.000Z' FROM events")
	}
	peer("tui-main-Alice", "'type=message AND source=self'", "external:tui:tui-main:dm:Alice:Alice", `{"text":"I am Alice"}`, "self", `{"text":"hi Alice"}`)
	peer("tg-main-a-b", meant, "external:telegram:tg-main:dm:s:a-b", `{"text":"dashes","channel_id":"tg-main","peer_id":"a-b"}`)
	peer("tui-main-bob", meant, "external:tui:tui-main:dm:bob:bob", `{"text":"plain"}`)
	peer("x-y-z", meant, "external:tui:x:dm:s:y-z", `{"text":"one"}`, "external:tui:x-y:dm:s:z", `{"text":"other"}`)
	for _, name := range []string{"agent", "user-Alice", "user-bob", "user-ghost"} {
		put(t, filepath.Join(dir, "memory", name+".md"), "about "+name)
	}
	exec1(t, filepath.Join(dir, "inbox/events.db"), `INSERT INTO events(source, type, content) VALUES('external:tui:tui-main:dm:Alice:Alice', 'message', '{"text":"I am Alice"}'),
		('external:tui:tui-main:dm:Alice:Alice', 'message', '{"text":"say: welcome back"}');
		INSERT INTO consumer_progress VALUES('inbox', 1, '2026-11-20T10:00:00.000Z')`)
	lock(t, filepath.Join(dir, "run.lock"))
	lock(t, filepath.Join(dir, "inbox/run/inbox.lock"))

	old(t, h, "bad1", func(s string) string { // of the recorded list: a kind that is none
		return strings.Replace(strings.Replace(s, "agent_id: bad1\n", "", 1), "kind: user", "kind: weird", 1)
	})
	old(t, h, "broken", func(string) string { return "agent_id: broken\na: [b\n" })
	old(t, h, "far", func(s string) string {
		return strings.Replace(s, "/srv/claw-a/home/.theclaw/agents/far/inbox", filepath.Join(t.TempDir(), "elsewhere"), 1)
	})
	return h
}

// result is what `migrate --json` prints.
type result struct {
	OK            bool
	Done          int
	Changes, Left []legacy.Change
	Waiting       []legacy.Waiting
}

func run(t *testing.T, h layout.Home, args ...string) (string, int) {
	t.Helper()
	return runAs(t, h, Command, args...)
}

func runAs(t *testing.T, h layout.Home, make func(*command.Env) *cobra.Command, args ...string) (string, int) {
	t.Helper()
	var out, errs bytes.Buffer
	e := command.New(nil, &out, &errs, func(name string) string { return map[string]string{"THECLAW_HOME": h.Path()}[name] }, "test")
	defer e.Close()
	e.Flags.Timeout = time.Second
	c := make(e)
	c.SilenceErrors, c.SilenceUsage = true, true
	c.Flags().BoolVar(&e.Flags.JSON, "json", false, "")
	code := e.Report(command.Execute(t.Context(), e, c, args))
	return out.String() + errs.String(), code
}

func runJSON(t *testing.T, h layout.Home, args ...string) (result, int) {
	t.Helper()
	text, code := run(t, h, append(args, "--json")...)
	var r result
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return r, code
}

func examine(t *testing.T, h layout.Home) string {
	t.Helper()
	text, _ := runAs(t, h, func(e *command.Env) *cobra.Command { return doctor.Commands(e)[0] })
	return text
}
