//go:build proof

package canary_test

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/internal/testing/world"
	"github.com/theclaw/agents/proofs/program"
)

func TestMain(m *testing.M) {
	sandbox.Main()
	program.Main(m)
}

// secrets by the place that holds them.
type secrets map[string]string

// forms are how a secret may look: text, JSON, a URL, base64 with and without an
// offset, hex.
func forms(s string) [][]byte {
	out := [][]byte{[]byte(s), []byte(url.QueryEscape(s)), []byte(hex.EncodeToString([]byte(s))), []byte(strings.ToUpper(hex.EncodeToString([]byte(s))))}
	for i := range 3 { // behind up to two other bytes, without the letters they share
		b := base64.StdEncoding.EncodeToString([]byte("ab"[:i%3] + s))
		core := strings.TrimRight(b[4*((i+2)/3):], "=")
		core = core[:len(core)-2]
		out = append(out, []byte(core), []byte(strings.NewReplacer("+", "-", "/", "_").Replace(core)))
	}
	return out
}

// holds names the places whose secrets stand in b.
func (s secrets) holds(b []byte) (places []string) {
	for place, text := range s {
		if slices.ContainsFunc(forms(text), func(f []byte) bool { return bytes.Contains(b, f) }) {
			places = append(places, place)
		}
	}
	return places
}

func canary(kind string) string { return kind + "-" + strings.ToLower(rand.Text()) + rand.Text() }

// script answers the model's calls: what the person asked for decides.
func script(s secrets, calls *sync.Map) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // half a request is answered too
		calls.Store(r.Header.Get("Authorization"), true)
		switch text := string(body); {
		case strings.Contains(text, "please fail"):
			// As careless providers do: the error repeats the key.
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprintf(w, `{"error":{"message":"bad key %s, sent %s"}}`, s["provider key by env:"], r.Header.Get("Authorization"))
		case strings.Contains(text, `"role":"tool"`):
			stream(w, `{"content":"done"},"finish_reason":"stop"`)
		case strings.Contains(text, "please look"):
			stream(w, fmt.Sprintf(`{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"bash_exec","arguments":%q}}]},"finish_reason":"tool_calls"`,
				`{"command":"env; cat /proc/*/environ /proc/*/cmdline; cat ../../../run/token ../../../providers.yaml; touch up; for i in $(seq 100); do sleep 0.1; [ -e down ] && break; done; true"}`))
		default:
			stream(w, `{"content":"hello"},"finish_reason":"stop"`)
		}
	})
}

func stream(w http.ResponseWriter, choice string) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprint(w, `data: {"id":"1","model":"m1","choices":[{"index":0,"delta":`, choice, "}]}\n\ndata: [DONE]\n\n")
}

