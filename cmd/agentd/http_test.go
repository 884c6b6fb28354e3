package main

import (
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/testing/world"
	gatewayv1 "github.com/theclaw/agents/proto/gen/theclaw/gateway/v1"
)

// S2-03, S2-05: the flag wins over the environment, and that over the settings and the profile;
// each is held to the rule for addresses that others can reach.
func TestListenHTTP(t *testing.T) {
	proxied := layer.Gateway{PublicURL: "https://claw.example.org", TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	off := layer.Gateway{HTTP: layer.HTTPOff}
	for _, c := range []struct {
		name          string
		at            layer.Gateway
		profile, port string
		env           string
		want, problem string
	}{
		{"nothing", layer.Gateway{}, "", "", "", "127.0.0.1:18789", ""},
		{"a profile", layer.Gateway{}, "dev", "", "", "127.0.0.1:18803", ""},
		{"a setting and a profile", layer.Gateway{HTTP: "127.0.0.1:80"}, "dev", "", "", "127.0.0.1:80", ""},
		{"PORT", layer.Gateway{HTTP: "[::1]:80"}, "dev", "", "PORT=81", "[::1]:81", ""},
		{"--port", layer.Gateway{HTTP: "127.0.0.1:80"}, "", "19001", "PORT=81", "127.0.0.1:19001", ""},
		{"--port and a wrong PORT", layer.Gateway{}, "", "19001", "PORT=x", "127.0.0.1:19001", ""},
		{"HOST", layer.Gateway{}, "", "", "HOST=::1", "[::1]:18789", ""},
		{"localhost", layer.Gateway{}, "", "", "HOST=localhost", "127.0.0.1:18789", ""},
		{"a name of the machine", layer.Gateway{}, "", "", "HOST=box-7", "127.0.0.1:18789", ""},
		{"HOST for others", layer.Gateway{}, "", "", "HOST=0.0.0.0 PORT=3100", "", "HOST in the environment: 0.0.0.0 is not an address of loopback; use 127.0.0.1:3100, or set gateway.public_url"},
		{"HOST for a proxy", proxied, "", "", "HOST=0.0.0.0 PORT=3100", "0.0.0.0:3100", ""},
		{"a wrong PORT", layer.Gateway{}, "", "", "PORT=99999", "", "PORT in the environment is"},
		{"off", off, "", "", "HOST=127.0.0.1 PORT=81", "", ""},
		{"off and --port", off, "", "19001", "", "127.0.0.1:19001", ""},
	} {
		o := options{profile: c.profile, port: c.port, getenv: func(name string) string {
			for _, v := range strings.Fields(c.env) {
				if value, ok := strings.CutPrefix(v, name+"="); ok {
					return value
				}
			}
			return ""
		}}
		got, problem := listenHTTP(o, c.at, slog.New(slog.DiscardHandler))
		if got != c.want || !strings.HasPrefix(problem, c.problem) || c.problem == "" && problem != "" {
			t.Errorf("%s: %q %q, want %q %q", c.name, got, problem, c.want, c.problem)
		}
	}
}

// S2-03, S2-04, S3-100: a gateway that listens as the environment and the flag say, and a process
// that ps shows by its name and its service; what the environment may not say leaves the other
// services as they are.
func TestPortOfTheGateway(t *testing.T) {
	site := world.NewSite(t, program(t))
	p := site.StartWith(t, []string{"HOST=127.0.0.2", "PORT=1"}, "all", "--port", "0")
	site.Serving(t, p, everything...)
	info := func() *gatewayv1.GetGatewayInfoResponse {
		t.Helper()
		r, err := gatewayv1.NewGatewayServiceClient(site.Dial(t, "gateway", rpc.Identity{})).GetGatewayInfo(t.Context(), &gatewayv1.GetGatewayInfoRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	at := info().GetHttp()
	if !strings.HasPrefix(at, "127.0.0.2:") || at == "127.0.0.2:1" {
		t.Fatalf("it listens at %s", at)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	if b, err := io.ReadAll(got.Body); err != nil || string(b) != "ok\n" {
		t.Errorf("%s, %v", b, err)
	}
	proc := filepath.Join("/proc", strconv.Itoa(p.Pid()))
	name, err1 := os.ReadFile(filepath.Join(proc, "comm"))
	line, err2 := os.ReadFile(filepath.Join(proc, "cmdline"))
	if self := filepath.Base(program(t).Path); err1 != nil || err2 != nil || strings.TrimSpace(string(name)) != self[:min(len(self), 15)] || !strings.Contains(string(line), "\x00all\x00--port\x000\x00") {
		t.Errorf("ps shows %s %q, %v %v", name, line, err1, err2)
	}
	other := world.NewSite(t, program(t))
	p = other.StartWith(t, []string{"HOST=0.0.0.0"}, "all", "--port", "0")
	other.Serving(t, p, everything...)
	site = other
	if r := info(); r.GetHttp() != "" || !strings.Contains(r.GetHttpProblem(), "0.0.0.0 is not an address of loopback") {
		t.Errorf("with HOST=0.0.0.0: %v", r)
	}
}
