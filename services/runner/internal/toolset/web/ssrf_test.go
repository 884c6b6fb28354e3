package web

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// The addresses of the suite: literals in every form, names, and redirects. PORT is the port of
// the target.
var (
	ssrfLiterals = strings.Fields(`
		127.0.0.1 127.0.0.2 127.255.255.254 0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.254 172.16.0.1 172.31.255.254 192.168.0.1 192.168.255.254
		100.64.0.1 100.127.255.254 169.254.169.254 169.254.0.1 192.0.0.8 192.0.2.1 192.88.99.1 198.18.0.1 198.19.255.254 198.51.100.7
		203.0.113.9 224.0.0.1 239.255.255.250 240.0.0.1 255.255.255.255
		[::1] [::] [0:0:0:0:0:0:0:1] [::ffff:127.0.0.1] [::ffff:7f00:1] [::ffff:169.254.169.254] [::ffff:10.0.0.1] [::127.0.0.1]
		[64:ff9b::127.0.0.1] [64:ff9b::a9fe:a9fe] [64:ff9b:1::808:808] [2002:7f00:1::] [2002:a9fe:a9fe::1] [2002:a00:1::1]
		[fe80::1] [fe80::1%25lo] [fe80::1%251] [::1%25lo] [fc00::1] [fd00:ec2::254] [fec0::1] [ff02::1] [2001:db8::1] [2001::1] [100::1] [3fff::1]`)

	// Forms of an IPv4 address that the resolver of a C library reads, and that is what the
	// resolver of the suite does too. The last ones are not ASCII.
	ssrfForms = strings.Fields(`
		2130706433 0x7f000001 0X7F000001 017700000001 0177.0.0.1 0x7f.0.0.1 0x7f.0x0.0x0.0x1 127.1 127.0.1 0x7f.1 0 0x0
		2852039166 0xa9fea9fe 0251.0376.0251.0376 169.16689662 3232235777 0300.0250.1.1 167772161 127.0.0.1.
		127。0。0。1 １２７.0.0.1 ①27.0.0.1`)

	ssrfNames = map[string][]string{ // what a name resolves to, in turn; the last one repeats
		"localhost":                {"127.0.0.1"},
		"localhost.":               {"127.0.0.1"},
		"ip6-localhost":            {"::1"},
		"metadata.google.internal": {"169.254.169.254"},
		"127.0.0.1.nip.test":       {"127.0.0.1"},
		"db.corp.test":             {"10.1.2.3"},
		"mapped.test":              {"::ffff:127.0.0.1"},
		"nat64.test":               {"64:ff9b::7f00:1"},
		"zone.test":                {"fe80::1%lo"},
		"rebind.test":              {outside, "127.0.0.1"},
		"rebind6.test":             {outside, "::1"},
		"rebind-metadata.test":     {outside, "169.254.169.254"},
		"front.test":               {outside},
	}
)

// outside is the address of the public server of the suite.
const outside = "93.184.216.34"

// network is the internet of one case: a resolver, a public server that redirects, and the
// target on loopback, which stands for all addresses that must not be reached.
type network struct {
	front, target *httptest.Server
	port          string // of the target
	reached       atomic.Int32
	mu            sync.Mutex
	asked         map[string]int
}

func newNetwork(t *testing.T) *network {
	n := &network{asked: map[string]int{}}
	n.target = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n.reached.Add(1)
		io.WriteString(w, "inside")
	}))
	t.Cleanup(n.target.Close)
	n.front = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		hops, _ := strconv.Atoi(q.Get("hops"))
		code, _ := strconv.Atoi(q.Get("code"))
		to := q.Get("to")
		if hops > 1 {
			to = fmt.Sprintf("/?hops=%d&code=%d&to=%s", hops-1, code, url.QueryEscape(to))
		}
		w.Header().Set("Location", to)
		w.WriteHeader(max(code, http.StatusFound*min(1, len(to))))
	}))
	t.Cleanup(n.front.Close)
	_, n.port, _ = net.SplitHostPort(n.target.Listener.Addr().String())
	return n
}

// resolve is the resolver of the suite: literals, the forms of inet_aton, and the script.
func (n *network) resolve(host string) (netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return a, nil
	}
	if a, ok := inetAton(strings.TrimSuffix(host, ".")); ok {
		return a, nil
	}
	answers := ssrfNames[strings.ToLower(host)]
	if answers == nil {
		return netip.Addr{}, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked[host]++
	return netip.ParseAddr(answers[min(n.asked[host], len(answers))-1])
}

// inetAton reads one to four parts, decimal, octal or hexadecimal, of which the last fills
// the rest.
func inetAton(s string) (netip.Addr, bool) {
	parts := strings.Split(s, ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var value uint64
	for i, p := range parts {
		if len(p) > 1 && p[0] == '0' && p[1] != 'x' && p[1] != 'X' {
			p = "0o" + p[1:]
		}
		v, err := strconv.ParseUint(p, 0, 32)
		if err != nil || i < len(parts)-1 && v > 255 {
			return netip.Addr{}, false
		}
		if i < len(parts)-1 {
			value |= v << (24 - 8*i)
		} else {
			value |= v
		}
	}
	return netip.AddrFrom4([4]byte{byte(value >> 24), byte(value >> 16), byte(value >> 8), byte(value)}), true
}

// dial is the dialer of the suite. The one public address is the front server. Everything
// else goes to guarded, the dialer of the tool; without it, to the target.
func (n *network) dial(guarded func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		a, err := n.resolve(host)
		switch {
		case err != nil:
			return nil, err
		case a.String() == outside:
			return new(net.Dialer).DialContext(ctx, network, n.front.Listener.Addr().String())
		case guarded != nil:
			return guarded(ctx, network, net.JoinHostPort(a.String(), port))
		}
		return new(net.Dialer).DialContext(ctx, network, n.target.Listener.Addr().String())
	}
}

