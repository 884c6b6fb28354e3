package delivery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/lease"
)

var failed = &channel.Error{Class: channel.Failed, InDoubt: true, What: "server error 500"}

func inBubble(t *testing.T, s *sink, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newWorld(t, newMemory(), s)) })
}

// TestHotPath: with nothing down, messages in a row cost two journal calls for
// the first and one for each further; the drain ends 10 s after the last lane.
func TestHotPath(t *testing.T) {
	inBubble(t, &sink{}, func(t *testing.T, w *world) {
		w.journal.push("threads/a", "1", "2", "3")
		began := time.Now()
		w.agent.Wake("threads/a")
		if err := <-w.ended; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != lease.GrantKeep {
			t.Errorf("ended after %v, want %v", took, lease.GrantKeep)
		}
		if got := w.sink.texts(); !slices.Equal(got, []string{"1", "2", "3"}) {
			t.Errorf("sent %v", got)
		}
		if begins, peeks, finishes := w.journal.calls(); begins != 1 || peeks != 0 || finishes != 3 {
			t.Errorf("begins %d peeks %d finishes %d", begins, peeks, finishes)
		}
		w.agent.Wake("threads/a")
		if _, err := w.agent.Deliver(t.Context(), "threads/a", 3); !errors.Is(err, ErrClosed) {
			t.Error("a closed drain takes work")
		}
		if log := w.journal.row("threads/a", 1).logs; !slices.Equal(log, []string{"outbound: channel=xgw event=1 outcome=sent ms=0"}) {
			t.Errorf("log %q", log)
		}
		m := w.sink.got[1]
		if m.Key != "threads/a/2" || m.AgentID != "a1" || m.Fence != (channel.Fence{Resource: "deliver/a1", Token: 1}) || m.Attempt != 1 || m.MaybeDuplicate {
			t.Errorf("message %+v", m)
		}
	})
}

// TestRetries is S0-127, S0-129: 500, 500, 200 with 5 s and 60 s between, no new
// event needed, and the next event waits its turn.
func TestRetries(t *testing.T) {
	s := &sink{answer: func(n int, _ channel.Message) error {
		if n < 2 {
			return failed
		}
		return nil
	}}
	inBubble(t, s, func(t *testing.T, w *world) {
		w.journal.push("threads/a", "1", "2")
		w.agent.Wake("threads/a")
		if err := <-w.ended; err != nil {
			t.Fatal(err)
		}
		if got := s.texts(); !slices.Equal(got, []string{"1", "1", "1", "2"}) {
			t.Fatalf("sent %v", got)
		}
		if a, b := s.at[1].Sub(s.at[0]), s.at[2].Sub(s.at[1]); a != 5*time.Second || b != 60*time.Second {
			t.Errorf("waited %v, %v", a, b)
		}
		for i, m := range s.got[:3] { // a send that may have left is flagged next time
			if m.Attempt != i+1 || m.MaybeDuplicate != (i > 0) || m.Key != "threads/a/1" {
				t.Errorf("try %d: %+v", i, m)
			}
		}
		if s.got[3].MaybeDuplicate {
			t.Error("the flag went over to the next event")
		}
	})
}

// TestDeadThenNext is S0-128: three failures are dead, the next event goes on.
func TestDeadThenNext(t *testing.T) {
	s := &sink{answer: func(_ int, m channel.Message) error {
		if m.Text == "bad" {
			return failed
		}
		return nil
	}}
	inBubble(t, s, func(t *testing.T, w *world) {
		w.journal.push("threads/a", "bad", "good")
		w.agent.Wake("threads/a")
		<-w.ended
		if got := s.texts(); !slices.Equal(got, []string{"bad", "bad", "bad", "good"}) {
			t.Fatalf("sent %v", got)
		}
		if r := w.journal.row("threads/a", 1); r.state != "dead" || r.attempts != 3 || r.error != failed.What {
			t.Errorf("%+v", r)
		}
	})
}

// TestPanic: a channel that breaks costs its message, not the process.
func TestPanic(t *testing.T) {
	s := &sink{answer: func(_ int, m channel.Message) error {
		if m.Text == "bad" {
			panic("boom")
		}
		return nil
	}}
	inBubble(t, s, func(t *testing.T, w *world) {
		w.journal.push("threads/a", "bad", "good")
		w.agent.Wake("threads/a")
		<-w.ended
		if a, b := w.journal.row("threads/a", 1), w.journal.row("threads/a", 2); a.state != "dead" || strings.Contains(a.error, "boom") || b.state != "sent" {
			t.Errorf("%+v, %+v", a, b)
		}
	})
}

