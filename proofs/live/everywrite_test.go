//go:build proof

package live_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/testing/need"
	"github.com/theclaw/agents/internal/testing/world"
	"github.com/theclaw/agents/proofs/drill"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// filler fills a file system at one label and watches which steps are refused
// from then on: a step that begins a second time without having ended.
type filler struct {
	ballast string

	mu      sync.Mutex
	label   string // where to fill; empty: nowhere
	replied bool   // T7 was passed since
	full    bool
	begun   map[string]bool // steps that began since
	refused map[string]int  // by step
	err     error
	filled  chan struct{} // closed when it is full
	turned  chan struct{} // closed by the refusal of the step that writes next
}

// writes tells whether it is the step itself that a label's full disk refuses:
// it stands before a write.
func writes(label string) (step string, ok bool) {
	step, at, _ := strings.Cut(label, ".")
	return step, at == "before" && step != "T3" && step != "T5" && step != "D2"
}

// arm makes the file system full at the next passing of a label.
func (f *filler) arm(label string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.label, f.replied, f.full, f.err = label, false, false, nil
	f.begun, f.refused = map[string]bool{}, map[string]int{}
	f.filled, f.turned = make(chan struct{}), make(chan struct{})
}

// point is the hook: it runs where the label is passed, so that the next write
// there is the first to find no room.
func (f *filler) point(label string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.replied = f.replied || label == "T7.after"
	// A deliverer looks for more before it rests: that is no delivery of ours.
	early := label[0] == 'D' && !f.replied
	if f.label == "" || !f.full && (label != f.label || early) {
		return
	}
	if !f.full {
		f.err, f.full = fill(f.ballast), true
		close(f.filled)
	}
	step, at, _ := strings.Cut(label, ".")
	switch {
	case at == "after":
		delete(f.begun, step)
	case !f.begun[step]:
		f.begun[step] = true
	default:
		f.refused[step]++
		if next, ok := writes(f.label); f.refused[step] == 1 && (step == next || !ok && len(f.refused) == 1) {
			close(f.turned)
		}
	}
}

// free gives the room back and answers how often each step was refused.
func (f *filler) free(t *testing.T) map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.label = ""
	// Cut off first: a child that is just being started has the file open, too.
	if err := errors.Join(f.err, os.Truncate(f.ballast, 0), os.Remove(f.ballast)); err != nil {
		t.Fatal(err)
	}
	return f.refused
}

// fill takes all that is free, and again what has become free since.
func fill(path string) error {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	for chunk := make([]byte, 1<<20); err == nil; {
		_, err = out.Write(chunk) // the last one in part
	}
	if !errors.Is(err, unix.ENOSPC) {
		return err
	}
	if err := out.Close(); err != nil && !errors.Is(err, unix.ENOSPC) {
		return err
	}
	return nil
}

// silent are the labels after which the message that passes them may have
// nothing left to write.
var silent = map[string]bool{"T8.after": true, "D3.after": true, "D4.after": true}

// TestDiskFullAtEveryWrite fills the file system at each labelled instant of the
// life of a message and of a delivery. What was being written is not there in
// part, nothing new is accepted, and when there is room again all that was
// accepted comes to its end by itself.
func TestDiskFullAtEveryWrite(t *testing.T) {
	dir := need.Disk(t, "size=64m")
	o := world.Options{Home: filepath.Join(dir, "home"), TTL: drill.Span(t, "TTL", 5*time.Second)}
	o.Registry.MinFree = -1 // only the disk itself refuses
	sink := world.NewSink(t)
	f := &filler{ballast: filepath.Join(dir, "ballast")}
	fault.SetPoint(f.point)
	t.Cleanup(func() { fault.SetPoint(nil) })
	w := world.Start(t, o)
	refused, answered, slowest := 0, 0, time.Duration(0)
	var pushes []invariant.Push
	for i, label := range fault.StepLabels() {
		c := &course{World: w, filler: f, agent: fmt.Sprint("a", i), label: label}
		w.Create(t, c.agent, sink.Config())
		took := c.run(t)
		slowest = max(slowest, took)
		refused += c.refusals
		answered += len(c.pushes)
		pushes = append(pushes, c.pushes...)
		if t.Failed() {
			t.Fatalf("at %s", label)
		}
	}
	var arrivals []invariant.Arrival
	for _, a := range sink.Arrivals("") {
		arrivals = append(arrivals, invariant.Arrival{Key: a.Key, MaybeDuplicate: a.MaybeDuplicate, Agent: a.AgentID, Thread: a.ThreadID, EventID: a.EventID})
	}
	violations := check(t, o.Home, invariant.Options{Live: true, Drained: true, Sink: arrivals, History: &invariant.History{Pushes: pushes}})
	for _, found := range violations {
		t.Errorf("%s", found)
	}
	drill.Line("diskfull labels=%d refused=%d answered=%d violations=%d slowest_resume_ms=%d",
		len(fault.StepLabels()), refused, answered, len(violations), slowest.Milliseconds())
}

