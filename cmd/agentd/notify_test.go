package main

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/theclaw/agents/internal/rpc/serve"
)

// The supervisor hears READY=1 once all services serve, and STOPPING=1 when they drain.
func TestNotify(t *testing.T) {
	dir := t.TempDir()
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "n"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if err := l.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	read := func() string {
		t.Helper()
		b := make([]byte, 100)
		n, err := l.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	o := options{home: filepath.Join(dir, "h"), logLevel: slog.LevelError, logFormat: "text", getenv: func(name string) string {
		return map[string]string{"NOTIFY_SOCKET": filepath.Join(dir, "n")}[name]
	}}
	o.services = []service{{"registry", func(context.Context, *env, string) (component, error) {
		return component{
			register: func(grpc.ServiceRegistrar) {}, policy: serve.Policy{}, token: func() string { return "t" }, close: func() error { return nil },
			run: func(ctx context.Context) error { <-ctx.Done(); return nil },
		}, nil
	}}}
	drain, end := context.WithCancel(t.Context())
	defer end()
	done := make(chan error, 1)
	go func() { done <- run(drain, nil, o, t.Output()) }()
	if got := read(); got != "READY=1" {
		t.Errorf("after the start: %q", got)
	}
	end()
	if got := read(); got != "STOPPING=1" {
		t.Errorf("at the end: %q", got)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	for path, want := range map[string]string{"": "", "vsock:2:3": "is no Unix socket", filepath.Join(dir, "away"): "no such file"} {
		e := &env{options: options{getenv: func(string) string { return path }}}
		if err := e.notify("READY=1"); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", path, err, want)
		}
	}
}
