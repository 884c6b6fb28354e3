package proxy

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/theclaw/agents/internal/egress"
	"github.com/theclaw/agents/internal/netguard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func hosts(t *testing.T, list ...string) egress.Hosts {
	t.Helper()
	h, err := egress.Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// world is a proxy on a listener, and two servers, of which it may reach one name.
type world struct {
	proxy     *url.URL
	plain     *httptest.Server
	secure    *httptest.Server
	listener  net.Listener
	served    sync.WaitGroup
	mu        sync.Mutex
	refusals  []string
	transport *http.Transport
}

func start(t *testing.T, guard netguard.Guard) *world {
	t.Helper()
	w := &world{}
	answer := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		rw.Header().Set("X-Seen", strings.Join(r.Header.Values("Proxy-Authorization"), ",")+strings.Join(r.Header.Values("X-Forwarded-For"), ","))
		fmt.Fprintf(rw, "%s %s %s", r.Method, r.Host, b)
	})
	w.plain, w.secure = httptest.NewServer(answer), httptest.NewTLSServer(answer)
	port := func(s *httptest.Server) string {
		return s.Listener.Addr().(*net.TCPAddr).AddrPort().String()[len("127.0.0.1:"):]
	}
	h := hosts(t, "localhost:"+port(w.plain), "localhost:"+port(w.secure))
	p := New(h, "mcp.servers.github.network", guard, func(host string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.refusals = append(w.refusals, host)
	})
	var err error
	if w.listener, err = net.Listen("tcp4", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	w.served.Go(func() { p.Serve(w.listener) })
	w.proxy = &url.URL{Scheme: "http", Host: w.listener.Addr().String()}
	w.transport = &http.Transport{Proxy: http.ProxyURL(w.proxy), TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	t.Cleanup(func() {
		w.transport.CloseIdleConnections()
		_ = w.listener.Close()
		w.served.Wait()
		w.plain.Close()
		w.secure.Close()
	})
	return w
}

var loopback = netguard.Guard{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}}

// named is the address of a server by another name of its host.
func named(s *httptest.Server, host string) string {
	return strings.Replace(s.URL, "127.0.0.1", host, 1)
}

// S4-93: a permitted host is reached by HTTP and through a tunnel; every other one is refused, by
// whatever name, and the program reads why.
func TestProxy(t *testing.T) {
	w := start(t, loopback)
	client := &http.Client{Transport: w.transport}
	for _, server := range []*httptest.Server{w.plain, w.secure} {
		r, err := client.Post(named(server, "localhost")+"/p", "text/plain", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if want := "POST " + strings.TrimPrefix(strings.TrimPrefix(named(server, "localhost"), "http://"), "https://") + " body"; string(b) != want || r.Header.Get("X-Seen") != "" {
			t.Errorf("%s: %q, want %q; %v", server.URL, b, want, r.Header)
		}
	}
	for _, host := range []string{"127.0.0.1", "LOCALHOST.localdomain", "[::1]", "0.0.0.0", "2130706433", "127.1"} {
		r, err := client.Get(named(w.plain, host))
		if err != nil {
			t.Errorf("%s: %v", host, err)
			continue
		}
		b, _ := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if r.StatusCode != http.StatusForbidden || !strings.Contains(string(b), "host not allowed: ") || !strings.Contains(string(b), "(mcp.servers.github.network)") {
			t.Errorf("%s: %d %q", host, r.StatusCode, b)
		}
		if _, err := client.Get(named(w.secure, host)); err == nil || !strings.Contains(err.Error(), "host not allowed: ") {
			t.Errorf("%s by a tunnel: %v", host, err)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.refusals) != 12 {
		t.Errorf("refused: %v", w.refusals)
	}
}

// A permitted name whose address is not public is refused after resolution; the control reaches it.
func TestAddressesAreJudged(t *testing.T) {
	w := start(t, netguard.Guard{})
	client := &http.Client{Transport: w.transport}
	r, err := client.Get(named(w.plain, "localhost"))
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(r.Body)
	_ = r.Body.Close()
	if r.StatusCode != http.StatusForbidden || !strings.Contains(string(b), "is not public") {
		t.Errorf("%d %q", r.StatusCode, b)
	}
	if _, err := client.Get(named(w.secure, "localhost")); err == nil || !strings.Contains(err.Error(), "is not public") {
		t.Errorf("by a tunnel: %v", err)
	}
}

// What is no request to a proxy is refused, and a host that does not answer is reported.
func TestBadRequests(t *testing.T) {
	w := start(t, loopback)
	gone := w.plain.Listener.Addr().String()
	w.plain.Close()
	_, port, err := net.SplitHostPort(gone)
	if err != nil {
		t.Fatal(err)
	}
	for request, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n":                                           "400 Bad Request",
		"GET ftp://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n":                            "400 Bad Request",
		"GET https://localhost:" + port + "/ HTTP/1.1\r\nHost: localhost\r\n\r\n":             "400 Bad Request",
		"CONNECT localhost:x HTTP/1.1\r\nHost: localhost:x\r\n\r\n":                           "400 Bad Request",
		"CONNECT localhost:" + port + " HTTP/1.1\r\nHost: localhost:" + port + "\r\n\r\n":     "502 localhost:" + port + " cannot be reached",
		"GET http://localhost:" + port + "/ HTTP/1.1\r\nHost: localhost:" + port + "\r\n\r\n": "502 Bad Gateway",
		"nonsense\r\n\r\n": "400 Bad Request",
	} {
		c, err := net.Dial("tcp", w.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, request)
		line, err := bufio.NewReader(c).ReadString('\n')
		_ = c.Close()
		if strings.TrimSpace(line) != "HTTP/1.1 "+want {
			t.Errorf("%q: %q %v", request, line, err)
		}
	}
}

// A server that ends its side after the answer ends that of the program, too, which reads to the end.
func TestServerEndsFirst(t *testing.T) {
	w := start(t, loopback)
	there, err := net.Dial("tcp", w.proxy.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	host := strings.TrimPrefix(named(w.plain, "localhost"), "http://")
	fmt.Fprintf(there, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\nGET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host, host, host)
	if b, err := io.ReadAll(there); err != nil || !strings.HasSuffix(string(b), "GET "+host+" ") {
		t.Errorf("%q, %v", b, err)
	}
}

// The end of the listener ends tunnels and requests that are under way, and connections that have asked for nothing.
func TestEnd(t *testing.T) {
	began, let := make(chan struct{}, 2), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		began <- struct{}{}
		select {
		case <-let:
		case <-r.Context().Done():
		}
	}))
	defer slow.Close()
	defer close(let)
	address := strings.TrimPrefix(named(slow, "localhost"), "http://")
	p := New(hosts(t, address), "sandbox.network", loopback, nil)
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.Serve(listener)
	}()
	for _, request := range []string{
		"", "CONNECT " + address + " HTTP/1.1\r\nHost: " + address + "\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET http://" + address + "/ HTTP/1.1\r\nHost: " + address + "\r\n\r\n",
	} {
		c, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, request)
	}
	<-began
	<-began
	_ = listener.Close()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("requests are still served")
	}
}