func check(t *testing.T, home string, o invariant.Options) []invariant.Finding {
	t.Helper()
	found, _, err := invariant.Check(t.Context(), layout.At(home), o)
	if err != nil {
		t.Fatal(err)
	}
	var out []invariant.Finding
	for _, f := range found {
		if f.Severity == invariant.Violation {
			out = append(out, f)
		}
	}
	return out
}

// course is one label's agent with its three messages: before the disk is full,
// while it becomes full, and while it is.
type course struct {
	*world.World
	*filler
	agent, label string
	pushes       []invariant.Push
	refusals     int
}

// say pushes the n-th message. What a full disk refuses, it refuses in so many
// words.
func (c *course) say(ctx context.Context, t *testing.T, n int, text string) (id int64, refused bool) {
	t.Helper()
	key := fmt.Sprint("key ", n)
	id, err := c.Push(ctx, c.agent, world.Peer("bob"), text, key)
	switch e := fault.From(err); {
	case err == nil:
		c.pushes = append(c.pushes, invariant.Push{Agent: c.agent, Key: key, IDs: []int64{id}})
	case e.Code == codes.ResourceExhausted && e.Reason == fault.DiskFull:
		c.refusals++
		return 0, true
	default:
		t.Fatalf("message %d: %v", n, err)
	}
	return id, false
}

// run answers how long everything took from the room on.
func (c *course) run(t *testing.T) time.Duration {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	step, _, _ := strings.Cut(c.label, ".")
	text := map[string]string{"T9": "fail: auth ", "D4": "say: " + world.Refused}[step]
	if text == "" {
		text = "run: echo $TOOL_IDEMPOTENCY_KEY"
	}
	first, _ := c.say(ctx, t, 1, "say: before")
	c.end(ctx, t, first)
	c.arm(c.label)
	second, refused := c.say(ctx, t, 2, text)
	if refused != (c.label == "T0.before") {
		t.Errorf("the push was refused: %v", refused)
	}
	c.await(ctx, t, c.filled, "the label is not passed")
	if !refused && !silent[c.label] {
		c.await(ctx, t, c.turned, "nothing is refused")
	}
	if err := fill(c.ballast); err != nil {
		t.Fatal(err)
	}
	if third, ok := c.say(ctx, t, 3, "say: too much"); !ok {
		t.Errorf("event %d was accepted by a full disk", third)
	}
	for _, found := range check(t, c.Home, invariant.Options{Live: true, Agent: c.agent}) {
		t.Errorf("while it is full: %s", found)
	}
	for _, n := range c.free(t) {
		c.refusals += n
	}
	freed := time.Now()
	if refused {
		second, _ = c.say(ctx, t, 2, text)
	}
	c.end(ctx, t, second) // by itself: the third comes only now
	took := time.Since(freed)
	third, _ := c.say(ctx, t, 3, "say: too much")
	c.end(ctx, t, third)
	if first != 1 || second != 2 || third != 3 {
		t.Errorf("events %d, %d, %d", first, second, third)
	}
	return took
}

func (c *course) await(ctx context.Context, t *testing.T, done <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-done:
	case <-ctx.Done():
		t.Fatal(what)
	}
}

// end waits for the fate of an event, its acknowledgement and its delivery.
func (c *course) end(ctx context.Context, t *testing.T, id int64) {
	t.Helper()
	turn := c.Ask(t, c.agent, id, time.Minute)
	dead := c.label[:2] == "T9" && id == 2
	if (turn.GetFate() == registryv1.Fate_FATE_DEAD) != dead || turn.GetFate() == registryv1.Fate_FATE_UNSPECIFIED {
		t.Fatalf("event %d: %v", id, turn)
	}
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		s, err := c.Agents.GetAgentStatus(ctx, &registryv1.GetAgentStatusRequest{AgentId: c.agent})
		if err == nil && s.GetInbox().GetPending() == 0 && s.GetOutboundPending() == 0 {
			return
		}
		timer := time.NewTimer(pause) // nothing tells when a delivery has ended
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			t.Fatalf("event %d does not come to rest: %v %v", id, err, s)
		}
	}
}
