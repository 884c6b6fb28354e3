//go:build proof

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// oneTool is a provider that asks for a command, and has the last word after it.
func oneTool(t *testing.T, command string) (url string, asked *atomic.Int32) {
	t.Helper()
	asked = new(atomic.Int32)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		args, err := json.Marshal(map[string]string{"command": command, "comment": "test"})
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c1\",\"function\":{\"name\":\"bash_exec\",\"arguments\":%q}}]},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n", args)
	}))
	t.Cleanup(s.Close)
	return s.URL, asked
}

// kill -9 of the runner while pai runs a tool: nothing of it lives on, the call is
// in doubt, and the next runner does not make it again (P1, RELIABILITY T5).
func TestRunnerKilledWhilePaiRuns(t *testing.T) {
	dir, self := t.TempDir(), program(t)
	if err := os.Symlink(self.Path, filepath.Join(dir, "pai")); err != nil {
		t.Fatal(err)
	}
	fifo, ran := filepath.Join(dir, "fifo"), filepath.Join(dir, "ran")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	url, asked := oneTool(t, "exec 9>"+fifo+"; echo ran >> "+ran+"; setsid sleep 600 & echo go >&9; sleep 601; echo end >> "+ran)
	config := filepath.Join(dir, "pai.json")
	text := fmt.Sprintf(`{"defaultProvider":"f","providers":[{"name":"f","apiKey":"k","api":"openai-completions","baseUrl":%q,"defaultModel":"m"}]}`, url)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	self.Env = append(self.Env, "PAI_CONFIG="+config, "PAI_COMMAND="+filepath.Join(dir, "pai"))
	site := world.NewSite(t, self)
	registry := site.Start(t, append([]string{"registry"}, flags...)...)
	site.Serving(t, registry, "registry")
	runner := site.Start(t, append([]string{"runner"}, flags...)...)
	site.Create(t, "a1", "")
	site.Set(t, "a1", "sandbox.mode", "off")
	site.Set(t, "a1", "pai.provider", "pai")
	id, err := site.Push(t.Context(), "a1", world.Peer("bob"), "work", "")
	if err != nil {
		t.Fatal(err)
	}
	held, err := os.Open(fifo) // waits for the tool, whose processes all hold it
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if _, err := held.Read(make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	children := runner.Children()
	for _, name := range []string{"pai", "bash"} {
		if !slices.ContainsFunc(children, func(c world.Child) bool { return c.Name == name }) {
			t.Fatalf("%s does not run: %v", name, children)
		}
	}
	runner.Kill()
	world.Gone(t, children)
	gone := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, held)
		close(gone)
	}()
	select {
	case <-gone:
	case <-time.After(30 * time.Second):
		t.Error("a process of the tool lives on")
	}
	t.Logf("%d processes ended with the runner", len(children))

	site.Start(t, append([]string{"runner"}, flags...)...)
	turn := site.Await(t, "a1", id)
	if turn.GetFate() != registryv1.Fate_FATE_DEAD || !strings.Contains(turn.GetError(), "in doubt") || turn.GetReplyEventId() != 0 {
		t.Errorf("told %v", turn)
	}
	for _, s := range turn.GetSteps() {
		if s.GetState() != registryv1.StepState_STEP_STATE_IN_DOUBT {
			t.Errorf("step %v", s)
		}
	}
	var kinds []string
	for _, e := range site.Events(t, "a1", turn.GetThreadId(), "type = 'record'") {
		kinds = append(kinds, e.GetSubtype())
	}
	if len(turn.GetSteps()) != 2 || !slices.Equal(kinds, []string{"toolcall", "error"}) {
		t.Errorf("%d steps, records %q", len(turn.GetSteps()), kinds)
	}
	if left, err := filepath.Glob(filepath.Join(site.Home, "agents/a1/sessions/*")); err != nil || len(left) != 1 || filepath.Ext(left[0]) != ".jsonl" {
		t.Errorf("left %q, %v", left, err)
	}
	if b, err := os.ReadFile(ran); err != nil || string(b) != "ran\n" || asked.Load() != 1 {
		t.Errorf("the tool's traces: %q, %v; %d requests", b, err, asked.Load())
	}
}
