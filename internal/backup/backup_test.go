package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/backup/archive"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store/sqlite/db"
)

// home makes a home with agents, stopped as they begin.
func home(t testing.TB, ids ...string) *agentdir.Home {
	t.Helper()
	h, err := agentdir.OpenHome(filepath.Join(t.TempDir(), "home"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	for _, id := range ids {
		if _, err := h.Create(id, agentdir.Spec{Prepare: func(dir string) error {
			_, err := db.Create(filepath.Join(dir, "inbox"))
			return err
		}}); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func write(t testing.TB, h *agentdir.Home, what Selection) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Write(t.Context(), &b, Resting(h), what); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// forge is a tar whose manifest is right about these entries.
func forge(t testing.TB, entries ...*tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	put := func(h *tar.Header, body []byte) {
		h.Size, h.Mode = int64(len(body)), 0o777
		if err := errors.Join(w.WriteHeader(h), func() error { _, err := w.Write(body); return err }()); err != nil {
			t.Fatal(err)
		}
	}
	put(&tar.Header{Name: archive.HeadName, Typeflag: tar.TypeReg}, []byte(`{"format":1,"agents":["a1"]}`))
	var m archive.Manifest
	for _, h := range entries {
		body := []byte("x")
		if h.Typeflag != tar.TypeReg {
			body = nil
		}
		put(h, body)
		m.Files = append(m.Files, archive.Entry{Name: archive.Name(h.Name), Size: int64(len(body)), SHA256: fmt.Sprintf("%x", sha256.Sum256(body))})
	}
	last, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	put(&tar.Header{Name: archive.ManifestName, Typeflag: tar.TypeReg}, last)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func left(t testing.TB, h *agentdir.Home) []string {
	t.Helper()
	var names []string
	for _, dir := range []string{h.AgentsDir(), h.RunDir()} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Name() != "holders" {
				names = append(names, e.Name())
			}
		}
	}
	return names
}

// SECURITY S8: a tar is input like any other; nothing leaves the stage.
func TestHostileTar(t *testing.T) {
	file := func(name string) *tar.Header { return &tar.Header{Name: name, Typeflag: tar.TypeReg} }
	for _, e := range []*tar.Header{
		file("agents/a1/../../x"), file("agents/a1/memory/../../../x"), file("/etc/x"), file("agents/../a1/USAGE.md"), file("agents/A1/USAGE.md"),
		file("agents/a1/run.lock"), file("agents/a1/inbox/run/x"), file("agents/a1/threads/events.db"), file("agents/a1/workdir/../x"),
		file("agents/a1/memory/a/b.md"), file("agents/a1/memory/past/a/b.md"), file("agents/a1/sessions/past/b.jsonl"), file("run/token"), file("agents/a1/memory"), file("agents/a1"),
		{Name: "agents/a1/workdir/link", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
		{Name: "agents/a1/workdir/link", Typeflag: tar.TypeLink, Linkname: "agents/a1/inbox/events.db"},
		{Name: "agents/a1/workdir/pipe", Typeflag: tar.TypeFifo},
		file("agents/a1/USAGE.md"),        // no inbox
		file("agents/a1/inbox/events.db"), // no database
	} {
		h := home(t)
		_, err := Restore(t.Context(), bytes.NewReader(forge(t, e)), h, Choice{})
		if !fault.Is(err, fault.InvalidArgument) {
			t.Errorf("%s: %v", e.Name, err)
		}
		if names := left(t, h); len(names) != 0 {
			t.Errorf("%s: left %v", e.Name, names)
		}
	}
}

// A restored agent has every file with its mode, and nothing of what is left out.
func TestRoundTrip(t *testing.T) {
	from := home(t, "a1", "a2")
	dir := from.AgentDir("a1")
	for name, mode := range map[string]os.FileMode{
		"memory/agent.md": 0o600, "sessions/s.jsonl": 0o600, "workdir/sub/tool.sh": 0o700, "workdir/.hidden": 0o644, "logs/agent.log": 0o600,
		"memory/.agent.md123": 0o600, "memory/past/thread-x.7.md": 0o600,
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(name), mode)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "workdir", "link")); err != nil {
		t.Fatal(err)
	}
	to := home(t)
	done, err := Restore(t.Context(), bytes.NewReader(write(t, from, Selection{Workdir: true})), to, Choice{Agents: []string{"a1"}})
	if err != nil || len(done) != 1 || done[0].Agent != "a1" || done[0].Threads != 1 {
		t.Fatalf("%+v, %v", done, err)
	}
	for name, want := range map[string]os.FileMode{
		"memory/agent.md": 0o600, "sessions/s.jsonl": 0o600, "workdir/sub/tool.sh": 0o700, "workdir/.hidden": 0o600, "IDENTITY.md": 0o600, "memory/past/thread-x.7.md": 0o600,
		"inbox/events.db": 0o600, "inbox/events.jsonl": 0o600, "inbox/run": 0o700 | os.ModeDir, "threads/main": 0o700 | os.ModeDir,
	} {
		if info, err := os.Stat(filepath.Join(to.AgentDir("a1"), name)); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", name, info, err, want)
		}
	}
	for _, name := range []string{"logs/agent.log", "workdir/link", "memory/.agent.md123", "../a2"} {
		if _, err := os.Lstat(filepath.Join(to.AgentDir("a1"), name)); err == nil {
			t.Errorf("%s was restored", name)
		}
	}
	if _, err := to.Load("a1"); err != nil {
		t.Error(err)
	}
	if got := left(t, to); len(got) != 1 {
		t.Errorf("left %v", got)
	}
}

// Media that were written after the inbox was copied are there after a restore: a step that was copied later refers to them.
func TestMediaAfterTheInbox(t *testing.T) {
	from := home(t, "a1")
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte("picture")))
	dir := filepath.Join(from.AgentDir("a1"), "media")
	for name, data := range map[string]string{sum: "picture", strings.Repeat("0", 64): "not what its name says"} {
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, name[:2]), 0o700), os.WriteFile(filepath.Join(dir, name[:2], name), []byte(data), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	to := home(t)
	if _, err := Restore(t.Context(), bytes.NewReader(write(t, from, Selection{})), to, Choice{}); err != nil {
		t.Fatal(err)
	}
	err := inCopy(t.Context(), filepath.Join(to.AgentDir("a1"), "inbox"), func(tx *db.Tx) error {
		if !tx.HasMedia() {
			return errors.New("no media")
		}
		return tx.Each("SELECT sha256, size FROM x_media", nil, func(scan func(...any) error) error {
			var got string
			var size int64
			err := scan(&got, &size)
			if got != sum || size != 7 {
				t.Errorf("media %s of %d bytes, want %s of 7", got, size, sum)
			}
			return err
		})
	})
	if err != nil {
		t.Error(err)
	}
}

