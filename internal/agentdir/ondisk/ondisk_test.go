package ondisk

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

// waits tells whether n wait for the round after the one under way.
func (g *Group) waits(n int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting) == n
}

// Twenty who come while a round is under way share the one after it; each is told of it.
func TestOneRoundForAllWhoWait(t *testing.T) {
	var g Group
	var rounds atomic.Int32
	inside, leave := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		if err := g.Name(func() error { close(inside); <-leave; return nil }); err != nil {
			t.Error(err)
		}
	})
	<-inside
	boom := errors.New("boom")
	for range 20 {
		all.Go(func() {
			if err := g.Name(func() error { rounds.Add(1); return boom }); !errors.Is(err, boom) {
				t.Errorf("told %v", err)
			}
		})
	}
	for !g.waits(20) {
		runtime.Gosched()
	}
	close(leave)
	all.Wait()
	if rounds.Load() != 1 {
		t.Errorf("%d rounds for 20 who waited together", rounds.Load())
	}
}

// Who is alone syncs his own files, and an error of theirs is his.
func TestAlone(t *testing.T) {
	var g Group
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	boom := errors.New("boom")
	if err := g.tree(dir, func() error { return boom }); !errors.Is(err, boom) {
		t.Errorf("told %v", err)
	}
}

// Many at once on real files: all return, and where the filesystem can be synced as a
// whole, not each of them has synced his own.
func TestManyTrees(t *testing.T) {
	var g Group
	root := t.TempDir()
	dir, err := os.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	var own atomic.Int32
	g.turn.Lock() // until all of them wait
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			path := filepath.Join(root, fmt.Sprint(i))
			if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
				t.Error(err)
			}
			if err := g.tree(dir, func() error { own.Add(1); return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	if reaches(dir) {
		for !g.waits(50) {
			runtime.Gosched()
		}
	}
	g.turn.Unlock()
	all.Wait()
	if want := map[bool]int32{true: 0, false: 50}[reaches(dir)]; own.Load() != want {
		t.Errorf("%d synced their own, want %d", own.Load(), want)
	}
}
