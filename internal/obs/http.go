package obs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
)

// MetricsOptions configure [ServeMetrics].
type MetricsOptions struct {
	Addr     string                          // "127.0.0.1:9464", "[::1]:9464" or "localhost:9464"; "" serves nothing
	Listener net.Listener                    // takes the place of Addr, e.g. a private Unix socket; closed at the end
	Gatherer prometheus.Gatherer             // what /metrics shows
	Ready    func(ctx context.Context) error // nil error: /readyz answers 200; a nil Ready is always ready
	// Remote permits an address that is not one of loopback, and any Host header. There is no
	// authentication, so the operator limits who can reach the address.
	Remote bool
}

// ListenMetrics binds the address of the metrics, for a process that must know that it
// can serve before it does anything else. There is no authentication here, so the address
// is one of loopback, unless remote is set.
func ListenMetrics(ctx context.Context, addr string, remote bool) (net.Listener, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("split the metrics address: %w", err)
	}
	if !remote && !loopback(host) {
		return nil, errors.New("metrics have no authentication, so the address must be one of loopback, such as 127.0.0.1:9464")
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for metrics: %w", err)
	}
	return l, nil
}

// ServeMetrics serves /metrics, /healthz and /readyz until ctx ends, then
// returns nil. It is off by default: without Addr and Listener it returns at
// once. Unless Remote is set it refuses requests whose Host header is not a loopback name (a web page that
// resolves its own name to 127.0.0.1 would otherwise read the metrics).
func ServeMetrics(ctx context.Context, o MetricsOptions) error {
	l := o.Listener
	if l == nil {
		if o.Addr == "" {
			return nil
		}
		var err error
		if l, err = ListenMetrics(ctx, o.Addr, o.Remote); err != nil {
			return err
		}
	}
	srv := &http.Server{
		Handler:           metricsHandler(o, o.Remote || l.Addr().Network() == "unix"),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second,
		MaxHeaderBytes: 16 << 10,
	}
	var g errgroup.Group
	g.Go(func() error {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve metrics: %w", err)
		}
		return nil
	})
	stop := context.AfterFunc(ctx, func() {
		g.Go(func() error {
			grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			if srv.Shutdown(grace) != nil {
				return srv.Close()
			}
			return nil
		})
	})
	defer stop()
	return g.Wait()
}

func metricsHandler(o MetricsOptions, local bool) http.Handler {
	mux := http.NewServeMux()
	if o.Gatherer != nil {
		mux.Handle("GET /metrics", promhttp.HandlerFor(o.Gatherer, promhttp.HandlerOpts{MaxRequestsInFlight: 2}))
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if o.Ready != nil && o.Ready(r.Context()) != nil {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !local && !LocalHost(r.Host) {
			http.Error(w, "host not allowed", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// LocalHost reports whether the host of a request names this machine. A page of the web can have a
// browser connect to loopback under a name of its own.
func LocalHost(host string) bool { return loopback(hostOnly(host)) }

func hostOnly(hostport string) string {
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		return h
	}
	return strings.Trim(hostport, "[]")
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}
