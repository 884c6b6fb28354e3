package runner_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/testing/backendtest"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
)

// state is what the model reads from session_status.
type state struct {
	Agent, Session, Model, Sandbox, Version string
	Epoch                                   struct{ ID, Began string }
	Prompt                                  struct {
		Messages int
		Tokens   int64 `json:"estimated_tokens"`
		Window   int64 `json:"context_window"`
		Percent  int64 `json:"percent_used"`
	}
	Turn struct {
		Answers int
		Input   int64 `json:"input_tokens"`
		Output  int64 `json:"output_tokens"`
		Cost    *float64
	}
	Waiting *int      `json:"waiting_messages"`
	Time    time.Time `json:"time"`
	Zone    string    `json:"time_zone"`
}

// S2-53: session_status, called by agents of the profiles that have it; one of the profile theclaw
// has it not.
func TestSessionStatus(t *testing.T) { eachBackend(t, testSessionStatus) }

func testSessionStatus(t *testing.T, o backendtest.Options) {
	w := openWorld(t, o)
	r := w.runner(nil, func(c *runner.Config) { c.Version = "v1.2.3" })
	for _, profile := range []string{"minimal", "coding"} {
		w.profiled(profile)
		w.wait(r, profile, w.say(r, profile, "say: first"))
		got := reported(t, w.wait(r, profile, w.say(r, profile, "call: session_status {}")))
		if got.Agent != profile || got.Session != "agent:"+profile+":console:cli:dm:cli" || got.Model != "offline/offline" || got.Sandbox != "on" || got.Version != "v1.2.3" {
			t.Errorf("%+v", got)
		}
		first := w.events(profile, cli)[0]
		if got.Epoch.ID == "" || got.Epoch.Began != first.GetCreatedAt() {
			t.Errorf("epoch %+v, the conversation begins with %v", got.Epoch, first)
		}
		if p := got.Prompt; p.Messages != 3 || p.Tokens <= 0 || p.Window <= p.Tokens || p.Percent != p.Tokens*100/p.Window {
			t.Errorf("prompt %+v", p)
		}
		if got.Turn.Answers != 1 || got.Turn.Cost != nil || got.Waiting == nil || *got.Waiting != 0 {
			t.Errorf("turn %+v, waiting %v", got.Turn, got.Waiting)
		}
		if _, offset := got.Time.Zone(); got.Zone != "Asia/Kolkata" || offset != 19800 {
			t.Errorf("time %v of zone %q", got.Time, got.Zone)
		}
	}
	w.profiled("theclaw")
	if end := w.wait(r, "theclaw", w.say(r, "theclaw", "call: session_status {}")); !strings.Contains(end.GetText(), "the tool session_status is not offered") {
		t.Errorf("profile theclaw: %s", end.GetText())
	}
}

// profiled makes and starts an agent with the name of its profile.
func (w *world) profiled(profile string) {
	w.t.Helper()
	if _, err := w.agents.CreateAgent(w.t.Context(), &registrypb.CreateAgentRequest{AgentId: profile}); err != nil {
		w.t.Fatal(err)
	}
	for key, value := range map[string]string{"tools.profile": profile, "user_timezone": "Asia/Kolkata", "outbound": "[]"} {
		if _, err := w.agents.SetAgentConfig(w.t.Context(), &registrypb.SetAgentConfigRequest{AgentId: profile, Key: key, Value: value}); err != nil {
			w.t.Fatal(key, err)
		}
	}
	if _, err := w.agents.StartAgent(w.t.Context(), &registrypb.StartAgentRequest{AgentId: profile}); err != nil {
		w.t.Fatal(err)
	}
}

// reported is the result that the built-in model repeats.
func reported(t *testing.T, end *runnerpb.WaitRunResponse) (s state) {
	t.Helper()
	_, text, ok := strings.Cut(end.GetText(), "\n")
	if err := json.Unmarshal([]byte(text), &s); !ok || err != nil {
		t.Fatalf("%v: %v", end, err)
	}
	return s
}

// S2-53: tokens and cost of the turn are those of its answers, also of those that a runner has
// journaled that is gone.
func TestSessionStatusUsage(t *testing.T) {
	w := newWorld(t)
	w.agent("a1", "tools: {profile: minimal}\noutbound: []")
	gate := make(chan struct{})
	t.Cleanup(func() { close(gate) })
	ask := func(id string, input, output int64) modeltest.Step {
		return modeltest.Step{
			ToolCalls: []modeltest.ToolCall{{ID: id, Name: "session_status", Arguments: []string{`{}`}}},
			Usage:     &modeltest.Usage{Input: input, Output: output},
		}
	}
	script := modeltest.New(t, ask("c1", 1000, 10), modeltest.Step{Text: []string{"never ", "finished"}, Gate: gate}, ask("c2", 2000, 20), modeltest.Say("done"))
	file := filepath.Join(t.TempDir(), "providers.yaml")
	text := fmt.Sprintf("default: work\nproviders:\n  work: {api: openai, base_url: %s, models: [m1], price: {m1: {input: 3, output: 15}}}\n", script.URL())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	priced := func(c *runner.Config) { c.ProvidersFile, c.Grace = file, time.Millisecond }
	r := w.runner(nil, priced)
	id := w.say(r, "a1", "hi")
	w.hears(r, "a1", id, "never ")
	r.stop()
	r = w.runner(nil, priced)
	if end := w.wait(r, "a1", id); end.GetText() != "done" {
		t.Fatalf("ended %v", end)
	}
	requests := script.Requests()
	var got []state
	for _, m := range requests[len(requests)-1].Chat.Messages {
		if m.Role != "tool" {
			continue
		}
		var one state
		if err := json.Unmarshal([]byte(m.Content), &one); err != nil {
			t.Fatal(m.Content, err)
		}
		got = append(got, one)
	}
	if len(got) != 2 {
		t.Fatalf("the model reads %+v", got)
	}
	for n, want := range []struct {
		input, output int64
		cost          string
	}{{1000, 10, "0.00315"}, {3000, 30, "0.00945"}} {
		u := got[n].Turn
		if u.Answers != n+1 || u.Input != want.input || u.Output != want.output || u.Cost == nil || fmt.Sprintf("%.5f", *u.Cost) != want.cost || got[n].Model != "work/m1" {
			t.Errorf("call %d: %+v, want %+v", n+1, got[n], want)
		}
	}
}
