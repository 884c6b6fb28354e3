package slack

import (
	"github.com/theclaw/agents/internal/channel"
)

// publicAPI is the address of the methods that Slack serves.
const publicAPI = "https://slack.com/api"

// Type is Slack as a type of channel.
var Type = channel.Type{
	Name:       "slack",
	Kinds:      []string{kindDM, kindGroup, kindChannel},
	KeepsSlash: true,
	MaxText:    maxText,
	Keys:       []string{"token", "app_token", "api"},
	Check:      func(d channel.Definition) (attribute, problem string) { return d.CheckAccount(tokenWhat, publicAPI) },
	// Homes of earlier builds have accounts without a token. They are kept, and do not start.
	ReceivesOnly: func(d channel.Definition) bool { return d.Token == "" },
	Open: func(name string, d channel.Definition, deps channel.Deps) (channel.Channel, error) {
		return &sender{client: newClient(name, d, deps.Resolve, sending)}, nil
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
const tokenWhat = "the Bot User OAuth Token of the app, xoxb-..."
