package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	"github.com/theclaw/agents/internal/rpc/serve"
)

// No service begins to work before all of this process serve: what they read at their start
// would delay the sockets of the others.
func TestServicesWorkOnceAllServe(t *testing.T) {
	drain, end := context.WithCancel(t.Context())
	defer end()
	var made, early, ran atomic.Int32
	names := []string{"registry", "deliverer", "runner"}
	o := options{home: filepath.Join(t.TempDir(), "h"), getenv: func(string) string { return "" }, logLevel: slog.LevelError, logFormat: "text"}
	for _, name := range names {
		o.services = append(o.services, service{name, func(context.Context, *env, string) (component, error) {
			made.Add(1)
			return component{
				register: func(grpc.ServiceRegistrar) {}, policy: serve.Policy{}, token: func() string { return "t" }, close: func() error { return nil },
				run: func(ctx context.Context) error {
					if int(made.Load()) < len(names) {
						early.Add(1)
					}
					if int(ran.Add(1)) == len(names) {
						end()
					}
					<-ctx.Done()
					return nil
				},
			}, nil
		}})
	}
	if err := run(drain, make(chan struct{}), o, t.Output()); err != nil {
		t.Fatal(err)
	}
	if early.Load() != 0 || int(ran.Load()) != len(names) {
		t.Errorf("%d of %d services worked before all served", early.Load(), ran.Load())
	}
}
