package running_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/invariant/running"
	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

func TestMain(m *testing.M) {
	sandbox.Main()
	os.Exit(m.Run())
}

func client(w *world.World) running.Client {
	return running.Client{Agents: w.Agents, Turns: w.Turns}
}

// I13, I20 and a check of the databases hold while the services work; the same
// functions see a home that does not drain.
func TestRunningHome(t *testing.T) {
	w := world.Start(t, world.Options{})
	w.Create(t, "a1", "outbound: []")
	for i := range 40 {
		if _, err := w.Push(t.Context(), "a1", world.Peer(fmt.Sprint("p", i%4)), "hello", ""); err != nil {
			t.Fatal(err)
		}
	}
	// In the middle of the work: what is under way is no finding.
	found, stats, err := invariant.Check(t.Context(), layout.At(w.Home), invariant.Options{Live: true})
	if err != nil || len(found) > 0 || stats.Events < 40 {
		t.Errorf("live: %v %v %+v", err, found, stats)
	}
	if found, err := running.Drain(t.Context(), client(w), time.Minute, "a1"); err != nil || len(found) > 0 {
		t.Errorf("I13: %v %v", err, found)
	}
	push := func(ctx context.Context) (int64, error) {
		return w.Push(ctx, "a1", world.Peer("bob"), "still there?", "")
	}
	found, err = running.StopStart(t.Context(), client(w), "a1", push, 50*time.Millisecond, time.Minute)
	if err != nil || len(found) > 0 {
		t.Errorf("I20: %v %v", err, found)
	}

	// The controls: an agent that nobody works for drains not.
	if _, err := w.Agents.StopAgent(t.Context(), &registryv1.StopAgentRequest{AgentId: "a1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := push(t.Context()); err != nil {
		t.Fatal(err)
	}
	found, err = running.Drain(t.Context(), client(w), 50*time.Millisecond, "a1")
	if err != nil || len(found) != 1 || found[0].Invariant != "I13" || !strings.Contains(found[0].What, "1 events have no fate") {
		t.Errorf("an agent that stands still: %v %v", err, found)
	}
	// And a push that is answered although the agent should stand still.
	awake := func(ctx context.Context) (int64, error) {
		id, err := push(ctx)
		if err == nil {
			_, err = w.Agents.StartAgent(ctx, &registryv1.StartAgentRequest{AgentId: "a1"})
		}
		return id, err
	}
	found, err = running.StopStart(t.Context(), client(w), "a1", awake, time.Minute, time.Minute)
	if err != nil || len(found) != 1 || found[0].Invariant != "I20" {
		t.Errorf("an agent that does not stop: %v %v", err, found)
	}
}

// I19: what is left behind is seen, and nothing else.
func TestResources(t *testing.T) {
	temp := t.TempDir()
	base, err := running.Measure(0, temp)
	if err != nil || base.Goroutines == 0 || base.Descriptors == 0 {
		t.Fatalf("%+v %v", base, err)
	}
	if f := running.Compare(base, base, running.Resources{}); len(f) > 0 {
		t.Errorf("nothing changed: %v", f)
	}
	left, err := os.Create(filepath.Join(temp, "left"))
	if err != nil {
		t.Fatal(err)
	}
	mirror, err := os.Create(filepath.Join(t.TempDir(), "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	end := make(chan struct{})
	defer close(end)
	for range 3 {
		go func() { <-end }()
	}
	now, err := running.Measure(0, temp)
	if err != nil {
		t.Fatal(err)
	}
	said := fmt.Sprint(running.Compare(base, now, running.Resources{}))
	for _, want := range []string{"goroutines", "1 descriptors of databases, 0 before", "1 temporary files, 0 before"} {
		if !strings.Contains(said, want) {
			t.Errorf("no word of %s: %s", want, said)
		}
	}
	if want := base.Descriptors + 1; now.Descriptors != want || !strings.Contains(said, fmt.Sprintf("%d descriptors, %d before", want, base.Descriptors)) {
		t.Errorf("%d descriptors, want %d: %s", now.Descriptors, want, said)
	}
	if f := running.Compare(base, now, running.Resources{Goroutines: 3, Descriptors: 1, Databases: 1, TempFiles: 1}); len(f) > 0 {
		t.Errorf("within the slack: %v", f)
	}
	if err := errors.Join(left.Close(), mirror.Close()); err != nil {
		t.Fatal(err)
	}
}
