package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/channel/webhook"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/testing/need"
	"github.com/theclaw/agents/internal/testing/world"
	gatewayv1 "github.com/theclaw/agents/proto/gen/theclaw/gateway/v1"
)

// log is a log that is read while it is written.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// taken returns what was logged since the last call.
func (l *log) taken() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := l.b.String()
	l.b.Reset()
	return text
}

// outside is an address of this machine that is not one of loopback.
func outside(t *testing.T) string {
	t.Helper()
	list, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	need.Missing(t, "an IPv4 address besides loopback", "connect the machine to a network")
	return ""
}

// from sends requests from an address of this machine.
func from(addr string) *http.Client {
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}}
	return &http.Client{Transport: &http.Transport{DialContext: d.DialContext, DisableKeepAlives: true}, Timeout: 30 * time.Second}
}

// Behind a proxy: requests are taken from it and from this machine, for the host of the public
// address or of this machine; what a client writes into headers changes nothing.
func TestBehindProxy(t *testing.T) {
	const local, proxy = "127.0.0.1", "127.0.0.2"
	stranger := outside(t)
	lines := &log{}
	h := open(t, world.Options{
		HTTP: "0.0.0.0:0", PublicURL: "https://claw.example.org", TrustedProxies: []netip.Prefix{netip.MustParsePrefix(proxy + "/32"), netip.MustParsePrefix("203.0.113.0/24")},
		Logger: slog.New(slog.NewTextHandler(lines, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}, `
  free: {type: webhook, dm: open}
  shop: {type: webhook, dm: open, secret: "env:KEY"}
`)
	if c := h.state(t, "shop", gatewayv1.ChannelState_CHANNEL_STATE_UP); c.GetAddress() != "https://claw.example.org/hooks/shop" {
		t.Errorf("the account is shown at %s", c.GetAddress())
	}
	info, err := h.World.Gateway.GetGatewayInfo(t.Context(), &gatewayv1.GetGatewayInfoRequest{})
	if err != nil || info.GetPublicUrl() != "https://claw.example.org" {
		t.Error(info, err)
	}
	_, port, err := net.SplitHostPort(info.GetHttp())
	if err != nil {
		t.Fatal(err)
	}
	// request sends one; to is the address of this machine that it goes to.
	request := func(sender, method, path, body string, headers ...string) (int, string, http.Header) {
		t.Helper()
		to := local
		if sender == stranger {
			to = stranger
		}
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+net.JoinHostPort(to, port)+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(headers); i += 2 {
			if headers[i] == "Host" {
				r.Host = headers[i+1]
				continue
			}
			r.Header.Add(headers[i], headers[i+1])
		}
		got, err := from(sender).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer got.Body.Close()
		b, err := io.ReadAll(got.Body)
		if err != nil {
			t.Fatal(err)
		}
		return got.StatusCode, string(b), got.Header
	}
	const public, forwarded = "claw.example.org", "X-Forwarded-For"
	for _, c := range []struct {
		name, sender string
		headers      []string
		status       int
		client       string // in the log, or a part of the answer where it is refused
	}{
		{"a program of this machine", local, nil, 200, local},
		{"which names another client", local, []string{forwarded, "198.51.100.7"}, 200, local},
		{"which names the public host", local, []string{"Host", public}, 200, local},
		{"a proxy", proxy, []string{"Host", public, forwarded, "198.51.100.7"}, 200, "198.51.100.7"},
		{"with a port", proxy, []string{"Host", "CLAW.example.org:443", forwarded, "198.51.100.7:4711"}, 200, "198.51.100.7"},
		{"of IPv6", proxy, []string{"Host", public, forwarded, "[2001:db8::7]:4711"}, 200, "2001:db8::7"},
		{"two proxies", proxy, []string{"Host", public, forwarded, "198.51.100.7, 203.0.113.9"}, 200, "198.51.100.7"},
		{"in two headers", proxy, []string{"Host", public, forwarded, "198.51.100.7", forwarded, "203.0.113.9"}, 200, "198.51.100.7"},
		{"a client that names another", proxy, []string{"Host", public, forwarded, "127.0.0.1, 198.51.100.7"}, 200, "198.51.100.7"},
		{"a client that names a proxy", proxy, []string{"Host", public, forwarded, "127.0.0.1, 203.0.113.9, 198.51.100.7"}, 200, "198.51.100.7"},
		{"a client that is no address", proxy, []string{"Host", public, forwarded, "198.51.100.7, unknown"}, 200, proxy},
		{"a proxy that names none", proxy, []string{"Host", public}, 200, proxy},
		{"more proxies than are looked at", proxy, []string{"Host", public, forwarded, "198.51.100.7" + strings.Repeat(", 203.0.113.9", 40)}, 200, "203.0.113.9"},
		{"another host", proxy, []string{"Host", "evil.example", forwarded, "198.51.100.7"}, 403, "neither claw.example.org nor this machine"},
		{"a host below it", proxy, []string{"Host", "x.claw.example.org"}, 403, "let the proxy pass on the header Host"},
		{"another machine", stranger, []string{"Host", public}, 403, "requests from " + stranger + " are not taken"},
		{"which names this one", stranger, []string{"Host", "localhost", forwarded, "127.0.0.1", "X-Real-Ip", "127.0.0.1"}, 403, "gateway.trusted_proxies"},
	} {
		lines.taken()
		status, body, _ := request(c.sender, http.MethodGet, "/healthz", "", c.headers...)
		what := body
		if status == 200 {
			what = lines.taken()
			c.client = "client=" + c.client + " "
		}
		if status != c.status || !strings.Contains(what, c.client) {
			t.Errorf("%s: %d %s, want %q", c.name, status, what, c.client)
		}
	}
	// An account without a secret is for programs of this machine, whatever the proxy adds.
	body := string(message("1", "c7", "hello"))
	signed := []string{"Host", public, webhook.SignatureHeader, webhook.Sign(key, time.Now(), []byte(body))}
	for _, c := range []struct {
		name, sender, path string
		headers            []string
		status             int
	}{
		{"without a secret, over the proxy", proxy, "/hooks/free", []string{"Host", public}, 401},
		{"over a proxy that says it is this machine", proxy, "/hooks/free", []string{"Host", "localhost", forwarded, "198.51.100.7"}, 401},
		{"over a proxy that is not listed", local, "/hooks/free", []string{"Host", public}, 401},
		{"without a secret, of this machine", local, "/hooks/free", nil, 202},
		{"signed, over the proxy", proxy, "/hooks/shop", append([]string{forwarded, "198.51.100.7"}, signed...), 202},
		{"of a page of another origin", proxy, "/hooks/shop", append([]string{"Origin", "https://evil.example"}, signed...), 403},
		{"of another machine", stranger, "/hooks/shop", signed, 403},
	} {
		status, answer, header := request(c.sender, http.MethodPost, c.path, body, c.headers...)
		if status != c.status || header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %d %s %v", c.name, status, answer, header)
		}
		var refused struct{ Reason string }
		if status == 401 && (json.Unmarshal([]byte(answer), &refused) != nil || refused.Reason != fault.ChannelSignature) {
			t.Errorf("%s: %s", c.name, answer)
		}
	}
	if status, _, header := request(proxy, http.MethodOptions, "/hooks/shop", "", "Host", public, "Origin", "https://claw.example.org", "Access-Control-Request-Method", "POST"); status != 405 || header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("a page of the public host asks: %d %v", status, header)
	}
	// Connections of others do not take the places of those that are taken.
	for range 300 {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", net.JoinHostPort(stranger, port))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	if status, _, _ := request(local, http.MethodGet, "/healthz", ""); status != 200 {
		t.Errorf("with connections of others: %d", status)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if info, err = h.World.Gateway.GetGatewayInfo(ctx, &gatewayv1.GetGatewayInfoRequest{}); err != nil || info.GetConnections() > 32 {
		t.Errorf("%d connections are open, %v", info.GetConnections(), err)
	}
}