// S2-102: secrets of providers, channels and accounts stand in the environment and the files that hold them alone, and
// every file is readable for its owner only.
func TestCanary(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hook")
	s := secrets{
		"provider key by env:": canary("sk"), "channel secret by file:": canary("hook"), "environment of agentd": canary("env"),
	}
	if err := os.WriteFile(file, []byte(s["channel secret by file:"]+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	platforms, gateway := startPlatforms(t, s), port(t)
	for place, text := range s { // the search finds what it is to find
		for _, f := range append(forms(text), []byte(base64.URLEncoding.EncodeToString([]byte("x: "+text+" y")))) {
			if got := s.holds(append([]byte("before "), f...)); !slices.Contains(got, place) {
				t.Fatalf("%s is not found as %s", place, f)
			}
		}
	}
	p := program.Agentd(t)
	p.Env = append(p.Env, "CANARY_KEY="+s["provider key by env:"], "CANARY_ENV="+s["environment of agentd"])
	p.Env = append(p.Env, platforms.env()...)
	site := world.NewSite(t, p)
	var calls sync.Map
	model := httptest.NewServer(script(s, &calls))
	t.Cleanup(model.Close)
	hooked := make(chan struct{}, 100)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		hooked <- struct{}{}
		w.WriteHeader(http.StatusBadRequest) // a delivery that dies, and says why
		_, _ = fmt.Fprintf(w, "wrong secret %s", s["channel secret by file:"])
	}))
	t.Cleanup(hook.Close)
	must(t, os.MkdirAll(site.Home, 0o700))
	must(t, os.WriteFile(filepath.Join(site.Home, "providers.yaml"), fmt.Appendf(nil, "providers: {work: {base_url: %q, models: [m1], api_key: \"env:CANARY_KEY\"}}\n", model.URL+"/v1"), 0o600))
	must(t, os.WriteFile(filepath.Join(site.Home, "theclaw.yaml"), []byte(platforms.settings(gateway)), 0o600))
	metrics, traces := port(t), filepath.Join(t.TempDir(), "traces")
	agentd := site.StartWith(t, []string{"OTEL_TRACES_EXPORTER=file", "THECLAW_TRACE_FILE=" + traces}, "all", "--log-level", "debug", "--metrics-listen", metrics)
	site.Serving(t, agentd, "registry", "runner", "deliverer", "gateway")
	site.Create(t, "admin", "")
	site.Create(t, "a1", fmt.Sprintf("outbound: [{thread_pattern: \"**\", via: hook}]\nchannels: {hook: {type: webhook, url: %q, allow_private: true, secret: \"file:%s\"}}", hook.URL, file))
	outputs := map[string][]byte{}
	platforms.use(t, gateway)
	first := site.Say(t, "a1", world.Peer("p1"), "hello")
	site.Say(t, "a1", world.Peer("p2"), "please fail")
	id, err := site.Push(t.Context(), "a1", world.Peer("p3"), "please look", "")
	must(t, err)
	workdir := filepath.Join(site.Home, "agents/a1/workdir")
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(workdir, "up")); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the tool does not run")
		}
	}
	for i, c := range agentd.Children() {
		for _, what := range []string{"cmdline", "environ"} {
			b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", c.Pid, what)) // it may be gone
			outputs[fmt.Sprintf("%s of child %d", what, i)] = b
		}
	}
	must(t, os.WriteFile(filepath.Join(workdir, "down"), nil, 0o644))
	site.Await(t, "a1", id)
	if _, ok := calls.Load("Bearer " + s["provider key by env:"]); !ok {
		t.Fatal("the key was never used, so nothing is shown")
	}
	select {
	case <-hooked:
	case <-time.After(30 * time.Second):
		t.Fatal("the channel's secret was never used, so nothing is shown")
	}
	token, err := os.ReadFile(filepath.Join(site.Home, "run/token"))
	must(t, err)
	s["run/token"] = strings.TrimSpace(string(token))
	ctl := filepath.Join(filepath.Dir(p.Path), "agentctl")
	for _, line := range []string{
		"doctor", "doctor --json", "status a1 --json", "list --json", "config get a1 pai.model", "config effective a1", "context show a1 " + first.GetThreadId(), "explain a1 1", "explain a1 2 --json", "explain a1 3 --json",
		"errors list --json", "dlq list --json", "events a1 --json", "turns a1 --json", "audit show --json", "usage --json", "providers list --json", "providers test work",
		"export a1 - --peer p3", "backup -", "fsck --json", "file get a1 config.yaml", "lease list --json",
		"channels status", "channels list --json", "pair list", "explain admin 1", "explain admin 4 --json", "sessions list admin", "config effective admin",
	} {
		c := exec.Command(ctl, append(strings.Fields(line), "--home", site.Home)...)
		c.Env = append(append(os.Environ(), platforms.env()...), "CANARY_KEY="+s["provider key by env:"])
		b, err := c.CombinedOutput()
		if len(b) == 0 || err != nil && !strings.HasPrefix(line, "doctor") { // which reports the accounts that are refused
			t.Errorf("agentctl %s: %v, %.500s", line, err, b)
		}
		outputs["agentctl "+strings.Fields(line)[0]] = append(outputs["agentctl "+strings.Fields(line)[0]], b...)
	}
	answer, err := http.Get("http://" + metrics + "/metrics")
	must(t, err)
	outputs["metrics"], err = io.ReadAll(answer.Body)
	must(t, errors.Join(err, answer.Body.Close()))
	agentd.Signal(3) // SIGQUIT: the runtime prints every stack
	<-agentd.Done()
	outputs["agentd's log, and its stacks"] = []byte(agentd.Log())
	outputs["traces"], err = os.ReadFile(traces)
	must(t, err)
	for name, part := range map[string]string{"agentd's log, and its stacks": "goroutine ", "metrics": "theclaw_", "traces": "bash_exec"} {
		if !bytes.Contains(outputs[name], []byte(part)) {
			t.Errorf("%s is not there: %.300s", name, outputs[name])
		}
	}
	files, bytesRead, leaks := 0, 0, 0
	elsewhere := map[string]string{}
	entries, wide := 0, 0
	must(t, filepath.WalkDir(site.Home, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		must(t, err)
		// S9. What programs make in workdir/ has the modes they choose; nobody else gets there.
		if entries++; !strings.HasPrefix(path, workdir+"/") && info.Mode().Perm() != map[bool]fs.FileMode{true: 0o700, false: 0o600}[e.IsDir()] {
			wide++
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		if !e.Type().IsRegular() {
			return nil
		}
		b, err := os.ReadFile(path)
		rel, _ := filepath.Rel(site.Home, path)
		files, bytesRead = files+1, bytesRead+len(b)
		for _, place := range s.holds(b) {
			if place != rel { // the token's own file
				leaks++
				elsewhere[place] = rel
				t.Errorf("%s holds the %s", rel, place)
			}
		}
		return err
	}))
	for name, b := range outputs {
		bytesRead += len(b)
		for _, place := range s.holds(b) {
			leaks++
			elsewhere[place] = name
			t.Errorf("%s holds the %s", name, place)
		}
	}
	fmt.Printf("%-28s %s\n", "secret", "stands elsewhere")
	for place := range s {
		fmt.Printf("%-28s %s\n", place, cmp.Or(elsewhere[place], "no"))
	}
	fmt.Printf("canary secrets=%d forms=%d files=%d outputs=%d bytes=%d leaks=%d entries=%d wide=%d\n", len(s), len(forms("x-0123456789")), files, len(outputs), bytesRead, leaks, entries, wide)
}

// port is an address of this machine where nobody listens.
func port(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, l.Close())
	return l.Addr().String()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
