package breaker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/theclaw/agents/internal/channel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	hook  = Key{"amy", "hook", "example.org 1"}
	other = Key{"bob", "hook", "example.org 2"}
	down  = &channel.Error{Class: channel.Unavailable, What: "down"}
	never = func() {}
)

// try asks for one permit.
func (s *Set) try(k Key) (*Permit, time.Duration) {
	p, wait := s.Acquire(k, new(int), never)
	return &p, wait
}

// allow answers a permit that there must be at once.
func allow(t *testing.T, s *Set, k Key) *Permit {
	t.Helper()
	if ahead := s.Wait(k); ahead != 0 {
		t.Errorf("Wait = %v", ahead)
	}
	p, wait := s.try(k)
	if !p.For(k) || wait != 0 {
		t.Errorf("Acquire = %+v, %v; want a permit", p, wait)
	}
	return p
}

func refuse(t *testing.T, s *Set, k Key, wait time.Duration) {
	t.Helper()
	if ahead := s.Wait(k); ahead != wait {
		t.Errorf("Wait = %v, want %v", ahead, wait)
	}
	if p, got := s.try(k); p.For(k) || got != wait {
		t.Errorf("Acquire = %+v, %v; want a wait of %v", p, got, wait)
	}
}

// open lets k fail until its breaker counts as open.
func open(t *testing.T, s *Set, k Key) {
	t.Helper()
	for i := range openAfter {
		allow(t, s, k).Record(down)
		if i < openAfter-1 {
			time.Sleep(firstPause << i)
		}
	}
}

// TestOutageOfAnHour is RELIABILITY 5, Retry: while the destination is down no attempt is
// spent, the probes come each 30 s, and everything goes out after.
func TestOutageOfAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Set
		up := time.Now().Add(time.Hour)
		var mu sync.Mutex
		sends, atTime, most, delivered, attempts := 0, 0, 0, 0, 0
		send := func() error { // a receiver that takes 100 ms to be down or up
			mu.Lock()
			sends++
			atTime++
			most = max(most, atTime)
			mu.Unlock()
			time.Sleep(100 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			atTime--
			if time.Now().Before(up) {
				return down
			}
			delivered++
			return nil
		}
		var lanes sync.WaitGroup
		lane := func() {
			for {
				p, wait := s.try(hook)
				if !p.For(hook) {
					time.Sleep(wait)
					continue
				}
				err := send()
				p.Record(err)
				if err == nil {
					return
				}
				if channel.AsError(err).Class == channel.Failed {
					mu.Lock()
					attempts++
					mu.Unlock()
				}
			}
		}
		for range 300 {
			lanes.Go(lane)
		}
		synctest.Wait()
		mu.Lock()
		if sends != atOnce {
			t.Errorf("%d sends under way", sends)
		}
		mu.Unlock()
		time.Sleep(time.Second)
		mu.Lock()
		most = 0 // from here on the breaker decides
		mu.Unlock()
		time.Sleep(time.Until(up))
		mu.Lock()
		if most != 1 || delivered != 0 {
			t.Errorf("while down: %d probes at once, %d delivered", most, delivered)
		}
		if probes := sends - atOnce; probes < 115 || probes > 123 {
			t.Errorf("%d probes in an hour, want one each 30 s", probes)
		}
		mu.Unlock()
		lanes.Wait()
		if late := time.Since(up); late > Interval+40*time.Second { // here, nobody is woken
			t.Errorf("the last message went out %v after the channel was up", late)
		}
		if delivered != 300 || attempts != 0 {
			t.Errorf("delivered %d of 300, attempts spent %d", delivered, attempts)
		}
		if len(s.Down()) != 0 || !s.AllClosed("amy") || len(s.entries) != 0 {
			t.Errorf("still remembered: %v", s.Down())
		}
	})
}

// F2: the breaker of a destination opens after three failures in a row, and no other
// destination is held back: not that of another agent under the same channel name and
// host, and not another one of the same agent.
func TestOneDestinationAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Set
		mine := Key{"amy", "hook", "example.org 3"}
		for _, pause := range []time.Duration{time.Second, 2 * time.Second, Interval, Interval} {
			allow(t, &s, hook).Record(down)
			refuse(t, &s, hook, pause)
			if isOpen := len(s.Down()) == 1; isOpen != (pause == Interval) || s.AllClosed("amy") || !s.AllClosed("bob") {
				t.Errorf("after a pause of %v: open %v", pause, isOpen)
			}
			allow(t, &s, other).Record(nil)
			allow(t, &s, mine).Record(nil)
			time.Sleep(pause)
		}
		allow(t, &s, hook).Record(nil)
		allow(t, &s, hook).Record(down) // counted from the start
		refuse(t, &s, hook, time.Second)
	})
}

// F2: a Retry-After of one destination holds up that destination alone.
func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct{ wish, want time.Duration }{
			{2 * time.Second, 2 * time.Second},
			{time.Millisecond, time.Second},
			{10 * time.Minute, 10 * time.Minute},
			{24 * time.Hour, time.Hour},
		} {
			var s Set
			allow(t, &s, hook).Record(&channel.Error{Class: channel.Unavailable, RetryAfter: tc.wish})
			refuse(t, &s, hook, tc.want)
			if len(s.Down()) != 1 {
				t.Error("what the receiver asked for does not count as open")
			}
			allow(t, &s, other).Record(nil)
			time.Sleep(tc.want)
			allow(t, &s, hook).Record(nil)
		}
		var s Set
		late, later := allow(t, &s, hook), allow(t, &s, hook)
		allow(t, &s, hook).Record(down)
		late.Record(&channel.Error{Class: channel.Unavailable, RetryAfter: 5 * time.Minute})
		refuse(t, &s, hook, 5*time.Minute)
		later.Record(&channel.Error{Class: channel.Unavailable, RetryAfter: 2 * time.Minute})
		refuse(t, &s, hook, 5*time.Minute)
	})
}

func TestProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Set
		before := []*Permit{allow(t, &s, hook), allow(t, &s, hook)}
		open(t, &s, hook)
		refuse(t, &s, hook, Interval)
		before[0].Record(nil) // began before
		refuse(t, &s, hook, Interval)
		time.Sleep(10 * time.Second)
		before[1].Record(down) // so did this one: it does not lengthen the wait
		refuse(t, &s, hook, 20*time.Second)
		time.Sleep(20 * time.Second)
		if d := s.Down(); len(d) != 1 || d[0] != (Status{Key: hook}) || s.AllClosed("amy") {
			t.Errorf("before the probe: %+v", d)
		}
		p := allow(t, &s, hook)
		refuse(t, &s, hook, probeWait) // one probe at a time
		if d := s.Down(); len(d) != 1 || d[0] != (Status{Key: hook, Wait: probeWait, Probing: true}) {
			t.Errorf("during the probe: %+v", d)
		}
		p.Record(down)
		refuse(t, &s, hook, Interval)

		time.Sleep(Interval)
		allow(t, &s, hook).Record(&channel.Error{Class: channel.Failed}) // it answers, if badly
		allow(t, &s, hook)
		allow(t, &s, hook)
	})
}

// TestProbeWithoutVerdict: a probe that never met the channel gives its permit
// back, and so does one whose caller is gone.
func TestProbeWithoutVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, end := range []error{
			context.Canceled,
			&channel.Error{Class: channel.Interrupted},
			channel.Reject(channel.ReasonReplyContext, "no peer", ""),
		} {
			var s Set
			open(t, &s, hook)
			time.Sleep(Interval)
			allow(t, &s, hook).Record(end)
			refuse(t, &s, hook, probeWait)
			time.Sleep(probeWait)
			allow(t, &s, hook).Record(nil)
			allow(t, &s, hook).Release()
		}
		var s Set
		open(t, &s, hook)
		time.Sleep(Interval)
		allow(t, &s, hook)
		time.Sleep(probeLimit - time.Second)
		refuse(t, &s, hook, probeWait)
		time.Sleep(time.Second)
		allow(t, &s, hook)
	})
}

// F2: while it is closed, a destination that hangs gets eight messages and no more; those
// who wait are woken in their order, and not those of other destinations.
func TestAtOnce(t *testing.T) {
	var s Set
	var out []*Permit
	for range atOnce {
		out = append(out, allow(t, &s, hook))
	}
	var woken []int
	who := []int{0, 1, 2}
	for i := range who {
		for range 2 { // asked again before its turn: it is woken once
			if p, wait := s.Acquire(hook, &who[i], func() { woken = append(woken, i) }); p.For(hook) || wait != probeWait {
				t.Fatalf("%+v, %v", p, wait)
			}
		}
	}
	if s.Wait(hook) != 0 {
		t.Error("what is only busy counts as down")
	}
	allow(t, &s, other).Record(nil)
	out[0].Record(nil)
	if fmt.Sprint(woken) != "[0]" {
		t.Errorf("woken %v", woken)
	}
	out = append(out, allow(t, &s, hook))
	out[1].Record(&channel.Error{Class: channel.Failed})
	if fmt.Sprint(woken) != "[0 1]" {
		t.Errorf("woken %v", woken)
	}
	out = append(out, allow(t, &s, hook))
	out[2].Record(down)
	for _, p := range out[3:] {
		p.Record(nil)
	}
	if fmt.Sprint(woken) != "[0 1]" || len(s.entries[hook].waiting) != 0 {
		t.Errorf("woken %v by a destination that is down", woken)
	}
}

// TestBounded: a destination that is down and no longer asked for does not fill the memory.
func TestBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Set
		busy := allow(t, &s, other)
		for i := range maxEntries + 100 {
			allow(t, &s, Key{"amy", "hook", fmt.Sprint(i)}).Record(down)
			time.Sleep(time.Millisecond)
		}
		if len(s.entries) != maxEntries || s.down["amy"] != maxEntries-1 {
			t.Errorf("%d entries, %d down", len(s.entries), s.down["amy"])
		}
		if allow(t, &s, Key{"amy", "hook", "0"}).Release(); s.Wait(Key{"amy", "hook", fmt.Sprint(maxEntries + 99)}) == 0 {
			t.Error("the one that failed last was forgotten first")
		}
		busy.Record(nil)
		time.Sleep(2 * forgetAfter)
		if d := s.Down(); len(d) != 0 || len(s.entries) != 0 || !s.AllClosed("amy") {
			t.Errorf("%d remembered", len(s.entries))
		}
	})
}

func TestClosedStaysClosed(t *testing.T) {
	var s Set
	for _, err := range []error{nil, errors.New("boom"), &channel.Error{Class: channel.Failed}, channel.Reject("", "no", "")} {
		allow(t, &s, hook).Record(err)
		allow(t, &s, hook).Release()
	}
}

// toy is a channel of an agent's own settings.
type toy struct{ channel.Console }

func (toy) Name() string                       { return "hook" }
func (toy) Destination(channel.Message) string { return "example.org 1" }

func TestKeys(t *testing.T) {
	m := channel.Message{AgentID: "amy"}
	if got := KeyOf(channel.Console{}, m); got != (Key{Channel: "console"}) || got.String() != "console" {
		t.Errorf("%+v", got) // the same for all agents
	}
	if got := KeyOf(toy{}, m); got != hook || got.String() != "amy/hook example.org 1" {
		t.Errorf("%+v", got)
	}
}
