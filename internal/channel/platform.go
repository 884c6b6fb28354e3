package channel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
)

// Kinds of conversations.
const (
	KindDM      = "dm"
	KindGroup   = "group"
	KindChannel = "channel"
)

// NewTransport returns a transport for the methods of a platform. It is used without an
// [http.Client], which would follow redirects with the token and whose errors have the address.
func NewTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	return &http.Transport{
		Proxy:                  nil,
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		MaxIdleConnsPerHost:    8,
		IdleConnTimeout:        30 * time.Second,
		DisableCompression:     true, // what counts is the bytes that are read
	}
}

// RoundTrip makes one request, without redirects. left reports whether its head was written, so that
// the other side may act on it.
func RoundTrip(t *http.Transport, req *http.Request) (res *http.Response, left bool, err error) {
	var wrote atomic.Bool
	ctx := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{WroteHeaders: func() { wrote.Store(true) }})
	res, err = t.RoundTrip(req.WithContext(ctx))
	return res, wrote.Load(), err
}

// CheckAccount returns what is wrong with an entry that needs a token, which is what, and whose api
// stands for the public address of its platform.
func (d Definition) CheckAccount(what, public string) (attribute, problem string) {
	if d.Token == "" {
		return "token", fmt.Sprintf("an account of type %s needs a token: env:NAME or file:PATH, with %s", d.Type, what)
	}
	if d.API == "" {
		return "", ""
	}
	u, err := url.Parse(d.API)
	switch {
	case err != nil || u.Hostname() == "" || len(d.API) > 2048 || strings.ContainsFunc(d.API, unicode.IsControl):
		return "api", "api must be an address such as " + public
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return "api", "api is a host, and a path if it has one, without a name, password or query"
	case u.Scheme != "https" && (u.Scheme != "http" || !Loopback(u.Hostname())):
		return "api", "api must use https, or http on this machine: each request has the token"
	}
	return "", ""
}

// Address is where the methods of an account are, without a slash at the end.
func (d Definition) Address(public string) string {
	if d.API == "" {
		return public
	}
	return strings.TrimRight(d.API, "/")
}

// Loopback reports whether a host is this machine.
func Loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

// Token is a secret that a platform gave an account.
type Token struct {
	Account, Key, Ref string         // of the settings: channels.ACCOUNT.KEY
	Form              *regexp.Regexp // that it has
	What              string         // names it to people
}

// Read reads it. It is read for each send, so that a new one needs no restart. The error is an
// [*Error] with [ReasonAuth].
func (t Token) Read(ctx context.Context, resolve Resolve) (string, error) {
	e := &Error{Class: Unavailable, Reason: ReasonAuth, BeforeSend: true}
	if t.Ref == "" {
		e.What = fmt.Sprintf("%s has no %s", t.Account, t.Key)
		e.Fix = fmt.Sprintf("set channels.%s.%s to env:NAME or file:PATH, with %s", t.Account, t.Key, t.What)
		return "", e
	}
	value, err := "", errors.New("nothing reads secrets here")
	if resolve != nil {
		value, err = resolve(ctx, t.Ref)
	}
	if err == nil && !t.Form.MatchString(value) {
		err = errors.New("it has another form")
	}
	if err != nil {
		e.What, e.Err = fmt.Sprintf("the %s of %s cannot be used", t.Key, t.Account), err
		e.Fix = fmt.Sprintf("set %s to %s", Clean(t.Ref, 200), t.What)
		return "", e
	}
	return value, nil
}
