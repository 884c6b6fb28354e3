package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/net/netutil"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/obs"
	"github.com/theclaw/agents/services/gateway/internal/accounts"
	"github.com/theclaw/agents/services/gateway/internal/intake"
)

// access says who may use a route.
type access int

const (
	// public needs nothing.
	public access = iota + 1
	// signed is checked by its handler: with the secret of the account.
	signed
)

// route is a row of the table of all that is served over HTTP.
type route struct {
	pattern string
	access  access
	handler http.Handler
}

// routes is the table.
func (s *Service) routes() []route {
	return []route{
		{"GET /healthz", public, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })},
		{"POST " + accounts.Hooks + "{name}", signed, intake.New(s.intake)},
	}
}

// handler serves the routes to those whom f permits; a route without a rule is an error. logger
// gets each request at level debug.
func handler(routes []route, f front, logger *slog.Logger) (http.Handler, error) {
	mux := http.NewServeMux()
	for _, r := range routes {
		if r.access == 0 {
			return nil, fmt.Errorf("the route %q has no rule that says who may use it", r.pattern)
		}
		mux.Handle(r.pattern, r.handler)
	}
	// A page of the web in a browser of this machine must not post.
	same := http.NewCrossOriginProtection()
	same.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		f.refused(fault.PermissionDenied)
		intake.Refuse(w, http.StatusForbidden, fault.New(codes.PermissionDenied, fault.InvalidArgument, "the request comes from a page of another origin", "post from a program"))
	}))
	checked := same.Handler(mux)
	return f.check(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		checked.ServeHTTP(w, r)
		logger.Debug("request", "method", r.Method, "path", fmt.Sprintf("%.200s", r.URL.EscapedPath()), "client", peer(r.RemoteAddr).String(), "took", time.Since(began))
	})), nil
}

const (
	maxConnections = 256
	headerLimit    = 16 << 10
	readLimit      = 10 * time.Second
	idleLimit      = time.Minute
	// writeLimit is longer than a program can wait for its attachments and a reply.
	writeLimit = intake.MaxFetch + intake.MaxWait + 30*time.Second
	drainLimit = 5 * time.Second
)

// server is the HTTP server; its zero value serves nothing.
type server struct {
	listener net.Listener
	open     atomic.Int32 // connections
}

// listen binds the address. Connections of senders that are not permitted get few places.
func (s *server) listen(addr string, permitted func(netip.Addr) bool) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	s.listener = netutil.LimitListener(&filter{l, permitted, make(chan struct{}, maxUntrusted)}, maxConnections)
	return nil
}

// serve runs until ctx ends; logger gets what the HTTP server reports. Requests that are being answered then get a few seconds.
func (s *server) serve(ctx context.Context, h http.Handler, metrics *obs.GatewayMetrics, logger *slog.Logger) error {
	if s.listener == nil {
		<-ctx.Done()
		return nil
	}
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: readLimit, ReadTimeout: readLimit, WriteTimeout: writeLimit, IdleTimeout: idleLimit, MaxHeaderBytes: headerLimit,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
		// A request that waits ends when the service does.
		BaseContext: func(net.Listener) context.Context { return intake.Serve(ctx) },
		ConnState: func(_ net.Conn, now http.ConnState) {
			switch now {
			case http.StateNew:
				s.open.Add(1)
				metrics.AddClients(1)
			case http.StateClosed, http.StateHijacked:
				s.open.Add(-1)
				metrics.AddClients(-1)
			}
		},
	}
	drained := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(drained)
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainLimit)
		defer cancel()
		if srv.Shutdown(within) != nil {
			_ = srv.Close()
		}
	})
	if err := srv.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		stop()
		return fmt.Errorf("serve HTTP: %w", err)
	}
	<-drained
	return nil
}
