package obs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/theclaw/agents/internal/obs"
)

// touchAll gives every metric of the system at least one series.
func touchAll(r prometheus.Registerer) {
	reg := obs.NewRegistryMetrics(r)
	one := func(n int64) map[string]int64 { return map[string]int64{"a1": n} }
	reg.SetLagSource(func(context.Context) (obs.Lags, error) {
		return obs.Lags{Inbox: one(3), Acked: one(7), Outbound: one(1)}, nil
	})
	reg.Leases.WithLabelValues("held").Set(1)
	reg.DispatchLatency.Observe(.001)
	reg.Pushes.Inc()
	reg.DedupHits.Inc()
	reg.Commits.WithLabelValues("full").Inc()
	reg.OpenDatabases.Set(2)
	reg.DiskFree.Set(1 << 30)
	reg.AddApproval("exec", "once")
	reg.AddQuestion("answered")
	reg.SetPairings("pending", 1)
	reg.SetBindings(1)
	run := obs.NewRunnerMetrics(r)
	run.ObserveTurn("replied", time.Second)
	run.ObserveStep("model", time.Second)
	run.AddTokens("input", "offline", "offline", 7)
	run.AddCost("offline", "offline", 0.5)
	run.AddRetry("rate_limit")
	run.AddCommand("new")
	run.SetSandboxLevel("full")
	run.ServerState("github", "starting", "up")
	run.AddServerRestart("github")
	run.AddCall("exec", "effect", "ok", time.Second)
	run.AddDenied("home")
	run.AddTruncated("exec")
	run.WaitBegins("approval")
	run.WaitEnds("approval", "answered", time.Second)
	run.ProcessState("", "running")
	run.AddEgressRefused()
	run.CallBegins()
	run.CallEnds()
	run.AddSandbox("docker", "agent", 1)
	run.TurnsActive.Set(1)
	del := obs.NewDelivererMetrics(r)
	del.ObserveDelivery("xgw", "sent", time.Second)
	del.SetBreaker("xgw", "open")
	gw := obs.NewGatewayMetrics(r)
	gw.SetInflight("tg", 1)
	gw.AddRefused("PEER_REFUSED")
	gw.AddClients(1)
}

func TestMetricNamesPassLint(t *testing.T) {
	r := prometheus.NewRegistry()
	touchAll(r)
	problems, err := testutil.GatherAndLint(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	families, err := r.Gather()
	if err != nil || len(families) != 44 {
		t.Fatalf("%d families, %v", len(families), err)
	}
	for _, f := range families {
		if n := f.GetName(); !strings.HasPrefix(n, "theclaw_registry_") && !strings.HasPrefix(n, "theclaw_runner_") && !strings.HasPrefix(n, "theclaw_deliverer_") && !strings.HasPrefix(n, "theclaw_gateway_") {
			t.Errorf("%s: want theclaw_<service>_", n)
		}
		if strings.HasSuffix(f.GetName(), "_duration_seconds") && f.Metric[0].Histogram.Schema == nil {
			t.Errorf("%s: not a native histogram", f.GetName())
		}
	}
}

// Ten thousand idle agents must not cost memory: an agent without lag has no series.
func TestIdleAgentsHaveNoSeries(t *testing.T) {
	r := prometheus.NewRegistry()
	lag := map[string]int64{}
	for i := range 100 {
		lag[fmt.Sprint("a", i)] = 0
	}
	obs.NewRegistryMetrics(r).SetLagSource(func(context.Context) (obs.Lags, error) { return obs.Lags{Inbox: lag, Acked: lag, Outbound: lag}, nil })
	if n, err := testutil.GatherAndCount(r, "theclaw_registry_inbox_lag_events", "theclaw_registry_inbox_acked_id", "theclaw_registry_outbound_lag_events"); err != nil || n != 0 {
		t.Errorf("%d series, %v", n, err)
	}
}

func TestConfiguredNamesCannotMakeUnboundedSeries(t *testing.T) {
	r := prometheus.NewRegistry()
	m := obs.NewRunnerMetrics(r)
	for i := range 1000 {
		m.AddTokens("input", "p", fmt.Sprint("model-", i), 1)
	}
	if n, err := testutil.GatherAndCount(r, "theclaw_runner_tokens_total"); err != nil || n > 65 {
		t.Errorf("%d series, %v", n, err)
	}
}

// serveOn runs ServeMetrics on l and returns a client for it.
func serveOn(t *testing.T, l net.Listener, ready func(context.Context) error) *http.Client {
	t.Helper()
	r := obs.NewRegistry()
	touchAll(r)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- obs.ServeMetrics(ctx, obs.MetricsOptions{Listener: l, Gatherer: r, Ready: ready}) }()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, l.Addr().Network(), l.Addr().String())
	}}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return &http.Client{Transport: tr}
}

