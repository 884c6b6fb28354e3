package breaker

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/theclaw/agents/internal/channel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	hook = Key{"hook", "example.org"}
	down = &channel.Error{Class: channel.Unavailable, What: "down"}
)

func wantAllow(t *testing.T, s *Set, ok bool, wait time.Duration) {
	t.Helper()
	if ahead := s.Wait(hook); ahead != wait {
		t.Errorf("Wait = %v, want %v", ahead, wait)
	}
	if gotOK, gotWait := s.Allow(hook); gotOK != ok || gotWait != wait {
		t.Errorf("Allow = %v, %v; want %v, %v", gotOK, gotWait, ok, wait)
	}
}

// TestOutageOfAnHour is RELIABILITY 5, Retry: while the channel is down no
// attempt is spent, the probes come each 30 s, and everything goes out after.
func TestOutageOfAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Set
		up := time.Now().Add(time.Hour)
		var mu sync.Mutex
		sends, atOnce, most, delivered, attempts := 0, 0, 0, 0, 0
		send := func() error { // a receiver that takes 100 ms to be down or up
			mu.Lock()
			sends++
			atOnce++
			most = max(most, atOnce)
			mu.Unlock()
			time.Sleep(100 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			atOnce--
			if time.Now().Before(up) {
				return down
			}
			delivered++
			return nil
		}
		var lanes sync.WaitGroup
		lane := func() {
			for {
				ok, wait := s.Allow(hook)
				if !ok {
					time.Sleep(wait)
					continue
				}
				err := send()
				s.Record(hook, err)
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
		for range 20 {
			lanes.Go(lane)
		}
		synctest.Wait()
		mu.Lock()
		if sends != 20 {
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
		if probes := sends - 20; probes < 115 || probes > 121 {
			t.Errorf("%d probes in an hour, want one each 30 s", probes)
		}
		mu.Unlock()
		lanes.Wait()
		if late := time.Since(up); late > Interval+5*time.Second {
			t.Errorf("the last message went out %v after the channel was up", late)
		}
		if delivered != 20 || attempts != 0 {
			t.Errorf("delivered %d of 20, attempts spent %d", delivered, attempts)
		}
		if len(s.Down()) != 0 || !s.AllClosed() {
			t.Errorf("still remembered: %v", s.Down())
		}
	})
}

func TestProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Set
		wantAllow(t, &s, true, 0)
		s.Record(hook, down)
		wantAllow(t, &s, false, Interval)
		if ok, _ := s.Allow(Key{"hook", "example.com"}); !ok {
			t.Error("another host is shut too")
		}
		s.Record(hook, nil) // began before the breaker opened
		wantAllow(t, &s, false, Interval)

		time.Sleep(10 * time.Second)
		s.Record(hook, down) // so did this one: it does not lengthen the wait
		wantAllow(t, &s, false, 20*time.Second)
		time.Sleep(20 * time.Second)
		if d := s.Down(); len(d) != 1 || d[0] != (Status{Key: hook}) || s.AllClosed() {
			t.Errorf("before the probe: %+v", d)
		}
		wantAllow(t, &s, true, 0)
		wantAllow(t, &s, false, probeWait) // one probe at a time
		if d := s.Down(); len(d) != 1 || d[0] != (Status{Key: hook, Wait: probeWait, Probing: true}) {
			t.Errorf("during the probe: %+v", d)
		}
		s.Record(hook, down)
		wantAllow(t, &s, false, Interval)

		time.Sleep(Interval)
		wantAllow(t, &s, true, 0)
		s.Record(hook, &channel.Error{Class: channel.Failed}) // it answers, if badly
		wantAllow(t, &s, true, 0)
		wantAllow(t, &s, true, 0)
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
			s.Record(hook, down)
			time.Sleep(Interval)
			wantAllow(t, &s, true, 0)
			s.Record(hook, end)
			wantAllow(t, &s, false, probeWait)
			time.Sleep(probeWait)
			wantAllow(t, &s, true, 0)
			s.Record(hook, nil)
			wantAllow(t, &s, true, 0)
		}
		var s Set
		s.Record(hook, down)
		time.Sleep(Interval)
		wantAllow(t, &s, true, 0)
		time.Sleep(probeLimit - time.Second)
		wantAllow(t, &s, false, probeWait)
		time.Sleep(time.Second)
		wantAllow(t, &s, true, 0)
	})
}

func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct{ wish, want time.Duration }{
			{2 * time.Second, 2 * time.Second},
			{time.Millisecond, time.Second},
			{10 * time.Minute, 10 * time.Minute},
			{24 * time.Hour, time.Hour},
		} {
			var s Set
			s.Record(hook, &channel.Error{Class: channel.Unavailable, RetryAfter: tc.wish})
			wantAllow(t, &s, false, tc.want)
			time.Sleep(tc.want)
			wantAllow(t, &s, true, 0)
		}
		var s Set
		s.Record(hook, down)
		s.Record(hook, &channel.Error{Class: channel.Unavailable, RetryAfter: 5 * time.Minute})
		wantAllow(t, &s, false, 5*time.Minute)
	})
}

func TestClosedStaysClosed(t *testing.T) {
	var s Set
	for _, err := range []error{nil, errors.New("boom"), &channel.Error{Class: channel.Failed}, channel.Reject("", "no", "")} {
		s.Record(hook, err)
		wantAllow(t, &s, true, 0)
	}
	m := channel.Message{}
	if got := KeyOf(channel.Console{}, m); got != (Key{Channel: "console"}) {
		t.Errorf("%+v", got)
	}
}
