package main

import (
	"crypto/rand"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// S7. What breaks with a secret in its value, in a call, a model's round, a tool or a
// send, shows it to nobody: not to the caller, in no file of the home, no log, no trace
// and no metric. The process goes on, and so does the message. The secret is one that
// looks like nothing, so that only who knows it can take it out.
func TestPanicShowsNoSecret(t *testing.T) {
	for label, logged := range map[string]string{
		"T0.before": "call failed", "T1.before": "call failed", "T3.before": "a panic was recovered", "T5.before": "a panic was recovered",
		"T6.before": "call failed", "D2.before": "send panicked",
	} {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			secret := strings.ToLower(rand.Text() + rand.Text())
			model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if r.Header.Get("Authorization") != "Bearer "+secret {
					t.Error("the secret is not used, so nothing is shown")
				}
				w.Header().Set("Content-Type", "text/event-stream")
				choice := `{"delta":{"content":"fine"},"finish_reason":"stop"}`
				if !strings.Contains(string(body), `"role":"tool"`) {
					choice = `{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"bash_exec","arguments":"{\"command\":\"true\"}"}}]},"finish_reason":"tool_calls"}`
				}
				fmt.Fprintf(w, "data: {\"choices\":[%s]}\n\ndata: [DONE]\n\n", choice)
			}))
			t.Cleanup(model.Close)
			site, sink := world.NewSite(t, program(t)), world.NewSink(t)
			if err := os.MkdirAll(site.Home, 0o700); err != nil {
				t.Fatal(err)
			}
			providers := fmt.Sprintf("default: work\nproviders: {work: {api: openai, base_url: %q, models: [m1], api_key: \"env:WORK_KEY\"}}\n", model.URL+"/v1")
			if err := os.WriteFile(filepath.Join(site.Home, "providers.yaml"), []byte(providers), 0o600); err != nil {
				t.Fatal(err)
			}
			metrics, traces := free(t), filepath.Join(t.TempDir(), "traces")
			p := site.StartWith(t, []string{
				"OTEL_TRACES_EXPORTER=file", "THECLAW_TRACE_FILE=" + traces, "WORK_KEY=" + secret,
				failpoint + "=" + label + ":2:panic", panics + "=it broke at " + secret + " of all",
			}, append([]string{"all", "--metrics-listen", metrics}, flags...)...)
			site.Serving(t, p, everything...)
			site.Create(t, "a1", "sandbox: {mode: off}\n"+sink.Config())
			seen := map[string]string{}
			for _, text := range []string{"one", "two"} { // the first one teaches the secret
				id, err := site.Push(t.Context(), "a1", world.Peer("bob"), text, text)
				if label == "T0.before" && text == "two" {
					if seen["answer"] = fmt.Sprint(err); status.Code(err) != codes.Internal {
						t.Fatalf("the call that broke: %v", err)
					}
					id, err = site.Push(t.Context(), "a1", world.Peer("bob"), text, text)
				}
				if err != nil {
					t.Fatal(err)
				}
				if turn := site.Await(t, "a1", id); turn.GetFate() != registryv1.Fate_FATE_REPLIED || site.Reply(t, turn) != "fine" {
					t.Errorf("%s: %v", text, turn)
				}
			}
			p.Says(logged)
			answer, err := http.Get("http://" + metrics + "/metrics")
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(answer.Body)
			if seen["metrics"] = string(b); err != nil || answer.Body.Close() != nil {
				t.Fatal(err)
			}
			p.Signal(15)
			if code := p.Exit(); code != 0 {
				t.Errorf("exit %d", code)
			}
			if seen["log"] = p.Log(); !strings.Contains(seen["log"], "it broke at [redacted] of all") {
				t.Errorf("the log does not say what broke:\n%s", seen["log"])
			}
			for _, root := range []string{site.Home, filepath.Dir(traces)} {
				err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
					if err != nil || !e.Type().IsRegular() {
						return err
					}
					b, err := os.ReadFile(path)
					seen[path] = string(b)
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			for where, text := range seen {
				if strings.Contains(text, secret) {
					t.Errorf("%s holds the secret", where)
				}
			}
			if len(seen) < 8 || seen["metrics"] == "" || seen[traces] == "" {
				t.Errorf("looked at %d places", len(seen))
			}
		})
	}
}
