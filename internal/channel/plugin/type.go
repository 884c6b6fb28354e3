package plugin

import (
	"path/filepath"
	"strings"
	"unicode"

	"github.com/theclaw/agents/internal/channel"
)

// Type is the plugin as a type of channel.
var Type = channel.Type{
	Name:  "plugin",
	Kinds: []string{channel.KindDM, channel.KindGroup, channel.KindChannel},
	Keys:  []string{"plugin", "reply_to"},
	Check: check,
	Open: func(name string, d channel.Definition, _ channel.Deps) (channel.Channel, error) {
		return &sender{account: newAccount(name, d), definition: d}, nil
	},
	Receive: func(name string, d channel.Definition, _ channel.Deps) (channel.Receiver, error) {
		return &receiver{account: newAccount(name, d), probeEvery: probeEvery}, nil
	},
}

// maxPath is what fits into the address of a socket, in bytes.
const maxPath = 107

func check(d channel.Definition) (attribute, problem string) {
	path, ok := socketPath(d.Plugin)
	switch {
	case d.Plugin == "":
		return "plugin", "an account of type plugin needs plugin: unix:PATH, the socket on which its program listens"
	case !ok || strings.ContainsFunc(path, unicode.IsControl):
		return "plugin", "plugin must be the absolute path of a socket, such as unix:/run/theclaw/irc.sock"
	case len(path) > maxPath:
		return "plugin", "the path in plugin is longer than the 107 bytes of the address of a socket"
	}
	return "", ""
}

// socketPath returns the path of unix:PATH, which may also have the form unix:///PATH.
func socketPath(address string) (path string, ok bool) {
	path, ok = strings.CutPrefix(address, "unix:")
	if rest, slashes := strings.CutPrefix(path, "//"); slashes {
		path = rest
	}
	return path, ok && filepath.IsAbs(path)
}
