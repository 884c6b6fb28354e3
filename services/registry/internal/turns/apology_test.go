package turns

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/thread"
)

// A9: by default a person in a direct chat hears of a failure, and nobody else; true and
// false are for all.
func TestNotifiesPeer(t *testing.T) {
	for _, c := range []struct {
		source string
		auto   bool
	}{
		{"external:telegram:main:dm:bob:bob", true},
		{"external:telegram:main:dm:bob", true}, // as a gateway may write it
		{"external:telegram:main:group:g1:bob", false},
		{"external:slack:main:channel:c1:bob", false},
		{"external:telegram:main:bob", false},
		{"external:webhook:hook:dm:bob:bob", false},
		{"external:console:cli:dm:cli:cli", false},
		{"external:tui:main:dm:bob:bob", false},
		{"internal:dm:default:telegram", false},
	} {
		tuple, _, err := route.Of(c.source, `{"text":"hi"}`)
		if err != nil {
			t.Fatal(err)
		}
		for set, want := range map[config.Switch]bool{config.Auto: c.auto, config.On: true, config.Off: false} {
			if got := notifiesPeer(set, tuple); got != want {
				t.Errorf("%s with %s: %v", c.source, set, got)
			}
		}
	}
	if config.Default().OnError.NotifyPeer != config.Auto {
		t.Error("the default is not auto")
	}
}

// A9: an apology counts for the peer that it went to, for apologyPause.
func TestHasApology(t *testing.T) {
	now := time.Now()
	said := func(text, rc string, ago time.Duration) []thread.Event {
		return []thread.Event{{CreatedAt: thread.Stamp(now.Add(-ago)), Content: replyContent(text, json.RawMessage(rc), nil)}}
	}
	const bob, ann = `{"channel_id":"c","peer_id":"bob","session_id":"s"}`, `{"channel_id":"c","peer_id":"ann","session_id":"s"}`
	for _, c := range []struct {
		name   string
		events []thread.Event
		want   bool
	}{
		{"none", nil, false},
		{"just now", said(thread.Apology, bob, time.Second), true},
		{"of another message", said(thread.Apology, `{"peer_id":"bob","session_id":"s","message_id":"9"}`, time.Minute), true},
		{"before the clock was set back", said(thread.Apology, bob, -time.Hour), false},
		{"long ago", said(thread.Apology, bob, apologyPause+time.Second), false},
		{"to another", said(thread.Apology, ann, time.Second), false},
		{"in another session", said(thread.Apology, `{"peer_id":"bob","session_id":"t"}`, time.Second), false},
		{"an answer", said("fine", bob, time.Second), false},
		{"no content of ours", []thread.Event{{CreatedAt: thread.Stamp(now), Content: thread.Apology}}, false},
	} {
		if got := hasApology(c.events, json.RawMessage(bob), now.Add(-apologyPause)); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
