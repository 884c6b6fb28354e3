package message

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/theclaw/agents/internal/fault"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// H2, F4: what is waited for has its cause and the time of the next try, also when the wait
// for the reply ends.
func TestWaiting(t *testing.T) {
	now := time.Now()
	waits := func(counted bool, after time.Duration) *registry.Turn {
		return &registry.Turn{
			InboxId: 3, State: registry.TurnState_TURN_STATE_WAITING, Error: "provider failed (503): work: overloaded", NextAt: timestamppb.New(now.Add(after)),
			Attempts: []*registry.Attempt{{N: 1, Counted: counted}},
		}
	}
	for want, turn := range map[string]*registry.Turn{
		"waiting for the model provider, next try in 12s: provider failed (503): work: overloaded":  waits(false, 12*time.Second),
		"waiting for the model provider, trying again now: provider failed (503): work: overloaded": waits(false, -time.Second),
		"the last try failed, next try in 1s: provider failed (503): work: overloaded":              waits(true, time.Millisecond),
		"": {State: registry.TurnState_TURN_STATE_CLAIMED, Error: "x"},
	} {
		if got := Waiting(turn, now); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
	var w waiter
	changes := 0
	for range 3 {
		w.see(waits(false, 12*time.Second), func(*registry.Turn) { changes++ })
	}
	w.see(waits(false, 30*time.Second), func(*registry.Turn) { changes++ })
	if changes != 2 {
		t.Errorf("%d changes", changes)
	}
	f := fault.From(TimedOut(w.explain(context.DeadlineExceeded), "alice", 3))
	if f.Reason != fault.Deadline || !strings.Contains(f.What, "message 3 has no reply yet; it is not lost; waiting for the model provider, next try in 30s: provider failed (503)") {
		t.Errorf("%+v", f)
	}
	if other := errors.New("x"); TimedOut(other, "alice", 3) != other {
		t.Error("another error did not pass")
	}
}
