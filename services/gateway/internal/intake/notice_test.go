package intake

import (
	"fmt"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/fault"
)

// A conversation gets one notice of a reason in 10 minutes, whatever other notices it got, and what is remembered for that is
// bounded: what is older goes first.
func TestRare(t *testing.T) {
	n := notices{sent: map[refusal]time.Time{}}
	start := time.Now()
	for i, c := range []struct {
		session, reason string
		after           time.Duration
		want            bool
	}{
		{"a", fault.CommandForbidden, 0, true},
		{"a", fault.CommandForbidden, time.Minute, false},
		{"a", fault.QueueFull, time.Minute, true},
		{"a", fault.InboxFull, time.Minute, true},
		{"b", fault.QueueFull, time.Minute, true},
		{"a", fault.QueueFull, noticeGap, false},
		{"a", fault.CommandForbidden, noticeGap, true},
		{"a", fault.QueueFull, noticeGap + time.Minute, true},
	} {
		if got := n.rare(refusal{c.session, c.reason}, start.Add(c.after)); got != c.want {
			t.Errorf("%d: %s in %s after %v: %v", i, c.reason, c.session, c.after, got)
		}
	}
	later := start.Add(time.Hour)
	for i := range maxNoticed {
		n.rare(refusal{fmt.Sprint("s", i), fault.QueueFull}, later)
	}
	if len(n.sent) != maxNoticed || n.rare(refusal{"s0", fault.QueueFull}, later.Add(time.Minute)) {
		t.Errorf("%d are remembered, and what is older went last", len(n.sent))
	}
	for i := range 10 * maxNoticed {
		if n.rare(refusal{fmt.Sprint("t", i), fault.QueueFull}, later); len(n.sent) > maxNoticed {
			t.Fatalf("%d are remembered", len(n.sent))
		}
	}
}
