package telegram

import (
	"net"
	"net/url"

	"github.com/theclaw/agents/internal/channel"
)

// publicAPI is the address of the Bot API that Telegram runs.
const publicAPI = "https://api.telegram.org"

// Type is Telegram as a type of channel.
var Type = channel.Type{
	Name:    "telegram",
	Kinds:   []string{kindDM, kindGroup, kindChannel},
	MaxText: maxUnits,
	Keys:    []string{"token", "api", "reply_to"},
	Check:   func(d channel.Definition) (attribute, problem string) { return d.CheckAccount(tokenWhat, publicAPI) },
	// Homes of earlier builds have accounts without a token. They are kept, and do not start.
	ReceivesOnly: func(d channel.Definition) bool { return d.Token == "" },
	Open: func(name string, d channel.Definition, deps channel.Deps) (channel.Channel, error) {
		return &sender{newClient(name, d, deps.Resolve, sending), d}, nil
	},
	Receive: func(name string, d channel.Definition, deps channel.Deps) (channel.Receiver, error) {
		return &receiver{name: name, definition: d, resolve: deps.Resolve}, nil
	},
}

// Kinds of conversations.
const (
	kindDM      = channel.KindDM
	kindGroup   = channel.KindGroup
	kindChannel = channel.KindChannel
)

// tokenWhat names the token to people.
const tokenWhat = "the token that @BotFather gave the bot"

// hostOf is the part of an address that may be shown.
func hostOf(api string) string {
	u, err := url.Parse(api)
	if err != nil {
		return "the Bot API"
	}
	if host, port, err := net.SplitHostPort(u.Host); err == nil && port == "" {
		return host
	}
	return u.Host
}
