package invariant_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"sync"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// TestCheckSize makes a home of many conversations with the real services and
// times a check of it as fsck does it. `make fsck-size THREADS=1000`; HOME_SIZED
// names a home that is kept, or used again, and PROFILE a file for the time spent.
func TestCheckSize(t *testing.T) {
	threads := int(size("THREADS", 20))
	dir := os.Getenv("HOME_SIZED")
	if dir == "" {
		dir = filepath.Join(t.TempDir(), "h")
	}
	if _, err := os.Stat(dir); err != nil {
		fill(t, dir, threads)
	}
	if name := os.Getenv("PROFILE"); name != "" {
		f, err := os.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			t.Fatal(err)
		}
		defer pprof.StopCPUProfile()
	}
	begun := time.Now()
	found, stats, err := invariant.Check(context.WithoutCancel(t.Context()), layout.At(dir), invariant.Options{})
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(begun)
	for _, f := range found {
		t.Error(f)
	}
	if stats.Databases < threads || stats.Chained != stats.Events {
		t.Errorf("looked at too little: %+v", stats)
	}
	fmt.Printf("fsck-size threads=%d events=%d turns=%d files=%d findings=%d took=%.2fs\n", stats.Databases, stats.Events, stats.Turns, stats.Files, len(found), took.Seconds())
}

// fill makes a home of four agents that have answered three messages of each of
// their peers, and one of them a tool call.
func fill(t *testing.T, dir string, threads int) {
	t.Helper()
	w := world.Start(t, world.Options{Home: dir, Runners: 2})
	const agents, each = 4, 3
	var load sync.WaitGroup
	for a := range agents {
		id := fmt.Sprintf("a%d", a)
		w.Create(t, id, "outbound: []")
		load.Go(func() {
			for peer := a; peer < threads; peer += agents {
				var events []*registryv1.NewEvent
				for n := range each {
					text := fmt.Sprintf("message %d of %d", n, peer)
					if n == 1 && peer%10 == 0 {
						text = "run: echo one"
					}
					events = append(events, &registryv1.NewEvent{Source: world.Peer(fmt.Sprintf("p%d", peer)), Type: "message", Content: world.Message(text)})
				}
				r, err := w.Threads.PushEvents(t.Context(), &registryv1.PushEventsRequest{Thread: &registryv1.ThreadRef{AgentId: id, ThreadId: "inbox"}, Events: events})
				if err != nil {
					t.Error(err)
					return
				}
				if ids := r.GetEventIds(); peer+agents >= threads || peer%200 < agents {
					w.Await(t, id, ids[len(ids)-1]) // not too far ahead of the runners
				}
			}
		})
	}
	load.Wait()
	w.Stop()
}
