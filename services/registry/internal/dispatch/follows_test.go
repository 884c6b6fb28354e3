package dispatch_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/theclaw/agents/services/registry/internal/dispatch"
)

// Who follows reads at first, and then when something came, between its questions as
// well; one that was not answered, or belongs to another holder, is not here.
func TestFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f dispatch.Follows
		has := func(l *dispatch.Follower, want bool) {
			t.Helper()
			if got := l.Take(); got != want {
				t.Errorf("news %v, want %v", got, want)
			}
		}
		here := func(holder string, want bool) {
			t.Helper()
			if got := f.Mark("a", holder); got != want {
				t.Errorf("%s is here: %v, want %v", holder, got, want)
			}
		}
		here("one", false)
		l := f.Follow("a", "one", "q1")
		has(l, true)
		has(l, false)
		here("two", false)
		has(l, false)
		here("one", true)
		<-l.Wake()
		has(l, true)
		l.Close(true)
		here("one", true) // just answered
		l = f.Follow("a", "one", "q2")
		has(l, true)
		has(l, false)
		l.Close(true)
		l = f.Follow("a", "one", "q3") // nothing came
		has(l, false)
		l.Close(true)
		l = f.Follow("a", "one", "q3") // the answer was lost
		has(l, true)
		l.Close(true)
		time.Sleep(time.Second)
		here("one", false) // it may be gone
		l = f.Follow("a", "one", "q4")
		has(l, true) // and was told of all the same
		l.Close(false)
		here("one", false)
		l = f.Follow("a", "one", "q5")
		has(l, true)

		next := f.Follow("a", "two", "q1") // while the one before still waits
		has(next, true)
		here("one", false)
		here("two", true)
		l.Close(false) // takes nothing from its successor
		here("two", true)
		has(next, true)
		next.Close(true)
		time.Sleep(time.Minute)
		has(f.Follow("b", "two", "q1"), true)
		has(f.Follow("a", "two", "q2"), true) // too long ago
	})
}
