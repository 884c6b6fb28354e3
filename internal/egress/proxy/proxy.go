// Package proxy lets programs in a sandbox reach some hosts by name, and nothing else. It is an HTTP proxy that
// runs outside of the sandbox, on a listener in the network of the program.
//
//	program --CONNECT git.example.org:443--> proxy --> list of hosts --> resolution --> netguard --> host
//	        --GET http://git.example.org/-->
//
// It promises: only hosts of the list are reached, by exact name or below a `*.`, on the ports 80 and 443 or
// on the one that the entry names; a name is resolved by us, and an address that is not public is refused
// after that; what is refused is answered with 403 and the name of the setting; connections are bounded in number and
// end with the listener.
//
// It does not look into connections: within TLS a program can talk to any host that the server of a permitted one
// forwards it to. It keeps no cookies, caches nothing, and uses no other proxy.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/egress"
	"github.com/theclaw/agents/internal/netguard"
)

const (
	// maxConnections bounds those of one program.
	maxConnections = 256
	// dialTimeout bounds resolution and connection.
	dialTimeout = 15 * time.Second
	// headerTimeout bounds the time until the head of a request or an answer is there, and idleTimeout the
	// time of a connection between two requests.
	headerTimeout = 30 * time.Second
	idleTimeout   = time.Minute
	// endTimeout bounds the end of requests after that of the program.
	endTimeout = time.Second
	// maxHeader bounds the head of a request, in bytes.
	maxHeader = 64 << 10
)

// Proxy serves the programs of one agent. It is safe for concurrent use.
type Proxy struct {
	hosts     egress.Hosts
	setting   string // that has them
	dialer    net.Dialer
	transport *http.Transport
	// refused is called with what was refused; it may be called by several goroutines.
	refused func(host string)
}

// New returns a Proxy that permits hosts, whose addresses the guard must permit as well. setting is the key of the
// settings that names the hosts, such as sandbox.network: a program that is refused another one reads it. refused is
// called for each connection and request that is refused, with the host; nil: with none.
func New(hosts egress.Hosts, setting string, guard netguard.Guard, refused func(host string)) *Proxy {
	if refused == nil {
		refused = func(string) {}
	}
	p := &Proxy{hosts: hosts, setting: setting, dialer: net.Dialer{Timeout: dialTimeout, Control: guard.Control}, refused: refused}
	p.transport = &http.Transport{
		DialContext: p.dialer.DialContext, DisableKeepAlives: true, DisableCompression: true, ResponseHeaderTimeout: headerTimeout, MaxResponseHeaderBytes: maxHeader,
	}
	return p
}

// Serve serves a listener until it is closed, and returns when all requests and tunnels have ended.
func (p *Proxy) Serve(listener net.Listener) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var open sync.WaitGroup // requests; the server does not know those that have become tunnels
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			open.Add(1)
			defer open.Done()
			p.handle(ctx, w, r)
		}),
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    log.New(io.Discard, "", 0), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
	}
	_ = server.Serve(limit(listener, maxConnections)) // it ends when the listener is closed
	stop()
	closing, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	_ = server.Shutdown(closing) // after it no request begins
	_ = server.Close()
	open.Wait()
}

func (p *Proxy) handle(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	host, port, ok := target(r)
	switch {
	case !ok:
		http.Error(w, "this is a proxy: name the host in the request", http.StatusBadRequest)
	case !p.hosts.Permits(host, port):
		p.refused(boundary.Name(host))
		shown := host
		if port != 80 && port != 443 {
			shown = net.JoinHostPort(host, strconv.Itoa(port))
		}
		refuse(w, r, http.StatusForbidden, "host not allowed: "+boundary.Name(shown)+" ("+p.setting+")")
	case r.Method == http.MethodConnect:
		p.tunnel(ctx, w, r, net.JoinHostPort(host, strconv.Itoa(port)))
	default:
		(&httputil.ReverseProxy{
			Transport: p.transport,
			Rewrite: func(r *httputil.ProxyRequest) {
				r.Out.Host = r.In.Host
			},
			ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) { p.failed(w, r, host, err) },
		}).ServeHTTP(w, r)
	}
}

// target is the host and port of a request to a proxy.
func target(r *http.Request) (host string, port int, ok bool) {
	at, standard := r.URL.Host, 80
	switch {
	case r.Method == http.MethodConnect:
		at, standard = r.Host, 443
	case r.URL.Scheme != "http":
		return "", 0, false
	}
	host, text, err := net.SplitHostPort(at)
	if err != nil {
		return strings.Trim(at, "[]"), standard, at != ""
	}
	port, err = strconv.Atoi(text)
	return host, port, err == nil && host != ""
}

// tunnel copies bytes between the program and a host until one of them ends, or ctx does.
func (p *Proxy) tunnel(ctx context.Context, w http.ResponseWriter, r *http.Request, address string) {
	there, err := p.dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		p.failed(w, r, address, err)
		return
	}
	defer func() { _ = there.Close() }()
	here, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, "the connection cannot be used as a tunnel", http.StatusInternalServerError)
		return
	}
	defer func() { _ = here.Close() }()
	defer context.AfterFunc(ctx, func() { _, _ = here.Close(), there.Close() })()
	if _, err := io.WriteString(here, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	var up sync.WaitGroup
	up.Go(func() {
		_, _ = io.Copy(there, buffered) // what was read ahead, and then the connection
		half(there)
	})
	_, _ = io.Copy(here, there)
	half(here)
	up.Wait()
}

// half says that no more bytes come, as the other end of a tunnel has said.
func half(c net.Conn) {
	if c, ok := c.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite()
	}
}

// failed answers a request whose host cannot be reached.
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, host string, err error) {
	if refused, ok := errors.AsType[*netguard.Refused](err); ok {
		p.refused(boundary.Name(host))
		refuse(w, r, http.StatusForbidden, refused.Error()+" ("+boundary.Name(host)+")")
		return
	}
	refuse(w, r, http.StatusBadGateway, boundary.Name(host)+" cannot be reached")
}

// refuse answers a request with a status and a sentence. Programs show the status line of a refused
// CONNECT and not what follows, so the sentence stands there too.
func refuse(w http.ResponseWriter, r *http.Request, status int, text string) {
	if r.Method != http.MethodConnect {
		http.Error(w, text, status)
		return
	}
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, text, status)
		return
	}
	_, _ = fmt.Fprintf(c, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s\n", status, text, len(text)+1, text)
	_ = c.Close()
}
