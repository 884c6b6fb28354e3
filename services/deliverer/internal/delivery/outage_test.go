package delivery

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/services/deliverer/internal/breaker"
)

// TestOutage is RELIABILITY 5: an hour without the channel spends no attempt,
// is probed each 30 s over all lanes, and everything goes out in order after.
func TestOutage(t *testing.T) {
	s := new(sink)
	inBubble(t, s, func(t *testing.T, w *world) {
		up := time.Now().Add(time.Hour)
		s.answer = func(int, channel.Message) error {
			if time.Now().Before(up) {
				return &channel.Error{Class: channel.Unavailable, What: "no route"}
			}
			return nil
		}
		var threads []string
		for i := range 10 {
			id := fmt.Sprintf("threads/%d", i)
			threads = append(threads, id)
			w.journal.push(id, id+" 1", id+" 2", id+" 3")
		}
		w.agent.Wake(threads...)
		time.Sleep(59 * time.Minute)
		synctest.Wait()
		if n := s.sends(); n < 110 || n > 130 {
			t.Errorf("%d sends in an hour, want one probe each 30 s and the first ones", n)
		}
		for _, id := range threads {
			if r := w.journal.row(id, 1); r.attempts != 0 || r.state != "pending" {
				t.Errorf("%s: %+v", id, r)
			}
		}
		// Each lane looks at the journal about each 30 s, not more.
		if begins, peeks, _ := w.journal.calls(); peeks > 10*130 || begins > 250 {
			t.Errorf("%d peeks, %d begins", peeks, begins)
		}
		_, looks, _ := w.journal.calls()
		for range 100 { // new messages do not make a lane ask while it knows
			w.agent.Wake(threads...)
			synctest.Wait()
		}
		if _, peeks, _ := w.journal.calls(); peeks != looks {
			t.Errorf("%d looks at the journal for new messages behind a shut channel", peeks-looks)
		}
		before := s.sends()
		if err := <-w.ended; err != nil {
			t.Fatal(err)
		}
		perThread := map[string][]string{}
		late := s.got[before:]
		for i, m := range late {
			if s.at[before+i].Before(up) {
				continue
			}
			perThread[m.ThreadID] = append(perThread[m.ThreadID], strings.TrimPrefix(m.Text, m.ThreadID+" "))
			if m.Attempt != 1 {
				t.Errorf("attempt %d of %s", m.Attempt, m.Text)
			}
		}
		for _, id := range threads {
			if !slices.Equal(perThread[id], []string{"1", "2", "3"}) {
				t.Errorf("%s: %v", id, perThread[id])
			}
		}
		if last := s.at[len(s.at)-1].Sub(up); last > breaker.Interval+5*time.Second {
			t.Errorf("the last one went out %v after the channel was up", last)
		}
	})
}

// TestPutBack: an event that was begun just when its channel went down is put
// back unsent, and no attempt of it is spent.
func TestPutBack(t *testing.T) {
	s := new(sink)
	s.answer = func(n int, m channel.Message) error {
		if m.ThreadID == "threads/b" && n < 3 {
			return &channel.Error{Class: channel.Unavailable, RetryAfter: breaker.Interval, What: "down"}
		}
		time.Sleep(time.Second)
		return nil
	}
	inBubble(t, s, func(t *testing.T, w *world) {
		w.journal.push("threads/a", "1", "2")
		w.agent.Wake("threads/a")
		synctest.Wait() // a/1 is on its way
		w.journal.push("threads/b", "1")
		w.agent.Wake("threads/b")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if r := w.journal.row("threads/a", 2); r.state != "pending" || r.attempts != 0 || s.sends() != 2 {
			t.Errorf("%+v after %d sends", r, s.sends())
		}
		<-w.ended
		if m := s.got[len(s.got)-1]; m.Attempt != 1 || m.MaybeDuplicate {
			t.Errorf("%+v", m)
		}
		for _, id := range []string{"threads/a", "threads/b"} {
			if r := w.journal.row(id, int64(len(w.journal.rows[id]))); r.state != "sent" {
				t.Errorf("%s: %+v", id, r)
			}
		}
	})
}

// TestOldWhileDown: deliver.max_age ends a message although its channel is shut.
func TestOldWhileDown(t *testing.T) {
	s := &sink{answer: func(int, channel.Message) error { return &channel.Error{Class: channel.Unavailable, What: "down"} }}
	inBubble(t, s, func(t *testing.T, w *world) {
		w.journal.push("threads/a", "1")
		w.agent.Wake("threads/a")
		time.Sleep(maxAge + time.Minute)
		synctest.Wait()
		if r := w.journal.row("threads/a", 1); r.state != "dead" {
			t.Errorf("%+v", r)
		}
		if err := w.end(); err != nil {
			t.Error(err)
		}
	})
}

// TestWrongConfiguration: messages wait for the owner's correction.
func TestWrongConfiguration(t *testing.T) {
	inBubble(t, &sink{}, func(t *testing.T, w *world) {
		w.journal.settings = channel.Settings{Outbound: []channel.Rule{{ThreadPattern: "**", Via: "nowhere"}}}
		w.journal.push("threads/a", "1")
		w.agent.Wake("threads/a")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if r := w.journal.row("threads/a", 1); r.attempts != 0 || !strings.Contains(r.error, "nowhere") {
			t.Errorf("%+v", r)
		}
		if begins, _, _ := w.journal.calls(); begins > 25 {
			t.Errorf("%d begins in 10 minutes", begins)
		}
		w.journal.set(func() { w.journal.settings = channel.Settings{} })
		<-w.ended
		if r := w.journal.row("threads/a", 1); r.state != "sent" {
			t.Errorf("%+v", r)
		}
	})
}
