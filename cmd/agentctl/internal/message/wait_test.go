package message

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

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
	other := waits(true, time.Millisecond)
	other.Error = "answer broke off: work: the connection was lost"
	uncounted := waits(false, 150*time.Second)
	uncounted.Error = "request refused: no model provider is set up"
	held := waits(false, 4*time.Second) // the breaker was open at the first try: nothing was attempted
	held.Attempts, held.Error = nil, "provider unreachable: openai: no connection to the endpoint: connect: connection refused"
	for want, turn := range map[string]*registry.Turn{
		"the model provider work is not available (503): overloaded; next try in 12 s":           waits(false, 12*time.Second),
		"the model provider work is not available (503): overloaded; trying again now":           waits(false, -time.Second),
		"the model provider openai cannot be reached: connection refused; next try in 4 s":       held,
		"the last try failed: answer broke off: work: the connection was lost; next try in 1 s":  other,
		"no model is available: request refused: no model provider is set up; next try in 3 min": uncounted,
		"": {State: registry.TurnState_TURN_STATE_CLAIMED, Error: "x"},
	} {
		if got := Waiting(turn, now); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
	var w waiter
	changes := 0
	count := func(Progress) { changes++ }
	for range 3 {
		w.see(Progress{Turn: waits(false, 12*time.Second)}, count)
	}
	w.see(Progress{Turn: waits(false, 30*time.Second)}, count)
	if changes != 2 {
		t.Errorf("%d changes", changes)
	}
	var steps []time.Duration
	for range 5 {
		steps = append(steps, w.step(count))
	}
	if want := []time.Duration{firstWatch, 2 * firstWatch, 4 * firstWatch, watchStep, watchStep}; !slices.Equal(steps, want) || w.step(nil) != step {
		t.Errorf("steps %v", steps)
	}
	f := fault.From(TimedOut(w.explain(context.DeadlineExceeded), "alice", 3))
	if f.Reason != fault.Deadline || !strings.Contains(f.What, "message 3 has no reply yet; it is not lost; the model provider work is not available (503): overloaded; next try in 30 s") {
		t.Errorf("%+v", f)
	}
	// Where nothing has failed yet, the end of the wait says how far the message is.
	for want, turn := range map[string]*registry.Turn{
		"message 3 has no reply yet; it is not lost; a runner has been working on it for 1m0s": {State: registry.TurnState_TURN_STATE_CLAIMED, ClaimedAt: timestamppb.New(time.Now().Add(-time.Minute))},
		"message 3 has no reply yet; it is not lost; no runner works on it yet":                {State: registry.TurnState_TURN_STATE_QUEUED},
		"message 3 has no reply yet; it is not lost":                                           nil,
	} {
		if got := fault.From(TimedOut((&waiter{Progress: Progress{Turn: turn}}).explain(context.DeadlineExceeded), "alice", 3)); got.What != want || got.Reason != fault.Deadline {
			t.Errorf("got  %q\nwant %q", got.What, want)
		}
	}
	if other := errors.New("x"); TimedOut(other, "alice", 3) != other {
		t.Error("another error did not pass")
	}
}

// The causes that the runner writes, as sentences; what is not known stays as it is.
func TestCause(t *testing.T) {
	for err, want := range map[string]string{
		"provider unreachable: openai: no connection to the endpoint: connect: connection refused": "the model provider openai cannot be reached: connection refused",
		"provider unreachable: work: the host name nowhere.example is not known":                   "the model provider work cannot be reached: the host name nowhere.example is not known",
		"provider failed (503): work: overloaded: come later":                                      "the model provider work is not available (503): overloaded: come later",
		"rate limited (429): openai: slow down":                                                    "the model provider openai limits the rate of calls (429): slow down",
		"rate limited":                                                                             "the model provider limits the rate of calls",
		"provider failed: x":                                                                       "the model provider is not available: x",
	} {
		if got, waits := Cause(err); got != want || !waits {
			t.Errorf("%s: %q, %v", err, got, waits)
		}
	}
	for _, err := range []string{"", "key refused (401): openai: no", "the provider failed", "\xff: x: y"} {
		if got, waits := Cause(err); got != err || waits {
			t.Errorf("%s: %q, %v", err, got, waits)
		}
	}
}

// In a narrow window the cause is cut, and never the time of the next try.
func TestWaitFits(t *testing.T) {
	w := Wait{Cause: "the model provider openai cannot be reached: " + strings.Repeat("why ", 50), Next: "next try in 4 s"}
	for _, columns := range []int{20, 80, 200, 1000} {
		got := w.Fit(columns)
		if n := utf8.RuneCountInString(got); n > columns || !strings.HasSuffix(got, "; next try in 4 s") {
			t.Errorf("%d columns: %d, %s", columns, n, got)
		}
	}
	if got := (Wait{Cause: "abcdef"}).Fit(4); got != "abc…" {
		t.Error(got)
	}
}

// H2: a message behind one that waits says so, and why; one of another conversation does not.
func TestBehind(t *testing.T) {
	now := time.Now()
	ahead := &registry.Turn{
		InboxId: 1, ThreadId: "threads/main", State: registry.TurnState_TURN_STATE_WAITING, Error: "provider failed (503): work: overloaded",
		NextAt: timestamppb.New(now.Add(12 * time.Second)), Attempts: []*registry.Attempt{{N: 1}},
	}
	queued := func(thread string) *registry.Turn {
		return &registry.Turn{InboxId: 2, ThreadId: thread, State: registry.TurnState_TURN_STATE_QUEUED}
	}
	const want = "message 1 of the same conversation comes first: the model provider work is not available (503): overloaded; next try in 12 s"
	if got := WaitOf(queued("threads/main"), ahead, now).String(); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got := WaitOf(queued("threads/other"), ahead, now); got != (Wait{}) {
		t.Errorf("another conversation: %q", got)
	}
	ahead.State = registry.TurnState_TURN_STATE_CLAIMED
	if got := WaitOf(queued("threads/main"), ahead, now); got != (Wait{}) {
		t.Errorf("it is worked on: %q", got)
	}
}
