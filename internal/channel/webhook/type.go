package webhook

import (
	"net/url"
	"strings"
	"unicode"

	"github.com/theclaw/agents/internal/channel"
)

// Type is the webhook as a type of channel.
var Type = channel.Type{
	Name:         "webhook",
	Kinds:        []string{"dm", "group"},
	Keys:         []string{"url", "allow_private", "secret"},
	Check:        check,
	ReceivesOnly: func(d channel.Definition) bool { return d.URL == "" },
	Open: func(name string, d channel.Definition, deps channel.Deps) (channel.Channel, error) {
		return New(Config{Name: name, URL: d.URL, Secret: d.Secret, AllowPrivate: d.AllowPrivate}, deps.Resolve)
	},
}

func check(d channel.Definition) (attribute, problem string) {
	u, err := url.Parse(d.URL)
	switch {
	case d.URL == "":
		return "url", "a webhook needs a url"
	case err != nil || u.Hostname() == "" || len(d.URL) > 2048 || strings.ContainsFunc(d.URL, unicode.IsControl):
		return "url", "url must be an address such as https://example.org/hook"
	case u.User != nil:
		return "url", "url holds a name or password; use secret: env:NAME instead"
	case u.Scheme != "https" && (u.Scheme != "http" || !d.AllowPrivate):
		return "url", "url must use https (http only together with allow_private: true)"
	}
	return "", ""
}
