package fsck

import (
	"bytes"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
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
	"github.com/theclaw/agents/internal/testing/need"
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

// R3: the logs that the external thread tool writes follow its umask. Below a directory
// that keeps other users out they are a note, which is no reason to exit with 1; a repair
// narrows them. In a directory for everybody, and for every other file, the mode is a
// violation as before.
func TestThreadToolLogs(t *testing.T) {
	h := home(t)
	logs := filepath.Join(h.AgentDir("a1"), "inbox", "logs")
	put := func(mode fs.FileMode, names ...string) {
		t.Helper()
		for _, name := range names {
			path := filepath.Join(h.AgentDir("a1"), name)
			if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, mode)); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(0o644, "inbox/logs/thread.log", "inbox/logs/thread-20260101-000000.log", bob+"/logs/thread.log")
	got, code := runJSON(t, h)
	if code != 0 || !got.OK || len(got.Findings) != 1 || got.Findings[0].Severity != invariant.Note || !strings.HasPrefix(got.Findings[0].What, "3 logs of the external thread tool have a mode such as 644") {
		t.Errorf("exit code %d, %+v", code, got)
	}
	if err := os.Chmod(logs, 0o755); err != nil {
		t.Fatal(err)
	}
	if got, code = runJSON(t, h); code != 1 || len(got.Findings) != 4 { // the directory, and two logs in it
		t.Errorf("exit code %d, %+v", code, got)
	}
	if got, code = runJSON(t, h, "--repair"); code != 0 || len(got.Findings) != 0 || len(got.Actions) != 4 {
		t.Errorf("exit code %d, %+v", code, got)
	}
	put(0o644, "inbox/run/thread.log", "logs/agent.log", "inbox/logs/other")
	if got, code = runJSON(t, h); code != 1 || len(got.Findings) != 3 || got.OK {
		t.Errorf("exit code %d, %+v", code, got)
	}
}

// F6: what cannot be read or repaired in one agent is named with its agent and path, and
// does not end the check of the others.
func TestUnreadable(t *testing.T) {
	if os.Geteuid() == 0 {
		need.Inapplicable(t, "root reads everything")
	}
	h := home(t)
	dir := filepath.Join(h.AgentDir("a1"), "workdir", "closed")
	for _, path := range []string{dir, filepath.Join(h.AgentDir("a1"), "threads", "sessions")} {
		if err := errors.Join(os.MkdirAll(path, 0o700), os.Chmod(path, 0)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(path, 0o700) })
	}
	for _, args := range [][]string{nil, {"--repair"}} {
		got, code := runJSON(t, h, args...)
		if code != 1 || got.Agents != 2 || len(got.Findings) != 2 || got.Findings[0].Agent != "a1" ||
			!strings.Contains(got.Findings[0].What+got.Findings[1].What, "closed cannot be read") {
			t.Errorf("exit code %d, %+v", code, got)
		}
	}
}

// F6: a directory thousands of levels deep, and names of all bytes, in one workdir.
func TestDeepWorkdir(t *testing.T) {
	h := home(t)
	at, err := os.OpenRoot(filepath.Join(h.AgentDir("a1"), "workdir"))
	for range 3000 {
		if err == nil {
			err = at.Mkdir("d\xff", 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
		next, err := at.OpenRoot("d\xff")
		if err := errors.Join(err, at.Close()); err != nil {
			t.Fatal(err)
		}
		at = next
	}
	if err := at.Close(); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{nil, {"--repair"}} {
		if got, code := runJSON(t, h, args...); code != 0 || got.Agents != 2 || len(got.Findings) != 0 {
			t.Errorf("exit code %d, %+v", code, got)
		}
	}
}
