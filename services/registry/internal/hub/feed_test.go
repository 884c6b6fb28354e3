package hub_test

import (
	"slices"
	"testing"

	"github.com/theclaw/agents/services/registry/internal/hub"
)

// Who follows gets what is given, looks where nobody could give it, and looks when it
// was too much; those of other topics and those who only wait are as ever.
func TestFollow(t *testing.T) {
	var f hub.Feed[string, int]
	f.Publish("a", []int{1})
	l, other := f.Follow("a"), f.Follow("b")
	defer other.Close()
	takes := func(l *hub.Follower[string, int], look bool, want ...int) {
		t.Helper()
		if news, more := l.Take(); more != look || !slices.Equal(news, want) {
			t.Errorf("took %v, look %v; want %v, %v", news, more, want, look)
		}
	}
	takes(l, true)
	takes(other, true)
	waits, done := f.Wait("a")
	defer done()
	f.Publish("a", []int{2, 3})
	f.Publish("a", []int{4})
	<-waits
	<-l.Woken()
	takes(l, false, 2, 3, 4)
	takes(l, false)
	takes(other, false)
	f.Publish("a", []int{5})
	f.Wake("a")
	takes(l, true, 5)
	f.WakeAll()
	takes(l, true)
	takes(other, true)
	for i := range 300 {
		f.Publish("a", []int{i})
	}
	if news, look := l.Take(); !look || len(news) > 256 {
		t.Errorf("%d are kept, look %v", len(news), look)
	}
	l.Close()
	f.Publish("a", []int{6})
	takes(l, false)
}
