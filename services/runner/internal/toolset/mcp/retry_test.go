package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/obs"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/toolset"
	"github.com/theclaw/agents/services/runner/internal/toolset/mcp"
	"github.com/theclaw/agents/services/runner/internal/toolset/mcp/mcptest"
	"github.com/theclaw/agents/services/runner/internal/toolset/toolsettest"
)

// What a front does with a call of a tool, other than a status of its own.
const (
	pass  = 0    // the server gets it
	hang  = -1   // nothing is answered
	after = 1000 // added to a status: the server has got the call
)

// front is a proxy before the good server. It answers calls of tools by a script, of which the last entry repeats. It
// has neither a stream of its own nor the protocol that keeps one open, so that a call is what notices that it is gone.
type front struct {
	*httptest.Server
	mu     sync.Mutex
	script []int
	calls  int
}

func newFront(t *testing.T, script ...int) *front {
	t.Helper()
	good, err := url.Parse(mcptest.Serve(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	f, proxy := &front{script: script}, httputil.NewSingleHostReverseProxy(good)
	proxy.ErrorLog = log.New(io.Discard, "", 0) // of calls that were given up
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			http.Error(w, "no stream", http.StatusMethodNotAllowed)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client is gone
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		var m struct{ Method string }
		_ = json.Unmarshal(body, &m) // DELETE has none
		answer := pass
		switch m.Method {
		case "server/discover":
			answer = http.StatusBadRequest
		case "tools/call":
			f.mu.Lock()
			answer = f.script[min(f.calls, len(f.script)-1)]
			f.calls++
			f.mu.Unlock()
		}
		switch {
		case answer == pass:
			proxy.ServeHTTP(w, r)
		case answer == hang:
			<-r.Context().Done()
		default:
			if answer > after {
				proxy.ServeHTTP(httptest.NewRecorder(), r)
			}
			http.Error(w, "of a proxy", answer%after)
		}
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *front) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// waits records for how long a call has waited between its attempts.
type waits struct {
	mu   sync.Mutex
	list []time.Duration
}

func (w *waits) wait(ctx context.Context, d time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, d)
	return ctx.Err()
}

// web has the tools of the server at an address, which were approved.
func web(t *testing.T, address string, limit *durationpb.Duration, wait func(context.Context, time.Duration) error) []toolset.Tool {
	t.Helper()
	servers := mcp.New(mcp.Options{Pins: &approved{}, Root: t.TempDir(), Logger: slog.New(slog.DiscardHandler), Meter: obs.NewRunnerMetrics(nil), Wait: wait})
	t.Cleanup(servers.Close)
	c := &registrypb.TurnConfig{Mcp: []*registrypb.McpServer{{Name: "web", Url: address, Pins: "1", Timeout: limit}}}
	if s, err := servers.Start(t.Context(), "a1", c, "web", false); err != nil || s.GetWhat() != "" {
		t.Fatal(s, err)
	}
	tools, err := servers.Tools(t.Context(), "a1", c)
	if err != nil {
		t.Fatal(err)
	}
	return tools
}

// S3-12, S3-60: a call that a server over HTTP does not answer is no answer of the server. One that reads, or may be
// repeated, is made at 0, 2 and 6 s for 429, 5xx, timeouts and refused connections. One with an effect is made once; it
// is in doubt when it may have begun, and fails when it cannot have. Each is made again in a new session where the server
// does not have the session any more.
func TestRetry(t *testing.T) {
	const done, doubt = registrypb.StepState_STEP_STATE_DONE, registrypb.StepState_STEP_STATE_IN_DOUBT
	second := []time.Duration{2 * time.Second, 4 * time.Second}
	const refused = -2 // the server is gone
	for _, c := range []struct {
		tool   string
		script []int
		calls  int // requests that carry the call
		waits  int
		state  registrypb.StepState
		want   string
		lines  int // effects
	}{
		{"echo", []int{429}, 3, 2, done, "server web: it responded with status 429 Too Many Requests; it was tried 3 times", 0},
		{"echo", []int{500}, 3, 2, done, "status 500 Internal Server Error; it was tried 3 times", 0},
		{"echo", []int{502}, 3, 2, done, "status 502 Bad Gateway", 0},
		{"echo", []int{503}, 3, 2, done, "status 503 Service Unavailable", 0},
		{"echo", []int{504}, 3, 2, done, "status 504 Gateway Timeout", 0},
		{"echo", []int{501}, 3, 2, done, "status 501 Not Implemented", 0},
		{"echo", []int{500, pass}, 2, 1, done, "[external content", 0},
		{"echo", []int{429, 503, pass}, 3, 2, done, "[external content", 0},
		{"echo", []int{hang}, 3, 2, done, "server web: it took too long; it was tried 3 times", 0},
		{"echo", []int{hang, pass}, 2, 1, done, "[external content", 0},
		{"echo", []int{refused}, 0, 2, done, "connection refused; it was tried 3 times", 0},
		{"change", []int{503, pass}, 2, 1, done, "[external content", 0},
		{"fail", []int{pass}, 1, 0, done, "it failed as it should", 0},
		{"append", []int{429}, 1, 0, done, "nothing was run: server web: it responded with status 429", 0},
		{"append", []int{500}, 1, 0, doubt, "status 500 Internal Server Error; outcome unknown, verify before repeating", 0},
		{"append", []int{after + 502}, 1, 0, doubt, "status 502 Bad Gateway; outcome unknown", 1},
		{"append", []int{503}, 1, 0, doubt, "status 503 Service Unavailable; outcome unknown", 0},
		{"append", []int{after + 504}, 1, 0, doubt, "status 504 Gateway Timeout; outcome unknown", 1},
		{"append", []int{hang}, 1, 0, doubt, "it took too long; outcome unknown", 0},
		{"append", []int{refused}, 0, 0, done, "nothing was run: server web: dial tcp", 0},
		{"append", []int{pass}, 1, 0, done, "[external content", 1},
		{"append", []int{404, pass}, 2, 0, done, "[external content", 1}, // the session is gone
		{"append", []int{404}, 2, 0, done, "nothing was run: server web ended", 0},
		{"echo", []int{404, pass}, 2, 0, done, "[external content", 0},
	} {
		t.Run(fmt.Sprint(c.tool, c.script), func(t *testing.T) {
			f, w, limit := newFront(t, c.script...), &waits{}, durationpb.New(time.Minute)
			if c.script[0] == hang {
				limit.Seconds = 1
			}
			wait := func(ctx context.Context, d time.Duration) error {
				if c.script[len(c.script)-1] != hang { // a call that is answered has the time that it needs
					limit.Seconds = 60
				}
				return w.wait(ctx, d)
			}
			if c.tool == "append" {
				f.Config.SetKeepAlivesEnabled(false) // on a connection that was open before it would not be known what was sent
			}
			tools := web(t, f.URL, limit, wait)
			if c.script[0] == refused {
				f.Close()
			}
			file := filepath.Join(t.TempDir(), "log")
			args, err := json.Marshal(map[string]string{"text": "x", "file": file})
			if err != nil {
				t.Fatal(err)
			}
			calls, journal := toolsettest.Calls(t, &registrypb.TurnConfig{}, tools...)
			made := model.ToolCall{ID: "c1", Name: "web__" + c.tool, Arguments: args}
			if _, err := toolsettest.Use(t.Context(), calls, "tool:1:1", made, false); err != nil {
				t.Fatal(err)
			}
			row := journal.Tool("tool:1:1")
			if row.GetState() != c.state || !strings.Contains(string(row.GetResult()), c.want) {
				t.Errorf("journaled as %v: %s", row.GetState(), row.GetResult())
			}
			if isError := !strings.HasPrefix(c.want, "[external"); c.state == done && row.GetIsError() != isError {
				t.Errorf("journaled as an error: %v", row.GetIsError())
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.list = slices.DeleteFunc(w.list, func(d time.Duration) bool { return d < second[0] }) // before the start of a server
			if f.count() != c.calls || !slices.Equal(w.list, second[:c.waits]) {
				t.Errorf("%d requests, which waited %v", f.count(), w.list)
			}
			written, _ := os.ReadFile(file) // none: empty
			if n := strings.Count(string(written), "\n"); n != c.lines {
				t.Errorf("%d effects", n)
			}
		})
	}
}
