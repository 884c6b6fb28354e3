package agentdir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// waiters tells whether n callers wait for the round after the one under way.
func (g *syncGroup) waiters(n int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting) == n
}

// Twenty callers during a round share the one after it; each gets its result.
func TestSyncSharesOneRound(t *testing.T) {
	var g syncGroup
	var rounds atomic.Int32
	inside, leave := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		if err := g.syncEntries(func() error { close(inside); <-leave; return nil }); err != nil {
			t.Error(err)
		}
	})
	<-inside
	boom := errors.New("boom")
	for range 20 {
		all.Go(func() {
			if err := g.syncEntries(func() error { rounds.Add(1); return boom }); !errors.Is(err, boom) {
				t.Errorf("got %v", err)
			}
		})
	}
	for !g.waiters(20) {
		runtime.Gosched()
	}
	close(leave)
	all.Wait()
	if rounds.Load() != 1 {
		t.Errorf("%d rounds for 20 who waited together", rounds.Load())
	}
}

// A caller who is alone syncs its own files and gets their error.
func TestSyncAlone(t *testing.T) {
	var g syncGroup
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	boom := errors.New("boom")
	if err := g.syncFiles(dir, func() error { return boom }); !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
}

// Many at once on real files: all return, and where the filesystem can be synced at once,
// none of them syncs its own files.
func TestSyncManyTrees(t *testing.T) {
	var g syncGroup
	root := t.TempDir()
	dir, err := os.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	var own atomic.Int32
	g.round.Lock() // until all wait
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			path := filepath.Join(root, fmt.Sprint(i))
			if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
				t.Error(err)
			}
			if err := g.syncFiles(dir, func() error { own.Add(1); return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	if filesystemSyncs(dir) {
		for !g.waiters(50) {
			runtime.Gosched()
		}
	}
	g.round.Unlock()
	all.Wait()
	if want := map[bool]int32{true: 0, false: 50}[filesystemSyncs(dir)]; own.Load() != want {
		t.Errorf("%d synced their own, want %d", own.Load(), want)
	}
}
