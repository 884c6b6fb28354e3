package fsck

import (
	"bytes"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/invariant/repair"
	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/internal/testing/world"
)

func TestMain(m *testing.M) {
	sandbox.Main()
	code := m.Run()
	if made.dir != "" {
		_ = os.RemoveAll(made.dir)
	}
	os.Exit(code)
}

// made is a home in which a1 has answered bob twice and alice once and has
// nothing to deliver, and a2 has answered bob.
var made struct {
	once sync.Once
	dir  string
}

const (
	bob   = "threads/peers/main-bob"
	alice = "threads/peers/main-alice"
)

// home answers a copy of it.
func home(t *testing.T) layout.Home {
	t.Helper()
	made.once.Do(func() {
		var err error
		if made.dir, err = os.MkdirTemp("", "fsck"); err != nil {
			t.Fatal(err)
		}
		w := world.Start(t, world.Options{Home: filepath.Join(made.dir, "h")})
		w.Create(t, "a1", "outbound: []")
		w.Create(t, "a2", "outbound: []")
		w.Say(t, "a1", world.Peer("bob"), "say: one")
		w.Say(t, "a1", world.Peer("alice"), "say: two")
		w.Say(t, "a1", world.Peer("bob"), "say: three")
		w.Say(t, "a2", world.Peer("bob"), "say: four")
		w.Stop()
	})
	to := filepath.Join(t.TempDir(), "h")
	if err := os.CopyFS(to, os.DirFS(filepath.Join(made.dir, "h"))); err != nil {
		t.Fatal(err)
	}
	h := layout.At(to)
	private(t, h)
	return h
}

// private gives a copy its modes back: it follows the umask.
func private(t *testing.T, h layout.Home) {
	t.Helper()
	err := filepath.WalkDir(h.Path(), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			return os.Chmod(path, 0o700)
		}
		return os.Chmod(path, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// outcome is what `fsck --json` prints.
type outcome struct {
	OK       bool                `json:"ok"`
	Findings []invariant.Finding `json:"findings"`
	Actions  []repair.Action     `json:"actions"`
	Agents   int                 `json:"agents"`
}

// run runs the command and answers its output and exit code.
func run(t *testing.T, h layout.Home, args ...string) (string, int) {
	t.Helper()
	var out, errs bytes.Buffer
	e := command.New(nil, &out, &errs, func(name string) string { return map[string]string{"THECLAW_HOME": h.Path()}[name] }, "test")
	c := Command(e)
	c.SilenceErrors, c.SilenceUsage = true, true
	c.Flags().BoolVar(&e.Flags.JSON, "json", false, "")
	c.SetArgs(args)
	code := e.Report(c.ExecuteContext(t.Context()))
	return out.String() + errs.String(), code
}

func runJSON(t *testing.T, h layout.Home, args ...string) (outcome, int) {
	t.Helper()
	text, code := run(t, h, append(args, "--json")...)
	var o outcome
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return o, code
}

// edit changes a database with plain SQLite.
func edit(t *testing.T, h layout.Home, thread string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(h.AgentDir("a1"), thread, "events.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	for _, s := range statements {
		r, err := db.ExecContext(t.Context(), s)
		if err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		if n, err := r.RowsAffected(); err != nil || n == 0 {
			t.Fatalf("%s: changed nothing (%v)", s, err)
		}
	}
}

// file changes the bytes of a file of a1; nil removes it.
func file(t *testing.T, h layout.Home, name string, change func([]byte) []byte) {
	t.Helper()
	path := filepath.Join(h.AgentDir("a1"), name)
	b, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if b = change(b); b == nil {
		err = os.Remove(path)
	} else {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// digest is every file of a home: name, mode and bytes. The lock that says who
// looks at it does not count.
func digest(t *testing.T, h layout.Home) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(h.Path(), func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == h.LockFile() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		sum := ""
		if info.Mode().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			sum = fmt.Sprintf("%x", sha256.Sum256(b))
		}
		out[strings.TrimPrefix(path, h.Path())] = info.Mode().String() + sum
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
