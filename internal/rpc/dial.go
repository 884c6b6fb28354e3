package rpc

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/stats"
)

// defaultTimeout bounds a unary call whose caller set no deadline.
const defaultTimeout = 10 * time.Second

// MaxMessage is the largest message either side accepts, in bytes.
const MaxMessage = 4 << 20

// Windows of a Unix socket. A fixed one also ends the pings that would measure what
// the line can carry: one there and back for each message, on a line that is memory.
const (
	StreamWindow     = 1 << 20
	ConnectionWindow = 4 << 20
)

// DialOptions say how to reach a service; the zero value dials a Unix socket
// without a token.
type DialOptions struct {
	TokenPath string   // file of the capability token, read at the first call and after a rotation; "": none
	As        Identity // who to be known as; zero: the owner

	DefaultTimeout time.Duration // of unary calls without a deadline; 0: 10 s, negative: none
	Safe           []string      // full methods ("/package.Service/Method") that may be repeated on UNAVAILABLE
	WaitForReady   bool          // calls wait for a connection (until their deadline) instead of failing at once
	UserAgent      string        // program and version
	Several        string        // the target stands for several servers, chosen by this balancer of gRPC; see rpc/balance
	More           []grpc.DialOption
	Stats          stats.Handler // sees each call, for traces; nil: none

	Creds    credentials.TransportCredentials                           // TLS for dns:/// targets; nil on Unix sockets
	Dialer   func(ctx context.Context, target string) (net.Conn, error) // with passthrough:///, for an in-memory listener
	Insecure bool                                                       // allow a token without Creds off a Unix socket: tests only
}

// Dial makes a connection to target: unix:///absolute/path, dns:///host:port, or
// passthrough:///name with a Dialer. Nothing is sent before the first call. The
// caller closes it.
func Dial(target string, o DialOptions) (*grpc.ClientConn, error) {
	creds := o.Creds
	switch {
	case creds != nil:
	case o.Insecure:
		creds = insecure.NewCredentials()
	case strings.HasPrefix(target, "unix:"):
		creds = PeerCredentials()
	default:
		return nil, fmt.Errorf("dial %s: only Unix sockets may be used without TLS", target)
	}
	config, err := serviceConfig(o.Safe, o.Several)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", target, err)
	}
	if o.DefaultTimeout == 0 {
		o.DefaultTimeout = defaultTimeout
	}
	// A stopped server (SIGSTOP, a dead machine) is noticed while calls wait for it: sooner
	// where another can take them. 10 s is the shortest that gRPC asks at.
	alive := keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}
	if o.Several != "" {
		alive = keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}
	}
	calls := &outgoing{timeout: o.DefaultTimeout, token: tokenSource{path: o.TokenPath, as: o.As}, safe: o.Safe}
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultServiceConfig(config),
		grpc.WithDisableServiceConfig(), // a resolver must not choose what is safe to repeat
		grpc.WithChainUnaryInterceptor(calls.unary),
		grpc.WithChainStreamInterceptor(calls.stream),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(o.WaitForReady),
			grpc.MaxCallRecvMsgSize(MaxMessage), grpc.MaxCallSendMsgSize(MaxMessage)),
		grpc.WithKeepaliveParams(alive),
		// The default waits up to two minutes; a local restart takes milliseconds.
		grpc.WithConnectParams(grpc.ConnectParams{
			MinConnectTimeout: 5 * time.Second,
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
		}),
	}
	if strings.HasPrefix(target, "unix:") {
		opts = append(opts, grpc.WithStaticStreamWindowSize(StreamWindow), grpc.WithStaticConnWindowSize(ConnectionWindow))
	}
	opts = append(opts, o.More...)
	if o.UserAgent != "" {
		opts = append(opts, grpc.WithUserAgent(o.UserAgent))
	}
	if o.Stats != nil {
		opts = append(opts, grpc.WithStatsHandler(o.Stats))
	}
	if o.Dialer != nil {
		opts = append(opts, grpc.WithContextDialer(o.Dialer))
	}
	cc, err := grpc.NewClient(target, opts...)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", target, err)
	}
	return cc, nil
}

// The part of gRPC's service config that is used here.
type (
	methodName struct {
		Service string `json:"service"`
		Method  string `json:"method"`
	}
	retryPolicy struct {
		MaxAttempts          int      `json:"maxAttempts"`
		InitialBackoff       string   `json:"initialBackoff"`
		MaxBackoff           string   `json:"maxBackoff"`
		BackoffMultiplier    float64  `json:"backoffMultiplier"`
		RetryableStatusCodes []string `json:"retryableStatusCodes"`
	}
	methodConfig struct {
		Name        []methodName `json:"name"`
		RetryPolicy retryPolicy  `json:"retryPolicy"`
	}
	throttling struct {
		MaxTokens  float64 `json:"maxTokens"`
		TokenRatio float64 `json:"tokenRatio"`
	}
	healthCheck struct {
		ServiceName string `json:"serviceName"`
	}
	config struct {
		MethodConfig    []methodConfig        `json:"methodConfig,omitempty"`
		RetryThrottling *throttling           `json:"retryThrottling,omitempty"`
		LoadBalancing   []map[string]struct{} `json:"loadBalancingConfig,omitempty"`
		HealthCheck     *healthCheck          `json:"healthCheckConfig,omitempty"`
	}
)

// serviceConfig writes the retry rule of the safe methods. The throttle stops
// retries when more than about one in ten calls needs one. Of several servers one may
// take all calls that are under way with it: those are repeated at the others.
func serviceConfig(safe []string, several string) (string, error) {
	c := config{}
	if several != "" {
		c.LoadBalancing, c.HealthCheck = []map[string]struct{}{{several: {}}}, &healthCheck{}
	}
	if len(safe) == 0 {
		b, err := json.Marshal(c)
		return string(b), err
	}
	c.RetryThrottling = &throttling{MaxTokens: 10, TokenRatio: 0.1}
	if several != "" {
		c.RetryThrottling = &throttling{MaxTokens: 1000, TokenRatio: 1}
	}
	m := methodConfig{RetryPolicy: retryPolicy{
		MaxAttempts: 4, InitialBackoff: "0.05s", MaxBackoff: "1s",
		BackoffMultiplier: 2, RetryableStatusCodes: []string{"UNAVAILABLE"},
	}}
	for _, full := range safe {
		service, method, ok := strings.Cut(strings.TrimPrefix(full, "/"), "/")
		if !ok || service == "" || method == "" || full[0] != '/' {
			return "", fmt.Errorf("safe method %q: want /package.Service/Method", full)
		}
		m.Name = append(m.Name, methodName{service, method})
	}
	c.MethodConfig = []methodConfig{m}
	b, err := json.Marshal(c)
	return string(b), err
}
