package fsck

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/testing/world"
)

// Where registries share a database fsck checks that, by the settings of the home or by
// a flag, and says clearly what it does not do there.
func TestSharedDatabases(t *testing.T) {
	url := pgtest.Database(t)
	at := filepath.Join(t.TempDir(), "h")
	w := world.Start(t, world.Options{Home: at, DSN: url, Registries: 2})
	w.Create(t, "a1", "outbound: []")
	w.Say(t, "a1", world.Peer("bob"), "say: one")
	if err := os.WriteFile(filepath.Join(at, "theclaw.yaml"), []byte("storage: {engine: postgres, dsns: ['env:CLAW']}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(dsn string, args ...string) (code int, out, said string) {
		var o, e bytes.Buffer
		env := command.New(strings.NewReader(""), &o, &e, func(name string) string { return map[string]string{"CLAW": dsn}[name] }, "test")
		env.Flags.Home = at
		for i, a := range args {
			if a == "--json" {
				env.Flags.JSON = true
				args = append(args[:i:i], args[i+1:]...)
			}
		}
		c := Command(env)
		c.SetArgs(args)
		err := c.ExecuteContext(t.Context())
		if err != nil {
			code = env.Report(err)
		}
		return code, o.String(), e.String()
	}
	code, out, said := run(url, "--json")
	var got struct {
		OK, Live                         bool
		Agents, Databases, Events, Turns int
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 || !got.OK || !got.Live || got.Agents != 1 || got.Turns != 1 || got.Events < 3 {
		t.Errorf("%d %v %+v, %s %s", code, err, got, out, said)
	}
	if code, out, said = run("", "--dsn", url, "--agent", "a1"); code != 0 || !strings.Contains(out, "0 findings: 1 agent") {
		t.Errorf("by flag: %d %s %s", code, out, said)
	}
	for _, c := range []struct {
		dsn  string
		args []string
		want string
	}{
		{url, []string{"--agent", "nobody"}, "agent 'nobody' not found - "},
		{url, []string{"--repair"}, "a PostgreSQL database is not repaired - "},
		{"", nil, "the environment variable CLAW is not set - "},
		{"postgres://claw:hunter2@%zz/x", nil, "the database cannot be read - "},
		{strings.Replace(url, "claw1", "nothing", 1), nil, "the database cannot be read - "},
	} {
		if code, out, said := run(c.dsn, c.args...); code == 0 || !strings.Contains(said, c.want) || strings.Contains(out+said, "hunter2") {
			t.Errorf("%v: %d %s %s", c.args, code, out, said)
		}
	}
}