// ssrfCase is calls of one tool, of which the last one must not reach its target.
type ssrfCase struct {
	name, tool string
	calls      []map[string]any
}

func ssrfCases() (all []ssrfCase) {
	fetch := func(address string, before ...map[string]any) {
		all = append(all, ssrfCase{address, "web_fetch", append(before, map[string]any{"url": address})})
	}
	for _, host := range append(ssrfLiterals, ssrfForms...) {
		fetch("http://" + host + ":PORT/")
	}
	fetch("http://example.org@127.0.0.1:PORT/")
	fetch("http://127.0.0.1:PORT#@example.org/")
	fetch("HTTP://LocalHost:PORT/")
	for _, name := range strings.Fields("localhost localhost. ip6-localhost metadata.google.internal 127.0.0.1.nip.test db.corp.test mapped.test nat64.test zone.test") {
		fetch("http://" + name + ":PORT/")
	}
	redirect := func(host, to string, code, hops int) string {
		return fmt.Sprintf("http://%s/?code=%d&hops=%d&to=%s", host, code, hops, url.QueryEscape(to))
	}
	for _, name := range []string{"rebind.test", "rebind6.test", "rebind-metadata.test"} {
		fetch("http://"+name+":PORT/", map[string]any{"url": "http://" + name + "/?code=200"}) // the first answer is public
		fetch(redirect(name, "http://"+name+":PORT/again", 302, 1))
	}
	for _, code := range []int{301, 302, 303, 307, 308} {
		fetch(redirect("front.test", "http://127.0.0.1:PORT/", code, 1))
		fetch(redirect("front.test", "http://169.254.169.254/latest/meta-data/", code, 1))
	}
	for _, to := range []string{"//127.0.0.1:PORT/", "http://[::1]:PORT/", "http://[::ffff:127.0.0.1]:PORT/", "http://2130706433:PORT/", "http://localhost:PORT/", "http://[fd00:ec2::254]/", "http://10.0.0.1/"} {
		fetch(redirect("front.test", to, 302, 1))
	}
	fetch(redirect("front.test", "http://127.0.0.1:PORT/", 302, 5)) // as many as are followed
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"} {
		all = append(all, ssrfCase{method, "http_request", []map[string]any{{"url": "http://127.0.0.1:PORT/", "method": method}}},
			ssrfCase{method + " redirected", "http_request", []map[string]any{{"url": redirect("front.test", "http://169.254.169.254/", 307, 1), "method": method}}})
	}
	return all
}

// TestSSRF: each case is refused by the guard, at the address that was really dialled, and
// the same case reaches its target through a dialer without the guard.
func TestSSRF(t *testing.T) {
	cases := ssrfCases()
	passed, control := 0, 0
	for _, c := range cases {
		for _, guarded := range []bool{true, false} {
			n := newNetwork(t)
			tool := tool(t, c.tool, Options{Wait: new(clock).wait})
			var cl *client
			switch tool := tool.(type) {
			case *fetch:
				cl = tool.client
			case *requester:
				cl = tool.client
			}
			transport := cl.http.Transport.(*http.Transport)
			if guarded {
				transport.DialContext = n.dial(transport.DialContext)
			} else {
				transport.DialContext = n.dial(nil)
			}
			for i, arguments := range c.calls {
				sent := map[string]any{}
				for name, value := range arguments {
					sent[name] = strings.ReplaceAll(value.(string), "PORT", n.port)
				}
				r := run(t, tool, sent, nil)
				last := i == len(c.calls)-1
				switch refused := r.IsError && strings.Contains(r.Text, "is not public"); {
				case !last && (r.IsError || n.reached.Load() > 0):
					t.Errorf("%s: the first call: %s", c.name, r.Text)
				case last && guarded && (!refused || n.reached.Load() > 0):
					passed++
					t.Errorf("%s passed: %s %s", c.name, r.Text, r.JSON)
				case last && !guarded && (r.IsError || n.reached.Load() != 1):
					t.Errorf("%s did not reach its target without the guard: %s %s", c.name, r.Text, r.JSON)
				case last && !guarded:
					control++
				}
			}
			n.front.Close()
			n.target.Close()
		}
	}
	fmt.Printf("ssrf cases=%d passed=%d control=%d\n", len(cases), passed, control)
	if len(cases) < 60 {
		t.Errorf("%d cases, want 60", len(cases))
	}
}

// TestProductionDialer: without any dialer of a test, literal addresses are refused at the
// socket too, and a server on loopback is reached where the owner permits it.
func TestProductionDialer(t *testing.T) {
	var reached atomic.Int32
	address := serve(t, func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	port := address[strings.LastIndex(address, ":")+1:]
	for _, host := range []string{"127.0.0.1", "127.0.0.2", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::1%25lo]", "localhost"} {
		for _, name := range []string{"web_fetch", "http_request"} {
			r := run(t, tool(t, name, Options{}), map[string]string{"url": "http://" + host + ":" + port}, nil)
			if !r.IsError || !strings.Contains(r.Text, "is not public. Use a public address.") {
				t.Errorf("%s %s: %s %s", name, host, r.Text, r.JSON)
			}
		}
	}
	if reached.Load() != 0 {
		t.Errorf("%d requests reached the server", reached.Load())
	}
	if run(t, tool(t, "web_fetch", options()), map[string]string{"url": address}, &page{}); reached.Load() != 1 {
		t.Error("the permitted server was not reached")
	}
}
