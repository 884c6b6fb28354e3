package sqlite

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/testing/need"
	"github.com/theclaw/agents/internal/thread"
)

// S9: whatever the engine makes is for its owner alone.
func TestEnsureModes(t *testing.T) {
	root := home(t, "a")
	e := engine(t, root)
	r := store.Ref{Agent: "a", Thread: "threads/peers/x/main"}
	for i := range 2 {
		if created, err := e.Ensure(t.Context(), r, "tuple"); err != nil || created != (i == 0) {
			t.Fatalf("call %d: %v, %v", i, created, err)
		}
	}
	err := filepath.WalkDir(filepath.Join(root, "a", "threads"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		i, err := d.Info()
		if want := map[bool]os.FileMode{true: 0o700, false: 0o600}[d.IsDir()]; err == nil && i.Mode().Perm() != want {
			t.Errorf("%s has mode %o, want %o", path, i.Mode().Perm(), want)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if _, err := e.Ensure(t.Context(), store.Ref{Agent: "a", Thread: "inbox/events.db/x"}, ""); err == nil {
		t.Error("made a thread below a file")
	}
}

// An inbox of the external tool goes on where its agent stopped.
func TestGoldenInbox(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "a", "inbox")
	if err := os.CopyFS(dir, os.DirFS("db/testdata/golden")); err != nil {
		t.Fatal(err)
	}
	e := engine(t, root)
	s, err := e.State(t.Context(), "a")
	if err != nil || !s.Started || s.Acked != 2 || s.Head != 7 || s.Pending != 5 {
		t.Fatalf("state %+v, %v", s, err)
	}
	b, err := e.OpenBatch(t.Context(), "a", store.Fence{Resource: "agent/a", Token: 1}, store.OpenBatch{
		Limit: 9, Mode: "m", Route: func(ev thread.Event, _ string) (string, error) {
			if strings.HasPrefix(ev.Content, "not json") {
				return "", errors.New("cannot be parsed")
			}
			return "threads/x", nil
		},
	})
	if err != nil || len(b.Events) != 2 || b.Settled != 3 {
		t.Fatalf("batch %+v, %v", b, err)
	}
	turn, err := e.Turn(t.Context(), "a", store.TurnQuery{InboxID: 1})
	if err != nil || turn.State != store.TurnDone || turn.Fate != store.FateSilent {
		t.Errorf("what was done before: %+v, %v", turn, err)
	}
}

// A run stays explained after its thread was removed.
func TestTurnOutlivesItsThread(t *testing.T) {
	root := home(t, "a")
	e := engine(t, root)
	everything(t, e)
	if err := os.RemoveAll(filepath.Join(root, "a", "threads")); err != nil {
		t.Fatal(err)
	}
	turn, err := e.Turn(t.Context(), "a", store.TurnQuery{InboxID: 1})
	if err != nil || turn.Fate != store.FateDead {
		t.Errorf("turn %+v, %v", turn, err)
	}
}

// RELIABILITY 5, disk full: told as such, nobody's fault, and over by itself.
func TestDiskFull(t *testing.T) {
	root := need.Disk(t, "size=1m")
	dir := filepath.Join(root, "a", "inbox")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Create(dir); err != nil {
		t.Fatal(err)
	}
	e := New(Options{Path: layout(root), Live: anyLease, OnFault: func(r store.Ref, err error) {
		if !errors.Is(err, store.ErrDiskFull) {
			t.Errorf("%s: fault %v", r, err)
		}
	}})
	defer func() { _ = e.Close() }()
	push := func() error {
		_, err := e.Append(context.Background(), store.Inbox("a"), []store.NewEvent{{Source: "s", Type: thread.TypeMessage, Content: strings.Repeat("x", 100<<10)}}, store.AppendOptions{})
		return err
	}
	if err := push(); err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(root, "ballast")
	f, err := os.Create(ballast)
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	_ = f.Close()
	for range 3 {
		if err := push(); !errors.Is(err, store.ErrDiskFull) {
			t.Errorf("push: %v", err)
		}
	}
	if _, err := e.Ensure(t.Context(), store.Ref{Agent: "a", Thread: "threads/x"}, ""); !errors.Is(err, store.ErrDiskFull) {
		t.Errorf("ensure: %v", err)
	}
	if err := errors.Join(os.Remove(ballast), push()); err != nil {
		t.Error(err)
	}
	if n, err := e.VerifyChain(t.Context(), store.Inbox("a")); n != 2 || err != nil {
		t.Errorf("chain of %d: %v", n, err)
	}
}
