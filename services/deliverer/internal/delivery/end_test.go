package delivery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
)

// stopped is a send that ends only when it is stopped, and cannot tell whether
// it left.
func stopped(ctx context.Context) error {
	<-ctx.Done()
	return &channel.Error{Class: channel.Interrupted, InDoubt: true, What: "stopped"}
}

// TestLeaseLostInMidSend: the send is stopped, nothing is recorded, and the next
// holder sends the same key, flagged, without spending an attempt (window B).
func TestLeaseLostInMidSend(t *testing.T) {
	s := &sink{hold: stopped}
	inBubble(t, s, func(t *testing.T, w *world) {
		w.journal.push("threads/a", "1", "2")
		w.journal.push("threads/b", "1")
		w.agent.Wake("threads/a", "threads/b")
		synctest.Wait()
		w.registry.say(fmt.Errorf("gone: %w", lease.ErrLost), false)
		if err := <-w.ended; !errors.Is(err, lease.ErrLost) {
			t.Fatalf("ended with %v", err)
		}
		w.pool.Wait()
		if _, _, finishes := w.journal.calls(); w.journal.row("threads/a", 1).state != "sending" || finishes != 0 {
			t.Errorf("%+v, %d finishes", w.journal.row("threads/a", 1), finishes)
		}
		w.journal.token = 2
		w.sink.hold = nil
		w.start()
		w.agent.Wake("threads/a", "threads/b")
		if err := <-w.ended; err != nil {
			t.Fatal(err)
		}
		var again []channel.Message
		for _, m := range s.got[2:] {
			if m.ThreadID == "threads/a" {
				again = append(again, m)
			}
		}
		if len(again) != 2 || again[0].Key != "threads/a/1" || !again[0].MaybeDuplicate || again[0].Attempt != 1 || again[1].MaybeDuplicate || again[1].Fence.Token != 2 {
			t.Errorf("%+v", again)
		}
	})
}

// TestCrashBetweenSendAndFinish is S0-131 and window B: the message left, its
// record did not; the next holder repeats it under the same key and flags it.
func TestCrashBetweenSendAndFinish(t *testing.T) {
	inBubble(t, &sink{}, func(t *testing.T, w *world) {
		j := w.journal
		var points []string
		fault.SetPoint(func(label string) {
			points = append(points, label)
			if label == "D2.after" && len(points) == 2 {
				j.set(func() { j.token = 2 }) // another holder was granted the lease
			}
		})
		defer fault.SetPoint(nil)
		j.push("threads/a", "1", "2")
		w.agent.Wake("threads/a")
		if err := <-w.ended; !errors.Is(err, lease.ErrLost) {
			t.Fatalf("ended with %v", err)
		}
		w.pool.Wait()
		if r := j.row("threads/a", 1); r.state != "sending" {
			t.Errorf("%+v", r)
		}
		w.start()
		w.agent.Wake("threads/a")
		<-w.ended
		if got := w.sink.texts(); !slices.Equal(got, []string{"1", "1", "2"}) {
			t.Fatalf("sent %v", got)
		}
		if first, second := w.sink.got[0], w.sink.got[1]; first.Key != second.Key || first.MaybeDuplicate || !second.MaybeDuplicate {
			t.Errorf("%+v then %+v", first, second)
		}
		if !slices.Equal(points[:2], []string{"D2.before", "D2.after"}) {
			t.Errorf("points %v", points)
		}
	})
}

// TestCloseFinishesTheSend: draining lets the send under way end and be
// recorded, and begins no other.
func TestCloseFinishesTheSend(t *testing.T) {
	s := &sink{hold: func(context.Context) error { time.Sleep(3 * time.Second); return nil }}
	inBubble(t, s, func(t *testing.T, w *world) {
		w.journal.push("threads/a", "1", "2")
		w.agent.Wake("threads/a")
		synctest.Wait()
		if err := w.end(); err != nil {
			t.Fatal(err)
		}
		if a, b := w.journal.row("threads/a", 1), w.journal.row("threads/a", 2); a.state != "sent" || b.state != "pending" || b.attempts != 0 {
			t.Errorf("%+v, %+v", a, b)
		}
	})
}

// TestAbort: after the grace a send is stopped; it goes back untouched when it
// surely did not leave, and stays sending when it may have.
func TestAbort(t *testing.T) {
	for _, inDoubt := range []bool{false, true} {
		s := &sink{hold: func(ctx context.Context) error {
			<-ctx.Done()
			return &channel.Error{Class: channel.Interrupted, InDoubt: inDoubt, What: "stopped"}
		}}
		inBubble(t, s, func(t *testing.T, w *world) {
			w.journal.push("threads/a", "1")
			w.agent.Wake("threads/a")
			synctest.Wait()
			w.agent.Close()
			synctest.Wait()
			at := time.Now()
			w.agent.Abort()
			if err := w.end(); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(at); took > 0 {
				t.Errorf("the send was stopped %v after", took)
			}
			r := w.journal.row("threads/a", 1)
			if inDoubt && r.state != "sending" {
				t.Errorf("in doubt: %+v", r)
			}
			if !inDoubt && (r.state != "pending" || r.attempts != 0 || r.notBefore.After(time.Now())) {
				t.Errorf("not sent: %+v", r)
			}
		})
	}
}

