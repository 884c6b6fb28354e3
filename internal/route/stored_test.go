package route

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestStored(t *testing.T) {
	for _, c := range []struct {
		id       string
		routable bool
		want     []string
	}{
		{"threads/peers/prog-report", true, []string{"threads/peers/prog-report"}},
		{"threads/peers/prog-my-task", true, []string{"threads/peers/prog-my%2Dtask", "threads/peers/prog-my-task"}},
		{"threads/peers/prog-my%2Dtask", true, []string{"threads/peers/prog-my%2Dtask"}},
		{"threads/peers/tg--100", true, []string{"threads/peers/tg-%2D100", "threads/peers/tg--100"}},
		{"threads/peers/prog-Report 1", false, []string{"threads/peers/prog-%52eport%201"}},
		{"threads/peers/Prog-my-task", false, []string{"threads/peers/%50rog-my%2Dtask", "threads/peers/%50rog-my-task"}},
		{"threads/peers/prog-my%2dtask", false, []string{"threads/peers/prog-my%252dtask"}},
		{"threads/peers/%69nternal-warden", true, []string{"threads/peers/%69nternal-warden"}},
		{"threads/peers/none", true, nil},
		{"threads/peers/a/b-c", true, nil},
		{"threads/channels/x-y", true, []string{"threads/channels/x-y"}},
		{"threads/channels/X", false, []string{"threads/channels/%58"}},
		{"threads/main", true, nil},
		{"threads/tasks", true, nil},
		{"inbox", true, nil},
	} {
		if got := Stored(c.id); !slices.Equal(got, c.want) || Routable(c.id) != c.routable {
			t.Errorf("Stored(%q) = %q, Routable %v, want %q, %v", c.id, got, Routable(c.id), c.want, c.routable)
		}
	}
}

// Routing gives no id that is refused, and what it gives instead of another is one of its own.
func TestRoutable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tuple := Tuple{ChannelType: "x", ChannelID: anyID.Draw(t, "channel"), PeerID: anyID.Draw(t, "peer")}
		for _, m := range []Mode{PerPeer, PerChannel, PerAgent} {
			if id := Thread(m, tuple); !Routable(id) {
				t.Errorf("%s: %q of %+v is not routable", m, id, tuple)
			}
		}
		for _, id := range Stored(fmt.Sprintf("threads/peers/%s-%s", tuple.ChannelID, tuple.PeerID)) {
			if !Routable(id) {
				t.Errorf("%q instead of %+v is not routable", id, tuple)
			}
		}
	})
}
