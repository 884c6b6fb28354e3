package machine

import (
	"testing"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// pending is a reply that waits, and its thread at a later time.
func pending(after time.Duration, d store.Delivery) *Thread {
	d.EventID, d.Key, d.State, d.CreatedAt = 2, "k", store.DeliveryPending, time.UnixMilli(1_000_000)
	d.UpdatedAt = d.CreatedAt
	return &Thread{Now: d.CreatedAt.Add(after), Head: 2, NextID: 3, FirstOpen: 2, Deliveries: []Delivery{{Delivery: d, BootID: "g", Event: thread.Event{ID: 2}}}}
}

// F16: the wall clock was set forward by more than deliver.max_age between a reply and its
// send: it is sent all the same, once; only repeats have an age.
func TestFirstTryIsAlwaysMade(t *testing.T) {
	n := store.NextDelivery{BootID: "g", MaxAge: 24 * time.Hour}
	if out, more := Next(pending(25*time.Hour, store.Delivery{}), n); more != nil || out.Outcome != store.DueSend || out.Attempt != 1 {
		t.Errorf("a reply that was never tried: %+v, %v", out, more)
	}
	for name, d := range map[string]store.Delivery{
		"failed": {Attempts: 1, Error: "e", Channel: "c"}, "unavailable": {Error: "e", Channel: "c"},
	} {
		if _, more := Next(pending(25*time.Hour, d), n); more == nil {
			t.Errorf("%s before: it is not given up", name)
		}
	}
}

// F16: a wait that was stored before the wall clock was set back by a day does not last a
// day.
func TestWaitAfterTheClockWasSetBack(t *testing.T) {
	for _, tt := range []struct {
		clock time.Duration
		want  store.DueOutcome
	}{{-24 * time.Hour, store.DueSend}, {-time.Millisecond, store.DueWait}, {time.Second, store.DueWait}, {6 * time.Second, store.DueSend}} {
		th := pending(tt.clock, store.Delivery{Attempts: 1, Error: "e"})
		d := &th.Deliveries[0]
		d.NotBefore = d.UpdatedAt.Add(5 * time.Second).UnixMilli()
		if out, _ := Next(th, store.NextDelivery{BootID: "g", MaxAge: time.Hour}); out.Outcome != tt.want {
			t.Errorf("clock %v: %+v", tt.clock, out)
		}
	}
}

// F16: so it is with the wait of a turn for its next try, after a failure or in an outage. One that goes on in another
// process after the clock was set back by a day does not wait for a day.
func TestTurnWaitsAfterTheClockWasSetBack(t *testing.T) {
	at := time.UnixMilli(1_000_000)
	for _, f := range []store.FailedTry{{Counted: true}, {}, {Held: true}} {
		for _, tt := range []struct {
			clock time.Duration
			want  store.BeginOutcome
		}{{-24 * time.Hour, store.BeginGo}, {-time.Millisecond, store.BeginWait}, {time.Second, store.BeginWait}, {6 * time.Second, store.BeginGo}} {
			th := &Thread{Now: at, NextID: 1}
			b := store.Begin{Event: thread.Event{ID: 1, Source: "s", Type: thread.TypeMessage, Content: "{}"}, Key: "k"}
			if _, err := Begin(th, b); err != nil {
				t.Fatal(err)
			}
			f.Wait = 5 * time.Second
			if _, err := Record(th, store.Record{Key: "k", Failed: &f}); err != nil {
				t.Fatal(err)
			}
			th.Now = at.Add(tt.clock)
			if out, err := Begin(th, b); err != nil || out.Outcome != tt.want {
				t.Errorf("%+v, clock %v: %v, %v", f, tt.clock, out.Outcome, err)
			}
		}
	}
}
