package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/theclaw/agents/internal/testing/world"
)

// SECURITY "unauthenticated loopback": beside the metrics stand health and
// readiness, and no profile. Ready means that every service of the process serves.
func TestReadyBesideMetrics(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	site := world.NewSite(t, program(t))
	p := site.Start(t, "all", "--metrics-listen", addr)
	site.Serving(t, p, everything...)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(path string) (int, string) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			return 0, err.Error()
		}
		defer func() { _ = resp.Body.Close() }()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Error(err)
		}
		return resp.StatusCode, string(b)
	}
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/debug/pprof/": 404, "/debug/pprof/heap": 404} {
		if code, body := get(path); code != want {
			t.Errorf("%s: %d %s, want %d", path, code, body, want)
		}
	}
	if _, body := get("/metrics"); !strings.Contains(body, "theclaw_registry_disk_free_bytes ") {
		t.Error("no free bytes among the metrics")
	}
	p.Signal(syscall.SIGTERM)
	if code := p.Exit(); code != 0 {
		t.Errorf("exit %d: %s", code, p.Log())
	}
	// A process with one of the services alone waits for nobody else's.
	q := site.Start(t, "registry", "--metrics-listen", addr)
	site.Serving(t, q, "registry")
	if code, body := get("/readyz"); code != 200 {
		t.Errorf("the registry alone: %d %s", code, body)
	}
	q.Signal(syscall.SIGTERM)
	q.Exit()
}

// An address that is taken ends the process at once: nothing has been served, and the
// error names the address, its flag and what to do.
func TestAddressInUse(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	addr := l.Addr().String()
	for _, flag := range []string{"--metrics-listen", "--listen"} {
		for _, service := range []string{"all", "registry", "runner", "deliverer"} {
			p := world.NewSite(t, program(t)).Start(t, service, flag, addr)
			want := "Error: cannot listen on " + addr + ": another process uses this address - end that process, or choose another " + flag + " address"
			if code := p.Exit(); code != 1 || !strings.Contains(p.Log(), want) || strings.Contains(p.Log(), "msg=serving") {
				t.Errorf("%s %s: exit %d, %s", service, flag, code, p.Log())
			}
		}
	}
	p := world.NewSite(t, program(t)).Start(t, "all", "--metrics-listen", "0.0.0.0:0")
	if code := p.Exit(); code != 1 || !strings.Contains(p.Log(), "must be one of loopback") {
		t.Errorf("exit %d, %s", code, p.Log())
	}
	q := world.NewSite(t, program(t)).Start(t, "all", "--metrics-remote")
	if code := q.Exit(); code != 2 || !strings.Contains(q.Log(), "--metrics-remote goes with --metrics-listen") {
		t.Errorf("exit %d, %s", code, q.Log())
	}
	site := world.NewSite(t, program(t))
	r := site.Start(t, "all", "--metrics-listen", "0.0.0.0:0", "--metrics-remote")
	site.Serving(t, r, everything...)
	r.Signal(syscall.SIGTERM)
	r.Exit()
}

// The pages say that health needs no token: each socket answers a caller of the same user
// that has none.
func TestHealthNeedsNoToken(t *testing.T) {
	site := world.NewSite(t, program(t))
	p := site.Start(t, "all")
	site.Serving(t, p, everything...)
	for _, name := range everything {
		conn, err := grpc.NewClient("unix://"+site.Socket(name), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		for _, service := range []string{"", "theclaw." + name + ".v1." + strings.ToUpper(name[:1]) + name[1:] + "Service"} {
			if name == "registry" && service != "" {
				service = "theclaw.registry.v1.AgentService"
			}
			r, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
			if err != nil || r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
				t.Errorf("%s %q: %v, %v", name, service, r, err)
			}
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	p.Signal(syscall.SIGTERM)
	p.Exit()
}

// A socket that another process serves is named, with what to do.
func TestSocketInUse(t *testing.T) {
	site := world.NewSite(t, program(t))
	first := site.Start(t, "runner")
	site.Serving(t, first, "runner")
	second := site.Start(t, "all")
	if code := second.Exit(); code != 1 || !strings.Contains(second.Log(), "another process serves the runner at ") || !strings.Contains(second.Log(), " - end that process") {
		t.Errorf("exit %d, %s", code, second.Log())
	}
	first.Signal(syscall.SIGTERM)
	first.Exit()
}