// TestCloseBetween: what a Finish began just before the close is put back.
func TestCloseBetween(t *testing.T) {
	inBubble(t, &sink{}, func(t *testing.T, w *world) {
		w.journal.push("threads/a", "1", "2")
		w.journal.lose = func(call string) error {
			if call == "finish" {
				w.agent.Close()
			}
			return nil
		}
		w.agent.Wake("threads/a")
		if err := <-w.ended; err != nil {
			t.Fatal(err)
		}
		if r := w.journal.row("threads/a", 2); r.state != "pending" || r.attempts != 0 || w.sink.sends() != 1 {
			t.Errorf("%+v after %d sends", r, w.sink.sends())
		}
	})
}

// TestLeaseLostWhileWaiting: a lane on its timer does not hold up the end.
func TestLeaseLostWhileWaiting(t *testing.T) {
	inBubble(t, &sink{answer: func(int, channel.Message) error { return failed }}, func(t *testing.T, w *world) {
		w.journal.push("threads/a", "1")
		w.agent.Wake("threads/a")
		time.Sleep(6 * time.Second) // in the wait of 60 s
		w.registry.say(lease.ErrLost, false)
		began := time.Now()
		if err := <-w.ended; !errors.Is(err, lease.ErrLost) || time.Since(began) > lease.DefaultTTL/3 {
			t.Errorf("ended after %v with %v", time.Since(began), err)
		}
		if n := w.sink.sends(); n != 2 {
			t.Errorf("%d sends", n)
		}
	})
}

// TestYield: a drain that is asked to gives its lease back after the send.
func TestYield(t *testing.T) {
	s := &sink{hold: func(context.Context) error { time.Sleep(7 * time.Second); return nil }}
	inBubble(t, s, func(t *testing.T, w *world) {
		w.journal.push("threads/a", "1", "2", "3")
		w.registry.say(nil, true)
		w.agent.Wake("threads/a")
		if err := <-w.ended; err != nil {
			t.Fatal(err)
		}
		if n := s.sends(); n != 1 {
			t.Errorf("%d sends, want the one that was under way", n)
		}
	})
}

// TestJournalAway: a send whose record fails is recorded again, not sent again,
// also while draining; nor is it when the answer of the record was lost.
func TestJournalAway(t *testing.T) {
	inBubble(t, &sink{}, func(t *testing.T, w *world) {
		j := w.journal
		back := time.Now().Add(3 * time.Second)
		calls := 0
		j.fail = func(string) error {
			calls++
			if time.Now().Before(back) && calls > 1 {
				return errors.New("no answer")
			}
			return nil
		}
		j.push("threads/a", "1", "2")
		w.agent.Wake("threads/a")
		synctest.Wait()
		if err := w.end(); err != nil { // the end waits for the record
			t.Fatal(err)
		}
		if a, b := j.row("threads/a", 1), j.row("threads/a", 2); a.state != "sent" || b.state != "pending" || w.sink.sends() != 1 {
			t.Errorf("%+v, %+v, %d sends", a, b, w.sink.sends())
		}
		if calls > 60 {
			t.Errorf("%d calls in 3 s", calls)
		}
	})
	inBubble(t, &sink{}, func(t *testing.T, w *world) {
		lost := false
		w.journal.lose = func(call string) error {
			if call == "finish" && !lost {
				lost = true
				return errors.New("answer lost")
			}
			return nil
		}
		w.journal.push("threads/a", "1", "2")
		w.agent.Wake("threads/a")
		<-w.ended
		if got := w.sink.texts(); !slices.Equal(got, []string{"1", "2"}) {
			t.Errorf("sent %v", got)
		}
	})
}

// TestRefused: what the journal refuses ends the lane, and only that.
func TestRefused(t *testing.T) {
	inBubble(t, &sink{}, func(t *testing.T, w *world) {
		refuse := true
		w.journal.fail = func(string) error {
			if refuse {
				return fmt.Errorf("%w: thread is gone", ErrRefused)
			}
			return nil
		}
		if _, err := w.agent.Deliver(t.Context(), "threads/a", 0); !errors.Is(err, ErrRefused) {
			t.Errorf("%v", err)
		}
		w.journal.set(func() { refuse = false })
		w.journal.push("threads/b", "1")
		w.agent.Wake("threads/b")
		if err := <-w.ended; err != nil || w.sink.sends() != 1 {
			t.Errorf("%v, %d sends", err, w.sink.sends())
		}
	})
}

// TestManyMessagesShareThePlaces: a thread with many messages goes to the back
// of the line after a burst, and a wake-up during a run is not lost.
func TestManyMessagesShareThePlaces(t *testing.T) {
	s := new(sink)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, newMemory(), s)
		w.pool = NewPool(Config{Concurrency: 1}, w.pool.Deps)
		if err := w.end(); err != nil {
			t.Fatal(err)
		}
		w.start()
		for i := range 3 * burst {
			w.journal.push("threads/long", fmt.Sprint(i))
		}
		w.journal.push("threads/short", "short")
		pushed := false
		s.answer = func(_ int, m channel.Message) error {
			if m.Text == "95" && !pushed {
				pushed = true
				w.journal.push("threads/short", "late")
				w.agent.Wake("threads/short", "threads/long")
			}
			return nil
		}
		w.agent.Wake("threads/long", "threads/short")
		<-w.ended
		texts := s.texts()
		if at := slices.Index(texts, "short"); at != burst {
			t.Errorf("the short thread was served after %d messages", at)
		}
		if len(texts) != 3*burst+2 || !slices.Contains(texts, "late") {
			t.Errorf("%d sends", len(texts))
		}
		if begins, _, _ := w.journal.calls(); begins > 8 {
			t.Errorf("%d begins", begins)
		}
	})
}