func get(t *testing.T, c *http.Client, url string) (int, string) {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// SECURITY "unauthenticated loopback": metrics on loopback with Host check.
func TestServeMetricsChecksHost(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	notReady := true
	c := serveOn(t, l, func(context.Context) error {
		if notReady {
			return errors.New("starting")
		}
		return nil
	})
	for url, want := range map[string]int{
		"http://localhost/healthz": 200, "http://127.0.0.1:1/healthz": 200, "http://[::1]/healthz": 200,
		"http://evil.example/metrics": 403, "http://127.0.0.1.evil.example/metrics": 403, "http://10.0.0.1/metrics": 403,
		"http://localhost/readyz": 503, "http://localhost/debug/pprof/": 404,
	} {
		if code, _ := get(t, c, url); code != want {
			t.Errorf("%s: %d, want %d", url, code, want)
		}
	}
	notReady = false
	if code, _ := get(t, c, "http://localhost/readyz"); code != 200 {
		t.Errorf("readyz when ready: %d", code)
	}
	code, body := get(t, c, "http://localhost/metrics")
	for _, want := range []string{"go_goroutines", "process_resident_memory_bytes", `theclaw_registry_inbox_lag_events{agent_id="a1"} 3`} {
		if code != 200 || !strings.Contains(body, want) {
			t.Errorf("metrics: %d, no %s", code, want)
		}
	}
}

func TestServeMetricsOnUnixSocket(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "m.sock"))
	if err != nil {
		t.Fatal(err)
	}
	if code, _ := get(t, serveOn(t, l, nil), "http://metrics/readyz"); code != 200 {
		t.Errorf("readyz: %d", code)
	}
}

// S1: nothing listens until asked, and never beyond loopback.
func TestServeMetricsIsOffByDefaultAndLoopbackOnly(t *testing.T) {
	if err := obs.ServeMetrics(t.Context(), obs.MetricsOptions{}); err != nil {
		t.Errorf("off: %v", err)
	}
	for _, addr := range []string{"0.0.0.0:0", ":9464", "[::]:0", "192.0.2.1:0", "9464"} {
		if err := obs.ServeMetrics(t.Context(), obs.MetricsOptions{Addr: addr}); err == nil {
			t.Errorf("%q accepted", addr)
		}
	}
}

// Where remote is set, another machine may ask by whatever name it has for this one.
func TestServeMetricsRemote(t *testing.T) {
	if _, err := obs.ListenMetrics(t.Context(), "9464", true); err == nil {
		t.Error("an address without a port is taken")
	}
	l, err := obs.ListenMetrics(t.Context(), "0.0.0.0:0", true)
	if err != nil {
		t.Fatal(err)
	}
	r := obs.NewRegistry()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- obs.ServeMetrics(ctx, obs.MetricsOptions{Listener: l, Gatherer: r, Remote: true})
	}()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		_, port, _ := net.SplitHostPort(l.Addr().String())
		return new(net.Dialer).DialContext(ctx, "tcp", "127.0.0.1:"+port)
	}}}
	if code, body := get(t, c, "http://theclaw-0.theclaw.agents.svc:9464/metrics"); code != 200 || !strings.Contains(body, "go_goroutines") {
		t.Errorf("metrics by another name: %d", code)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Lags that are asked for are those of the last answer; without one they stay.
func TestSetLagSource(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	m := obs.NewRegistryMetrics(r)
	look := func(l obs.Lags, err error) {
		m.SetLagSource(func(context.Context) (obs.Lags, error) { return l, err })
	}
	look(obs.Lags{Inbox: map[string]int64{"old": 3}}, nil)
	text := func() string {
		t.Helper()
		all, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for _, f := range all {
			if strings.Contains(f.GetName(), "_lag_") {
				b.WriteString(f.String())
			}
		}
		return b.String()
	}
	if !strings.Contains(text(), "old") {
		t.Error("what was set is not there")
	}
	look(obs.Lags{Inbox: map[string]int64{"a1": 2}}, nil)
	if got := text(); !strings.Contains(got, "a1") || strings.Contains(got, "old") {
		t.Error(got)
	}
	look(obs.Lags{}, errors.New("away"))
	if got := text(); !strings.Contains(got, "a1") {
		t.Error(got)
	}
}
