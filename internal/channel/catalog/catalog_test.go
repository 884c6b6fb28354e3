package catalog

import (
	"context"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/channel"
)

// TestFor is row S0-44 at the level of real channels.
func TestFor(t *testing.T) {
	c, err := Open(channel.Settings{
		Outbound: []channel.Rule{{ThreadPattern: "peers/vip-*", Via: "hook"}, {ThreadPattern: "peers/**", Via: "xgw"}},
		Channels: map[string]channel.Definition{"hook": {Type: "webhook", URL: "https://example.org/in", Secret: "env:HOOK"}},
	}, channel.Deps{Resolve: func(context.Context, string) (string, error) { return "x", nil }})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ thread, source, want string }{
		{"threads/peers/vip-1", "", "hook"},
		{"threads/peers/tg-1", "", "xgw"},
		{"threads/peers/internal-b", "internal:dm:default:b", "internal"},
		{"threads/peers/cli-cli", "external:console:cli:dm:cli:cli", "console"},
	} {
		ch, ok := c.For(tc.thread, tc.source, nil)
		if !ok || ch.Name() != tc.want {
			t.Errorf("%s: %v %v", tc.thread, ch, ok)
		}
	}
	if ch, ok := c.For("threads/channels/tg", "", nil); ok || ch != nil {
		t.Errorf("%v, want no delivery", ch)
	}
}

func TestOpenRefuses(t *testing.T) {
	_, err := Open(channel.Settings{Outbound: []channel.Rule{{ThreadPattern: "**", Via: "pigeon"}}}, channel.Deps{})
	if err == nil || !strings.Contains(err.Error(), "pigeon") {
		t.Error(err)
	}
	_, err = Open(channel.Settings{Channels: map[string]channel.Definition{
		"a": {Type: "webhook", URL: "http://example.org"}, "b": {Type: "webhook", URL: "nothing"}, "c": {Type: "smtp"},
	}}, channel.Deps{})
	if err == nil || !strings.Contains(err.Error(), "channels.a:") || !strings.Contains(err.Error(), "channels.b:") || !strings.Contains(err.Error(), `"smtp" is not one of webhook`) {
		t.Error(err)
	}
}

// A3: what a configuration may hold is what a deliverer can open. An entry that passed one
// and not the other held back every reply of its agent for a day, without a word.
func TestOpenRefusesWhatCheckRefuses(t *testing.T) {
	good := channel.Definition{Type: "webhook", URL: "https://example.org/in"}
	for _, tc := range []struct {
		name string
		d    channel.Definition
		ok   bool
	}{
		{"hook", good, true},
		{"hook", channel.Definition{Type: "webhook", URL: "http://127.0.0.1/", AllowPrivate: true, Secret: "file:/x"}, true},
		{"xgw", good, false},
		{"internal", good, false},
		{"console", good, false},
		{"one", channel.Definition{Type: "xgw"}, false},
		{"one", channel.Definition{Type: "internal"}, false},
		{"one", channel.Definition{Type: "console"}, false},
		{"one", channel.Definition{}, false},
		{"one", channel.Definition{Type: "smtp"}, false},
		{"one", channel.Definition{Type: "webhook"}, false},
		{"one", channel.Definition{Type: "webhook", URL: "https://:443"}, false},
		{"one", channel.Definition{Type: "webhook", URL: "https://a:b@example.org"}, false},
		{"one", channel.Definition{Type: "webhook", URL: "https://example.org", Secret: "hunter2"}, false},
	} {
		_, problem := Check(tc.name, tc.d)
		_, err := Open(channel.Settings{Channels: map[string]channel.Definition{tc.name: tc.d}}, channel.Deps{
			Resolve: func(context.Context, string) (string, error) { return "x", nil },
		})
		if (problem == "") != tc.ok || (err == nil) != tc.ok {
			t.Errorf("%s %+v: check says %q, open %v", tc.name, tc.d, problem, err)
		}
	}
}
