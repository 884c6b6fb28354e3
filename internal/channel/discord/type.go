package discord

import (
	"net/url"
	"strings"

	"github.com/theclaw/agents/internal/channel"
)

const (
	// publicAPI is the address of Discord.
	publicAPI = "https://discord.com"
	// version is the path of the API.
	version = "/api/v10"
)

// Kinds of conversations.
const (
	kindDM      = channel.KindDM
	kindGroup   = channel.KindGroup
	kindChannel = channel.KindChannel
)

// tokenWhat names the token to people.
const tokenWhat = "the token of the bot"

// Type is Discord as a type of channel.
var Type = channel.Type{
	Name:       "discord",
	Kinds:      []string{kindDM, kindGroup, kindChannel},
	KeepsSlash: true,
	MaxText:    maxCharacters,
	Keys:       []string{"token", "api", "reply_to"},
	Check:      func(d channel.Definition) (attribute, problem string) { return d.CheckAccount(tokenWhat, publicAPI) },
	Open: func(name string, d channel.Definition, deps channel.Deps) (channel.Channel, error) {
		return &sender{client: newClient(name, d, deps.Resolve, sending), definition: d}, nil
	},
	Receive: func(name string, d channel.Definition, deps channel.Deps) (channel.Receiver, error) {
		return &receiver{name: name, definition: d, resolve: deps.Resolve, invalidWait: invalidWait}, nil
	},
}

// trusted reports whether the token may be sent to the address of a gateway, which the API or a
// kept value names.
func (c *client) trusted(gateway string) bool {
	u, err := url.Parse(gateway)
	if err != nil || u.User != nil {
		return false
	}
	host := u.Hostname()
	if c.api == publicAPI {
		return u.Scheme == "wss" && (host == "discord.gg" || strings.HasSuffix(host, ".discord.gg"))
	}
	own, err := url.Parse(c.api)
	return err == nil && host == own.Hostname() && (u.Scheme == "wss" || u.Scheme == "ws" && channel.Loopback(host))
}

// holds reports whether the platform keeps files at an address.
func (c *client) holds(file string) bool {
	u, err := url.Parse(file)
	if err != nil || u.User != nil {
		return false
	}
	if c.api == publicAPI {
		return u.Scheme == "https" && (u.Host == "cdn.discordapp.com" || u.Host == "media.discordapp.net")
	}
	own, err := url.Parse(c.api)
	return err == nil && u.Scheme == own.Scheme && u.Host == own.Host
}
