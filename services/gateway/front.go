package gateway

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/services/gateway/internal/intake"
)

const (
	// maxUntrusted is how many connections of senders that are refused can be open. They get an
	// answer that says why, and never the places of the others.
	maxUntrusted = 16
	// maxHops bounds how many proxies of a request are looked at.
	maxHops = 32
	// forwardedHost marks a request that a proxy passed on.
	forwardedHost = "X-Forwarded-Host"
)

// front decides which requests are taken, by their sender and the host that they name.
type front struct {
	proxies []netip.Prefix
	// refused notes why a request was not taken.
	refused func(reason string)
	host    string // of the public address, without a port; empty: there is none
}

// peer returns the address at the other end of a connection; the zero value: it has none.
func peer(addr string) netip.Addr {
	a, err := netip.ParseAddrPort(addr)
	if err != nil {
		return netip.Addr{}
	}
	return a.Addr().Unmap().WithZone("")
}

// proxy reports whether a proxy has an address.
func (f front) proxy(a netip.Addr) bool {
	for _, p := range f.proxies {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// permitted reports whether requests from an address are taken.
func (f front) permitted(a netip.Addr) bool { return a.IsLoopback() || f.proxy(a) }

// client returns the address of the client of a request: that of the connection, unless it is a
// proxy. Each proxy adds the address before it to the end of X-Forwarded-For, so the last one
// that is not of a proxy is the client; what is before that one, the client may have written.
func (f front) client(r *http.Request) netip.Addr {
	a := peer(r.RemoteAddr)
	text := strings.Join(r.Header.Values("X-Forwarded-For"), ",")
	for range maxHops {
		if text == "" || !f.proxy(a) {
			return a
		}
		before, last := "", text
		if i := strings.LastIndexByte(text, ','); i >= 0 {
			before, last = text[:i], text[i+1:]
		}
		last = strings.TrimSpace(last)
		next, err := netip.ParseAddr(strings.Trim(last, "[]"))
		if err != nil {
			if next = peer(last); !next.IsValid() {
				return a
			}
		}
		a, text = next.Unmap().WithZone(""), before
	}
	return a
}

// publicHost reports whether a request names the host of the public address.
func (f front) publicHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return f.host != "" && strings.EqualFold(strings.TrimSuffix(strings.Trim(host, "[]"), "."), f.host)
}

// check serves the requests that are taken by next. The address of the client is then that of the
// request, and a request of another machine has a header X-Forwarded-Host, whatever its proxy
// adds: an account without a secret is only for programs of this machine.
func (f front) check(next http.Handler) http.Handler {
	refuse := func(w http.ResponseWriter, what, fix string) {
		w.Header().Set("Connection", "close")
		f.refused(fault.PermissionDenied)
		intake.Refuse(w, http.StatusForbidden, fault.New(codes.PermissionDenied, fault.InvalidArgument, what, fix))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from := peer(r.RemoteAddr)
		if !f.permitted(from) {
			refuse(w, "requests from "+from.String()+" are not taken", "send it to the public address; if this is the address of the proxy, add it to gateway.trusted_proxies")
			return
		}
		local := obs.LocalHost(r.Host)
		switch {
		case local || f.publicHost(r.Host):
		case f.host == "":
			refuse(w, "the host of the request is not this machine", "use http://127.0.0.1 or http://localhost")
			return
		default:
			refuse(w, "the host of the request is neither "+f.host+" nor this machine", "let the proxy pass on the header Host, or correct gateway.public_url")
			return
		}
		client := f.client(r)
		if !local || !client.IsLoopback() {
			r.Header.Set(forwardedHost, r.Host)
		}
		r.RemoteAddr = netip.AddrPortFrom(client, 0).String() // the port belongs to another machine
		next.ServeHTTP(w, r)
	})
}

// filter is a listener that bounds the connections of senders whose requests are refused.
type filter struct {
	net.Listener
	permitted func(netip.Addr) bool
	untrusted chan struct{}
}

// Accept returns the next connection that can be answered.
func (f *filter) Accept() (net.Conn, error) {
	for {
		c, err := f.Listener.Accept()
		if err != nil || f.permitted(peer(c.RemoteAddr().String())) {
			return c, err
		}
		select {
		case f.untrusted <- struct{}{}:
			return &untrusted{Conn: c, done: sync.OnceFunc(func() { <-f.untrusted })}, nil
		default:
			_ = c.Close()
		}
	}
}

// untrusted is a connection that gives its place back.
type untrusted struct {
	net.Conn
	done func()
}

func (c *untrusted) Close() error {
	defer c.done()
	return c.Conn.Close()
}