// TestNoWakeIsLost: an event that comes after the journal said idle, and before
// the lane is gone, is sent.
func TestNoWakeIsLost(t *testing.T) {
	inBubble(t, &sink{}, func(t *testing.T, w *world) {
		w.journal.push("threads/a", "1")
		w.journal.lose = func(call string) error {
			if len(w.journal.rows["threads/a"]) == 1 && call == "finish" {
				w.journal.add("threads/a", fmt.Sprintf(toPeer, "2"))
				w.agent.Wake("threads/a")
			}
			return nil
		}
		w.agent.Wake("threads/a")
		<-w.ended
		if got := w.sink.texts(); !slices.Equal(got, []string{"1", "2"}) {
			t.Errorf("sent %v", got)
		}
	})
}

// TestThreadsAreIndependent: one thread waits, the other goes on, and the one
// that waits has no place in the pool.
func TestThreadsAreIndependent(t *testing.T) {
	s := &sink{answer: func(_ int, m channel.Message) error {
		if m.ThreadID == "threads/a" {
			return failed
		}
		return nil
	}}
	inBubble(t, s, func(t *testing.T, w *world) {
		w.journal.push("threads/a", "1")
		w.journal.push("threads/b", "1", "2")
		w.agent.Wake("threads/a", "threads/b")
		synctest.Wait()
		if r := w.journal.row("threads/b", 2); r.state != "sent" {
			t.Errorf("%+v", r)
		}
		if n := w.pool.Active(); n != 0 {
			t.Errorf("%d lanes have a place while one waits", n)
		}
		// Another event in the waiting thread does not jump the line.
		w.journal.push("threads/a", "2")
		w.agent.Wake("threads/a")
		synctest.Wait()
		if r := w.journal.row("threads/a", 2); r.state != "pending" {
			t.Errorf("%+v", r)
		}
		if err := w.end(); err != nil {
			t.Error(err)
		}
	})
}

// TestNothingToSend: what the configuration or the content decides is recorded
// and the next event goes on (S0-44, S0-126).
func TestNothingToSend(t *testing.T) {
	inBubble(t, &sink{}, func(t *testing.T, w *world) {
		const id = "threads/a"
		w.journal.settings = channel.Settings{Outbound: []channel.Rule{}}
		w.journal.push(id, "unwanted")
		w.journal.pushContent(id, `no json`)
		w.journal.pushContent(id, `{"text":"hi","reply_context":{"channel_type":"console"}}`)
		w.agent.Wake(id)
		<-w.ended
		if r := w.journal.row(id, 1); r.state != "skipped" || r.error != channel.FateByConfiguration || !strings.Contains(r.logs[0], "channel=none event=1 outcome=skipped") {
			t.Errorf("%+v", r)
		}
		if r := w.journal.row(id, 2); r.state != "dead" || r.error == "" {
			t.Errorf("%+v", r)
		}
		if r := w.journal.row(id, 3); r.state != "sent" || !strings.Contains(r.logs[0], "channel=console") {
			t.Errorf("%+v", r)
		}
		if n := w.sink.sends(); n != 0 {
			t.Errorf("%d sends", n)
		}
	})
}

// TestDeliver joins the drain and counts what it did, up to the head asked for.
func TestDeliver(t *testing.T) {
	s := &sink{answer: func(_ int, m channel.Message) error {
		switch m.Text {
		case "rejected":
			return channel.Reject("", "no", "")
		case "failing":
			return failed
		}
		return nil
	}}
	inBubble(t, s, func(t *testing.T, w *world) {
		const id = "threads/a"
		w.journal.push(id, "1", "rejected", "3", "failing", "5")
		got, err := w.agent.Deliver(t.Context(), id, 3)
		if err != nil || got != (Counts{Sent: 2, Dead: 1}) {
			t.Errorf("%+v, %v", got, err)
		}
		got, err = w.agent.Deliver(t.Context(), id, 5) // it ends at the wait
		if err != nil || got != (Counts{}) {
			t.Errorf("%+v, %v", got, err)
		}
		if got, err := w.agent.Deliver(t.Context(), "threads/empty", 0); err != nil || got != (Counts{}) {
			t.Errorf("%+v, %v", got, err)
		}
		if err := w.end(); err != nil {
			t.Error(err)
		}
		if _, err := w.agent.Deliver(t.Context(), id, 5); !errors.Is(err, ErrClosed) {
			t.Errorf("after the end: %v", err)
		}
	})
}

// TestDeliverCanBeLeft: a caller that goes away leaves the drain as it is.
func TestDeliverCanBeLeft(t *testing.T) {
	gate := make(chan struct{})
	s := new(sink)
	synctest.Test(t, func(t *testing.T) {
		gate = make(chan struct{})
		s.hold = func(context.Context) error { <-gate; return nil }
		w := newWorld(t, newMemory(), s)
		w.journal.push("threads/a", "1")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := w.agent.Deliver(ctx, "threads/a", 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		close(gate)
		<-w.ended
		if r := w.journal.row("threads/a", 1); r.state != "sent" {
			t.Errorf("%+v", r)
		}
	})
}
