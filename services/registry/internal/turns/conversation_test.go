package turns

import (
	"testing"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/route"
)

// S4-59: the account and the kind of a conversation, by which its tools are chosen.
func TestConversation(t *testing.T) {
	accounts := []layer.Account{{Name: "tg", Definition: channel.Definition{Type: "telegram"}}, {Name: "tg2", Definition: channel.Definition{Type: "telegram"}, Default: true}, {Name: "dc", Definition: channel.Definition{Type: "discord"}}}
	from := func(account, kind string) route.Tuple {
		return route.Tuple{ChannelType: "telegram", ChannelID: account, PeerID: "7", SessionType: kind}
	}
	console := route.Tuple{ChannelType: "console", ChannelID: "cli", PeerID: "cli", SessionType: "dm"}
	for _, c := range []struct {
		key           string
		tuple         route.Tuple
		account, kind string
	}{
		{"agent:a:telegram:group:-1", from("tg", "group"), "tg", "group"},
		{"agent:a:telegram:channel:-1", from("tg", "group"), "tg", "channel"},
		{"agent:a:telegram:group:-1", route.Tuple{}, "tg2", "group"},
		{"agent:a:telegram:group:-1", console, "tg2", "group"},
		{"agent:a:discord:group:-1", route.Tuple{}, "dc", "group"},
		{"agent:a:slack:group:-1", route.Tuple{}, "", "group"},
		{"agent:a:telegram:tg:dm:7", route.Tuple{}, "tg", "dm"},
		{"agent:a:telegram:tg:dm:7", from("tg", "group"), "tg", "group"},
		{"agent:a:main", from("tg2", "dm"), "tg2", "dm"},
		{"agent:a:main", from("tg2", "group"), "tg2", "group"},
		{"agent:a:main", console, "", ""},
		{"agent:a:main", from("other", "group"), "", ""},
		{"", route.Tuple{Internal: true, ChannelType: "internal", ChannelID: "internal", PeerID: "b"}, "", ""},
		{"", from("dc", "dm"), "dc", "dm"},
	} {
		want := config.Conversation{Key: c.key, Thread: "t", Account: c.account, Kind: c.kind}
		if got := conversation(accounts, c.key, "t", c.tuple); got != want {
			t.Errorf("%q from %+v: %+v, want %+v", c.key, c.tuple, got, want)
		}
	}
}
