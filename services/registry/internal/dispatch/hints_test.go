package dispatch_test

import (
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/theclaw/agents/services/registry/internal/dispatch"
)

// looks has hints taken: of agents that may be free, and of the holder's, which end in !.
func looks(t *testing.T, l *dispatch.Listener, all bool, want ...string) {
	t.Helper()
	news, some := l.Take()
	got := news.Free
	for _, a := range news.Mine {
		got = append(got, a+"!")
	}
	slices.Sort(got)
	if some != (all || len(want) > 0) || news.All != all || !slices.Equal(got, want) {
		t.Errorf("told of %v (%v), want %v, all %v", news, some, want, all)
	}
}

// A holder looks at everything at first, and then at what it is told, between its
// questions as well; one whose room has changed, or who asks again, or has not done
// so for long, looks at everything.
func TestHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h dispatch.Hints
		ask := dispatch.Ask{Holder: "one", ID: "q1", MaxNew: 8}
		l := h.Listen(ask)
		looks(t, l, true)
		l.Close()
		h.Mark("a")
		if !h.MarkFor("one", "b") || h.MarkFor("two", "c") {
			t.Error("who was just answered is here, and who never asked is not")
		}
		ask.ID = "q2"
		l = h.Listen(ask)
		<-l.Wake()
		looks(t, l, false, "a", "b!")
		h.MarkFor("one", "a")
		h.Mark("a", "b")
		h.MarkFor("one", "b")
		looks(t, l, false, "a", "b")
		looks(t, l, false)
		l.Close()
		l = h.Listen(ask) // the answer was lost
		looks(t, l, true)
		l.Close()
		for i := range 3 { // answered at once each time, and a hint was lost
			time.Sleep(time.Second)
			ask.ID = "busy" + strconv.Itoa(i)
			l = h.Listen(ask)
			looks(t, l, i == 2)
			l.Close()
		}
		ask.ID, ask.MaxNew = "q3", 7
		l = h.Listen(ask)
		looks(t, l, true)
		beside := h.Listen(dispatch.Ask{Holder: "one", ID: "q4", MaxNew: 7}) // q3 hangs
		looks(t, beside, true)
		h.MarkFor("one", "d")
		looks(t, l, false, "d!")
		looks(t, beside, false, "d!")
		l.Close()
		beside.Close()
		time.Sleep(time.Second)
		if h.MarkFor("one", "e") {
			t.Error("who has not asked again for long is not here")
		}
		time.Sleep(time.Minute)
		ask = dispatch.Ask{Holder: "one", ID: "q5", MaxNew: 7}
		l = h.Listen(ask)
		looks(t, l, true)
		for range 2000 {
			h.Mark(time.Now().String())
			time.Sleep(time.Nanosecond)
		}
		looks(t, l, true)
		l.Close()
	})
}