// Of several agents one that cannot be placed means that none is.
func TestAllOrNone(t *testing.T) {
	b := write(t, home(t, "a1", "a2", "a3"), Selection{})
	h := home(t, "a3")
	if _, err := Restore(t.Context(), bytes.NewReader(b), h, Choice{}); !fault.Is(err, fault.AgentExists) {
		t.Error(err)
	}
	if got := left(t, h); len(got) != 1 || got[0] != "a3" {
		t.Errorf("left %v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Restore(ctx, bytes.NewReader(b), h, Choice{Agents: []string{"a1"}}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if got := left(t, h); len(got) != 1 {
		t.Errorf("left %v", got)
	}
}

// A trap runs something when the name of a file passes in a tar.
type trap struct {
	bytes.Buffer
	name string
	do   func()
}

func (w *trap) Write(b []byte) (int, error) {
	if w.do != nil && bytes.Contains(b, []byte(w.name)) {
		w.do()
		w.do = nil
	}
	return w.Buffer.Write(b)
}

// F5: a file that changes while it is read, or disappears, ends no backup. One that grows is
// kept as long as it was, of one that shrinks what was read, and that is reported.
func TestRestlessFiles(t *testing.T) {
	old := bytes.Repeat([]byte("old "), 100_000)
	fail := func(t *testing.T, err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		change func(path string) error // when the entry of the file has begun
		want   func(got []byte) bool   // of the restored file
		why    string                  // in the backup
	}{
		"grows": {func(path string) error { return os.WriteFile(path, append(old, old...), 0o600) }, func(got []byte) bool { return bytes.Equal(got, old) }, ""},
		"shrinks": {
			func(path string) error { return os.Truncate(path, 1000) },
			func(got []byte) bool { return bytes.Equal(got, old[:1000]) }, "it became shorter while it was read; the first 1000 of 400000 bytes are in the backup",
		},
		"is emptied":  {func(path string) error { return os.Truncate(path, 0) }, func(got []byte) bool { return len(got) == 0 }, "the first 0 of 400000 bytes"},
		"changes":     {func(path string) error { return os.WriteFile(path, bytes.ToUpper(old), 0o600) }, func(got []byte) bool { return len(got) == len(old) }, ""},
		"is removed":  {os.Remove, func(got []byte) bool { return bytes.Equal(got, old) }, ""},
		"is replaced": {func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) }, func(got []byte) bool { return bytes.Equal(got, old) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			from := home(t, "a1", "a2")
			path := filepath.Join(from.AgentDir("a1"), "workdir", "restless")
			fail(t, os.WriteFile(path, old, 0o600))
			// The next one is gone before its turn.
			fail(t, os.WriteFile(path+" next", old, 0o600))
			w := &trap{name: "workdir/restless", do: func() { fail(t, errors.Join(c.change(path), os.Remove(path+" next"))) }}
			fail(t, Write(t.Context(), w, Resting(from), Selection{Workdir: true}))
			s, err := archive.Inspect(t.Context(), bytes.NewReader(w.Bytes()))
			fail(t, err)
			if len(s.Agents) != 2 || s.Missing != len(s.LeftOut) || (c.why == "") != (s.Missing == 0) {
				t.Errorf("%+v", s)
			} else if c.why != "" && (s.LeftOut[0].Agent != "a1" || s.LeftOut[0].Path != "workdir/restless" || !strings.Contains(s.LeftOut[0].Why, c.why)) {
				t.Errorf("%+v", s.LeftOut)
			}
			to := home(t)
			_, err = Restore(t.Context(), bytes.NewReader(w.Bytes()), to, Choice{})
			fail(t, err)
			got, err := os.ReadFile(filepath.Join(to.AgentDir("a1"), "workdir", "restless"))
			if err != nil || !c.want(got) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			if _, err := os.Lstat(filepath.Join(to.AgentDir("a1"), "workdir", "restless next")); err == nil {
				t.Error("a file that was gone is there")
			}
		})
	}
}

// A manifest is input: what it says of directories and of torn files leads nowhere else.
func TestHostileManifest(t *testing.T) {
	for _, m := range []archive.Manifest{
		{Directories: []archive.Name{"agents/a1/workdir/../../../x"}},
		{Directories: []archive.Name{"/x"}},
		{Directories: []archive.Name{"agents/a1/logs"}},
		{Directories: []archive.Name{"agents/a1/threads/peers/x"}},
		{Directories: []archive.Name{"agents/a1/workdir/\xff/../../.."}},
	} {
		h := home(t)
		s, err := newStage(h)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.finish(m, []string{"a1"}); !fault.Is(err, fault.InvalidArgument) {
			t.Errorf("%+v: %v", m, err)
		}
		if err := s.close(); err != nil {
			t.Error(err)
		}
		if names := left(t, h); len(names) != 0 {
			t.Errorf("%+v: left %v", m, names)
		}
	}
}
