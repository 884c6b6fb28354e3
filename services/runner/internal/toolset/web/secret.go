package web

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/netip"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/egress"
	"github.com/theclaw/agents/internal/reference"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Secrets reads the values of secrets.
type Secrets struct {
	// Getenv reads the variables of references; nil: there are none.
	Getenv func(name string) string
	// Read is called with each value before it is used, so that it is kept out of logs; nil: it is not.
	Read func(value ...string)
}

// secretMark is how a header names a secret.
var secretMark = regexp.MustCompile(`\{\{\s*secret:([^{}]*)\}\}`)

// used are the secrets that one request carries, by their values.
type used map[string]string

// put replaces the marks in the headers of a request by the values of its secrets. refusal is why the request is not made,
// for the model; empty: it may be.
func (s Secrets) put(u *url.URL, header http.Header, known []*registrypb.Secret) (sent used, refusal string) {
	sent = used{}
	for name, values := range header {
		for i, value := range values {
			values[i] = secretMark.ReplaceAllStringFunc(value, func(mark string) string {
				secret := strings.TrimSpace(secretMark.FindStringSubmatch(mark)[1])
				v, why := s.value(u, name, secret, known)
				if refusal == "" {
					refusal = why
				}
				if why == "" {
					sent[v] = secret
				}
				return v
			})
		}
	}
	return sent, refusal
}

// value returns the value of a secret, for a header of a request to an address.
func (s Secrets) value(u *url.URL, header, name string, known []*registrypb.Secret) (value, refusal string) {
	i := slices.IndexFunc(known, func(k *registrypb.Secret) bool { return k.GetName() == name })
	if i < 0 {
		var names []string
		for _, k := range known {
			names = append(names, k.GetName())
		}
		if len(names) == 0 {
			return "", "this agent has no secrets; its owner adds them below secrets in theclaw.yaml."
		}
		return "", fmt.Sprintf("there is no secret %s. There are %s.", boundary.Name(name), strings.Join(names, ", "))
	}
	secret := known[i]
	hosts, err := egress.Parse(secret.GetHosts())
	if err != nil {
		return "", "the hosts of the secret " + name + " are not understood; its owner corrects them in theclaw.yaml."
	}
	switch {
	case slices.Contains(carried, textproto.CanonicalMIMEHeaderKey(header)):
		return "", fmt.Sprintf("the header %s goes to every server that redirects lead to, so it cannot carry a secret. Use another header.", header)
	case u.Scheme != "https" && !isLocal(u.Hostname()):
		return "", "a secret is sent by https only. Use an https address."
	case !hosts.Permits(u.Hostname(), portOf(u)):
		return "", fmt.Sprintf("the secret %s may not be sent to %s. Its hosts are %s.", name, boundary.Name(u.Host), strings.Join(secret.GetHosts(), ", "))
	}
	if value = s.read(secret.GetRef()); value == "" {
		return "", fmt.Sprintf("the value of the secret %s cannot be read from %s. The owner of the agent corrects that where the runner is.", name, secret.GetRef())
	}
	return value, ""
}

// read is the value of a reference, kept out of logs; empty where there is none, or it cannot be in a header.
func (s Secrets) read(ref string) string {
	getenv := s.Getenv
	if getenv == nil {
		getenv = func(string) string { return "" }
	}
	value, err := reference.Read(getenv, ref)
	if err != nil || !httpguts.ValidHeaderFieldValue(value) {
		return ""
	}
	if s.Read != nil && value != "" {
		s.Read(value)
	}
	return value
}

// without is a text of the response without the values, which a server may have sent back, as they are or encoded.
func (u used) without(text string) string {
	for value, name := range u {
		for _, form := range []string{value, base64.StdEncoding.EncodeToString([]byte(value)), base64.RawURLEncoding.EncodeToString([]byte(value)), url.QueryEscape(value), url.PathEscape(value)} {
			text = strings.ReplaceAll(text, form, "{{secret:"+name+"}}")
		}
	}
	return text
}

// isLocal reports whether a host is this machine.
func isLocal(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

// portOf is the port of an address.
func portOf(u *url.URL) int {
	if n, err := strconv.Atoi(u.Port()); err == nil {
		return n
	}
	if u.Scheme == "https" {
		return 443
	}
	return 80
}
