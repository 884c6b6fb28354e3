package channel

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Names of the built-in channels, which need no entry in `channels:`.
const (
	NameConsole  = "console"
	NameInternal = "internal"
	NameXGW      = "xgw"
)

// TypeWebhook is the one type of a channel that is not built in.
const TypeWebhook = "webhook"

var builtin = []string{NameXGW, NameInternal, NameConsole}

// IsBuiltin reports whether a channel needs no entry in `channels:`.
func IsBuiltin(name string) bool { return slices.Contains(builtin, name) }

// Definition is one entry of `channels:`.
type Definition struct {
	Type         string // webhook
	URL          string
	Secret       string // env:NAME or file:PATH; empty: requests are not signed
	AllowPrivate bool   // allows http:// and addresses that are not public
}

var secretRule = regexp.MustCompile(`^(env:[A-Za-z_][A-Za-z0-9_]{0,127}|file:[^\pC]+)$`)

// Check returns which attribute of an entry of config.yaml is wrong, and why. Neither
// a secret nor an address is repeated: both may hold what must not be in a log.
func (d Definition) Check() (attribute, problem string) {
	if d.Secret != "" && (len(d.Secret) > 1024 || !secretRule.MatchString(d.Secret)) {
		return "secret", "secret wants a reference, env:NAME or file:PATH, never the secret itself"
	}
	switch {
	case d.Type == TypeWebhook:
		u, err := url.Parse(d.URL)
		switch {
		case d.URL == "":
			return "url", "a webhook needs a url"
		case err != nil || u.Host == "" || len(d.URL) > 2048 || strings.ContainsFunc(d.URL, unicode.IsControl):
			return "url", "url wants an address such as https://example.org/hook"
		case u.User != nil:
			return "url", "url holds a name or password; use secret: env:NAME instead"
		case u.Scheme != "https" && (u.Scheme != "http" || !d.AllowPrivate):
			return "url", "url wants https (http only together with allow_private: true)"
		}
	case IsBuiltin(d.Type):
		if d.URL != "" || d.Secret != "" || d.AllowPrivate {
			return "type", "only a webhook has url, secret and allow_private"
		}
	default:
		return "type", fmt.Sprintf("type %q is not one of %s, %s", Clean(d.Type, 57), TypeWebhook, strings.Join(builtin, ", "))
	}
	return "", ""
}
