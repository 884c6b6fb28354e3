// Package secret puts the values of an agent's secrets into the headers of requests.
//
//	Authorization: Bearer {{secret:SHOP}} --> the value, for the hosts of the settings
//
// It promises that a value is read where the runner is and only when it is sent; that it goes to the
// hosts that the settings name, by https, this machine excepted; and that every value is kept out of logs.
// It makes no request: the caller keeps a redirect from taking the header along, and takes the values
// out of what comes back ([Sent.Without]).
package secret

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/egress"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/reference"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Source reads the values of secrets.
type Source struct {
	// Home is the directory of the home, below which relative paths of references are.
	Home string
	// Getenv reads the variables of references; nil: there are none.
	Getenv func(name string) string
	// Read is called with each value before it is used, so that it is kept out of logs; nil: it is not.
	Read func(value ...string)
}

// secretMark is how a header names a secret.
var secretMark = regexp.MustCompile(`\{\{\s*secret:([^{}]*)\}\}`)

// Sent are the secrets that one request carries, by their values.
type Sent map[string]string

// Put replaces the marks in the headers of a request by the values of its secrets. A header of shared
// goes to every server that redirects lead to, and carries none. refusal is why the request is not made; nil: it may
// be. Its reason is SECRET_MISSING where there is no such secret or its value cannot be read.
func (s Source) Put(u *url.URL, header http.Header, shared []string, known []*registrypb.Secret) (sent Sent, refusal *fault.Error) {
	sent = Sent{}
	for name, values := range header {
		for i, value := range values {
			values[i] = secretMark.ReplaceAllStringFunc(value, func(mark string) string {
				secret := strings.TrimSpace(secretMark.FindStringSubmatch(mark)[1])
				v, why := "", refuse(fault.InvalidArgument, fmt.Sprintf("the header %s goes to every server that redirects lead to, so it cannot carry a secret", name), "use another header")
				if !slices.Contains(shared, textproto.CanonicalMIMEHeaderKey(name)) {
					v, why = s.value(u, secret, known)
				}
				if refusal == nil {
					refusal = why
				}
				if why == nil {
					sent[v] = secret
				}
				return v
			})
		}
	}
	return sent, refusal
}

// value returns the value of a secret, for a request to an address.
func (s Source) value(u *url.URL, name string, known []*registrypb.Secret) (value string, refusal *fault.Error) {
	i := slices.IndexFunc(known, func(k *registrypb.Secret) bool { return k.GetName() == name })
	if i < 0 {
		var names []string
		for _, k := range known {
			names = append(names, k.GetName())
		}
		if len(names) == 0 {
			return "", refuse(fault.SecretMissing, "this agent has no secrets", "its owner adds them below secrets in theclaw.yaml")
		}
		return "", refuse(fault.SecretMissing, "there is no secret "+boundary.Name(name), "there are "+strings.Join(names, ", "))
	}
	secret := known[i]
	hosts, err := egress.Parse(secret.GetHosts())
	if err != nil {
		return "", refuse(fault.ConfigInvalid, "the hosts of the secret "+name+" are not understood", "its owner corrects them in theclaw.yaml")
	}
	switch {
	case u.Scheme != "https" && !isLocal(u.Hostname()):
		return "", refuse(fault.InvalidArgument, "a secret is sent by https only", "use an https address")
	case !hosts.Permits(u.Hostname(), portOf(u)):
		return "", refuse(fault.InvalidArgument, fmt.Sprintf("the secret %s may not be sent to %s", name, boundary.Name(u.Host)), "its hosts are "+strings.Join(secret.GetHosts(), ", "))
	}
	value, err = s.Value(secret.GetRef())
	if err != nil || value == "" || !httpguts.ValidHeaderFieldValue(value) {
		return "", refuse(fault.SecretMissing, fmt.Sprintf("the value of the secret %s cannot be read from %s", name, secret.GetRef()), "the owner of the agent corrects that where the runner is")
	}
	return value, nil
}

func refuse(reason, what, fix string) *fault.Error {
	return fault.New(codes.FailedPrecondition, reason, what, fix)
}

// Value is what a reference stands for, kept out of logs from now on. The error names the reference and no value.
func (s Source) Value(ref string) (string, error) {
	getenv := s.Getenv
	if getenv == nil {
		getenv = func(string) string { return "" }
	}
	value, err := reference.Read(s.Home, getenv, ref)
	if err == nil && s.Read != nil && value != "" {
		s.Read(value)
	}
	return value, err
}

// Without is a text of the response without the values, which a server may have sent back, as they are or encoded.
func (u Sent) Without(text string) string {
	longestFirst := func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) }
	for _, value := range slices.SortedFunc(maps.Keys(u), longestFirst) { // one may begin with another
		if value == "" {
			continue
		}
		name := u[value]
		for _, v := range credentials(value) {
			quoted, _ := json.Marshal(v) // a text always encodes
			for _, form := range []string{v, base64.StdEncoding.EncodeToString([]byte(v)), base64.RawURLEncoding.EncodeToString([]byte(v)), url.QueryEscape(v), url.PathEscape(v), string(quoted[1 : len(quoted)-1])} {
				text = strings.ReplaceAll(text, form, "{{secret:"+name+"}}")
			}
		}
	}
	return text
}

// credentials are a value, and what follows its scheme when it is the value of a header (RFC 9110, 11.4): a server may send
// back that part alone.
func credentials(value string) []string {
	scheme, key, found := strings.Cut(value, " ")
	if key = strings.TrimSpace(key); found && key != "" && slices.ContainsFunc([]string{"bearer", "basic", "token"}, func(s string) bool { return strings.EqualFold(s, scheme) }) {
		return []string{value, key}
	}
	return []string{value}
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
