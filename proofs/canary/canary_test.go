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
	"maps"
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
	mcpMain() // in the sandbox, it is a server
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

// search returns in which files of a home and in which outputs secrets stand, by their places, with how many files and
// bytes it read. The file of a secret may hold it.
func (s secrets) search(t *testing.T, home string, outputs map[string][]byte) (found map[string][]string, files, read int) {
	t.Helper()
	found = map[string][]string{}
	note := func(name string, b []byte) {
		read += len(b)
		for _, place := range s.holds(b) {
			if place != name {
				found[place] = append(found[place], name)
			}
		}
	}
	must(t, filepath.WalkDir(home, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		rel, _ := filepath.Rel(home, path) // path is below home
		files++
		note(rel, b)
		return err
	}))
	for _, name := range slices.Sorted(maps.Keys(outputs)) {
		note(name, outputs[name])
	}
	return found, files, read
}

func canary(kind string) string { return kind + "-" + strings.ToLower(rand.Text()) + rand.Text() }

// asked is what a model was sent.
type asked struct {
	mu     sync.Mutex
	keys   map[string]bool // of the requests
	bodies bytes.Buffer
}

func (a *asked) add(r *http.Request, body []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keys[r.Header.Get("Authorization")] = true
	_, _ = a.bodies.Write(append(body, '\n')) // it does not fail
}

func (a *asked) text() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.bodies.String()
}

// script answers the model's calls: what the person asked for decides.
func script(s secrets, v *servers, calls *asked) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // half a request is answered too
		calls.add(r, body)
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
		case strings.Contains(text, "please connect"):
			stream(w, v.calls())
		default:
			stream(w, `{"content":"hello"},"finish_reason":"stop"`)
		}
	})
}

func stream(w http.ResponseWriter, choice string) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprint(w, `data: {"id":"1","model":"m1","choices":[{"index":0,"delta":`, choice, "}]}\n\ndata: [DONE]\n\n")
}

// S2-102, S4-93: secrets of providers, channels, accounts, MCP servers and web tools stand in the environment and the files
// that hold them alone, also when a server repeats its own, and every file is readable for its owner only.
func TestCanary(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hook")
	s := secrets{
		"provider key by env:": canary("sk"), "channel secret by file:": canary("hook"), "environment of agentd": canary("env"),
	}
	if err := os.WriteFile(file, []byte(s["channel secret by file:"]+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	platforms, servers, gateway := startPlatforms(t, s), startServers(t, s), port(t)
	for place, text := range s { // the search finds what it is to find
		for _, f := range append(forms(text), []byte(base64.URLEncoding.EncodeToString([]byte("x: "+text+" y")))) {
			if got := s.holds(append([]byte("before "), f...)); !slices.Contains(got, place) {
				t.Fatalf("%s is not found as %s", place, f)
			}
		}
	}
	p := program.Agentd(t)
	p.Env = append(p.Env, "CANARY_KEY="+s["provider key by env:"], "CANARY_ENV="+s["environment of agentd"])
	p.Env = append(append(p.Env, platforms.env()...), servers.env()...)
	site := world.NewSite(t, p)
	calls := &asked{keys: map[string]bool{}}
	model := httptest.NewServer(script(s, servers, calls))
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
	must(t, os.WriteFile(filepath.Join(site.Home, "theclaw.yaml"), []byte(platforms.settings(gateway)+servers.settings(t)), 0o600))
	metrics, traces := port(t), filepath.Join(t.TempDir(), "traces")
	agentd := site.StartWith(t, []string{"OTEL_TRACES_EXPORTER=file", "THECLAW_TRACE_FILE=" + traces}, "all", "--log-level", "debug", "--metrics-listen", metrics)
	site.Serving(t, agentd, "registry", "runner", "deliverer", "gateway")
	site.Create(t, "admin", "")
	site.Create(t, "a1", fmt.Sprintf("tools: {also_allow: [http_request]}\nmcp: {use: [local, remote]}\noutbound: [{thread_pattern: \"**\", via: hook}]\nchannels: {hook: {type: webhook, url: %q, allow_private: true, secret: \"file:%s\"}}", hook.URL, file))
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
	ctl := func(line string) ([]byte, error) {
		c := exec.Command(filepath.Join(filepath.Dir(p.Path), "agentctl"), append(strings.Fields(line), "--home", site.Home)...)
		c.Env = append(append(append(os.Environ(), platforms.env()...), servers.env()...), "CANARY_KEY="+s["provider key by env:"])
		b, err := c.CombinedOutput()
		outputs["agentctl "+strings.Fields(line)[0]] = append(outputs["agentctl "+strings.Fields(line)[0]], b...)
		return b, err
	}
	servers.use(t, site, func(line string) {
		t.Helper()
		if b, err := ctl(line); err != nil {
			t.Fatalf("agentctl %s: %v, %s", line, err, b)
		}
	}, calls.text)
	if !calls.keys["Bearer "+s["provider key by env:"]] {
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
	for _, line := range []string{
		"doctor", "doctor --json", "status a1 --json", "list --json", "config get a1 pai.model", "config effective a1", "context show a1 " + first.GetThreadId(), "explain a1 1", "explain a1 2 --json", "explain a1 3 --json",
		"errors list --json", "dlq list --json", "events a1 --json", "turns a1 --json", "audit show --json", "usage --json", "providers list --json", "providers test work",
		"export a1 - --peer p3", "backup -", "fsck --json", "file get a1 config.yaml", "lease list --json",
		"mcp list --json", "explain a1 4 --json", "channels status", "channels list --json", "pair list", "explain admin 1", "explain admin 4 --json", "sessions list admin", "config effective admin",
	} {
		// doctor reports the accounts that are refused.
		if b, err := ctl(line); len(b) == 0 || err != nil && !strings.HasPrefix(line, "doctor") {
			t.Errorf("agentctl %s: %v, %.500s", line, err, b)
		}
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
	for _, span := range []string{"channel receive", "sandbox run", "mcp call"} {
		if !bytes.Contains(outputs["traces"], []byte(span)) {
			t.Errorf("the traces have no span %s", span)
		}
	}
	outputs["requests to the model"] = []byte(calls.text())
	// S9. What programs make in workdir/ has the modes they choose; no other user gets there.
	entries, wide := 0, 0
	must(t, filepath.WalkDir(site.Home, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		must(t, err)
		if entries++; !strings.HasPrefix(path, workdir+"/") && info.Mode().Perm() != map[bool]fs.FileMode{true: 0o700, false: 0o600}[e.IsDir()] {
			wide++
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return nil
	}))
	found, files, bytesRead := s.search(t, site.Home, outputs)
	elsewhere, leaks := map[string]string{}, 0
	for place, names := range found {
		elsewhere[place], leaks = names[0], leaks+len(names)
		t.Errorf("the %s stands in %q", place, names)
	}
	// The control: the same search finds each secret in a file of the home that holds it, in another form, and in an output.
	for place, text := range s {
		must(t, os.WriteFile(filepath.Join(workdir, "leak"), fmt.Appendf(nil, "x%sx", base64.StdEncoding.EncodeToString([]byte("x"+text+"x"))), 0o600))
		control, _, _ := s.search(t, site.Home, map[string][]byte{"an output": []byte("x" + url.QueryEscape(text) + "x")})
		if want := []string{"agents/a1/workdir/leak", "an output"}; len(elsewhere) == 0 && (len(control) != 1 || !slices.Equal(control[place], want)) {
			t.Errorf("the %s was put into %q, and is found in %q", place, want, control)
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
