package runner_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	server "github.com/theclaw/agents/internal/testing/world"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
)

const (
	replied = registrypb.Fate_FATE_REPLIED
	dead    = registrypb.Fate_FATE_DEAD
)

// play starts the three services with a default provider that follows a script
// over real HTTP. Waits between tries are short; their figures are the retry
// room's to show.
func play(t *testing.T, steps ...modeltest.Step) (*server.World, *modeltest.Server) {
	t.Helper()
	script := modeltest.New(t, steps...)
	return playAt(t, script.URL()), script
}

func playAt(t *testing.T, url string) *server.World {
	t.Helper()
	home := filepath.Join(t.TempDir(), "home")
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("default: work\nproviders:\n  work:\n    base_url: %s\n    api_key: env:E2E_KEY\n    models: [m1, m2]\n", url)
	if err := os.WriteFile(filepath.Join(home, "providers.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return server.Start(t, server.Options{
		Home: home, Env: map[string]string{"E2E_KEY": modeltest.Key},
		Runner: runner.Config{Backoff: 10 * time.Millisecond, Probe: 100 * time.Millisecond},
	})
}

// kinds are the events of a thread in a few words.
func kinds(t *testing.T, w *server.World, turn *registrypb.Turn) []string {
	t.Helper()
	var out []string
	for _, e := range w.Events(t, turn.GetAgentId(), turn.GetThreadId(), "") {
		who, _, _ := strings.Cut(e.GetSource(), ":")
		out = append(out, strings.TrimSuffix(who+" "+e.GetType()+"/"+e.GetSubtype(), "/"))
	}
	return out
}

// want checks the fate and the reply.
func want(t *testing.T, w *server.World, turn *registrypb.Turn, fate registrypb.Fate, reply string) {
	t.Helper()
	if got := w.Reply(t, turn); turn.GetFate() != fate || got != reply {
		t.Fatalf("%v with %q, want %v with %q; told: %v", turn.GetFate(), got, fate, reply, turn)
	}
}

func bash(id, command string) modeltest.ToolCall {
	return modeltest.ToolCall{ID: id, Name: "bash_exec", Arguments: []string{`{"command":`, fmt.Sprintf("%q}", command)}}
}

// A reply that comes in pieces is one reply event; the key goes to the provider
// and nowhere else (S0-75, S0-76, S0-78).
func TestPlainReply(t *testing.T) {
	w, script := play(t, modeltest.Step{Text: []string{"Hel", "lo"}, Usage: &modeltest.Usage{Input: 7, Output: 2}})
	w.Create(t, "a1", "")
	turn := w.Say(t, "a1", server.Peer("bob"), "hi")
	want(t, w, turn, replied, "Hello")
	if got := kinds(t, w, turn); !slices.Equal(got, []string{"external message", "self message"}) {
		t.Errorf("thread holds %q", got)
	}
	if u := turn.GetUsage(); u.GetInput() != 7 || u.GetOutput() != 2 || turn.GetErrorAttempts() != 0 || turn.GetError() != "" {
		t.Errorf("told %v", turn)
	}
	r := script.Requests()
	if len(r) != 1 || r[0].Chat.Model != "m1" || r[0].Chat.LastUser() != "hi" || r[0].Header.Get("Authorization") != "Bearer "+modeltest.Key {
		t.Errorf("asked %+v", r)
	}
	if turn := w.Say(t, "a1", server.Peer("bob"), "again"); turn.GetFate() != dead || strings.Contains(turn.String(), modeltest.Key) {
		t.Errorf("a provider without an answer: %v", turn)
	}
}

// Two rounds of tools run in the sandbox, each is in the journal, and their
// records stand in call order between message and reply (S0-79, S0-103, S0-104).
func TestToolRounds(t *testing.T) {
	w, script := play(t,
		modeltest.Step{ToolCalls: []modeltest.ToolCall{bash("c1", "echo one > f; echo wrote"), bash("c2", "cat f; exit 3")}},
		modeltest.Step{Text: []string{"One more."}, ToolCalls: []modeltest.ToolCall{bash("c3", "basename $(pwd)")}},
		modeltest.Say("done"),
	)
	w.Create(t, "a1", "")
	turn := w.Say(t, "a1", server.Peer("bob"), "work")
	want(t, w, turn, replied, "done")
	record := "self record/toolcall"
	if got := kinds(t, w, turn); !slices.Equal(got, []string{"external message", record, record, record, "self message"}) {
		t.Errorf("thread holds %q", got)
	}
	var steps []string
	for _, s := range turn.GetSteps() {
		steps = append(steps, s.GetKey())
		if s.GetState() != registrypb.StepState_STEP_STATE_DONE {
			t.Errorf("step %v", s)
		}
	}
	if !slices.Equal(steps, []string{"model:1", "tool:1:1", "tool:1:2", "model:2", "tool:2:1", "model:3"}) {
		t.Errorf("journal holds %q", steps)
	}
	r := script.Requests()
	if len(r) != 3 {
		t.Fatalf("%d calls", len(r))
	}
	results := map[string]string{}
	for _, m := range r[2].Chat.Messages {
		if m.Role == "tool" {
			results[m.ToolCallID] = m.Content
		}
	}
	for id, part := range map[string]string{"c1": "wrote", "c2": `"exitCode":3`, "c3": "workdir"} {
		if !strings.Contains(results[id], part) {
			t.Errorf("the result of %s was told as %q, want %q in it", id, results[id], part)
		}
	}
	if tools := r[0].Chat.Tools; len(tools) != 1 || tools[0].Function.Name != "bash_exec" {
		t.Errorf("offered %v", tools)
	}
	for i, e := range w.Events(t, "a1", turn.GetThreadId(), "subtype = 'toolcall'") {
		if command := []string{"echo wrote", "exit 3", "basename"}[i]; !strings.Contains(e.GetContent(), command) {
			t.Errorf("record %d is %s", i, e.GetContent())
		}
	}
}

// Failures that pass are tried again, and told (S0-86): a rate limit, an answer
// that broke off, which is never taken for a short one.
func TestRecovers(t *testing.T) {
	slow := modeltest.Fail(429, "slow down")
	slow.RetryAfter = "1"
	w, script := play(t)
	w.Create(t, "a1", "")
	for _, c := range []struct {
		name  string
		steps []modeltest.Step
		tries int32
	}{
		{"rate limit", []modeltest.Step{modeltest.Fail(429, "slow down"), slow, modeltest.Say("whole")}, 0},
		{"cut", []modeltest.Step{{Text: []string{"who"}, Cut: true}, modeltest.Say("whole")}, 1},
		{"hung up", []modeltest.Step{{HangUp: true}, modeltest.Say("whole")}, 0},
		{"nothing said", []modeltest.Step{{}, modeltest.Say("whole")}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := len(script.Requests())
			script.Push(c.steps...)
			turn := w.Say(t, "a1", server.Peer(c.name[:3]), "hi")
			want(t, w, turn, replied, "whole")
			if n := len(script.Requests()) - before; n != len(c.steps) || turn.GetErrorAttempts() != c.tries {
				t.Errorf("%d calls, told %v", n, turn)
			}
			if got := kinds(t, w, turn); !slices.Equal(got, []string{"external message", "self message"}) {
				t.Errorf("thread holds %q", got)
			}
		})
	}
}

// What another try cannot help is tried once, leaves one error record with its
// reason, and the next message is answered (S0-87, S0-89). What may help is
// tried retry.max_attempts times (S0-45).
func TestDiesAndGoesOn(t *testing.T) {
	w, script := play(t)
	w.Create(t, "a1", "")
	for _, c := range []struct {
		peer, attempts string
		step           modeltest.Step
		calls          int
		say            string
	}{
		{"auth", "3", modeltest.Fail(401, "bad key "+modeltest.Key), 1, "key refused"},
		{"long", "3", modeltest.Step{Status: 400, Error: &modeltest.APIError{Message: "maximum context length", Code: "context_length_exceeded"}}, 1, "prompt too long"},
		{"policy", "3", modeltest.Step{Text: []string{"I"}, Finish: "content_filter"}, 1, "content policy"},
		{"three", "3", modeltest.Step{Text: []string{"ha"}, Cut: true}, 3, "broke off"},
		{"five", "5", modeltest.Step{Text: []string{"ha"}, Cut: true}, 5, "broke off"},
	} {
		t.Run(c.peer, func(t *testing.T) {
			w.Set(t, "a1", "retry.max_attempts", c.attempts)
			before := len(script.Requests())
			for range c.calls {
				script.Push(c.step)
			}
			turn := w.Say(t, "a1", server.Peer(c.peer), "hi")
			want(t, w, turn, dead, "")
			if n := len(script.Requests()) - before; n != c.calls {
				t.Errorf("%d calls", n)
			}
			if !strings.Contains(turn.GetError(), c.say) {
				t.Errorf("the reason is told as %q", turn.GetError())
			}
			errs := w.Events(t, "a1", turn.GetThreadId(), "subtype = 'error'")
			if len(errs) != 1 || errs[0].GetId() != turn.GetErrorEventId() || !strings.Contains(errs[0].GetContent(), c.say) {
				t.Errorf("records %v, told %d", errs, turn.GetErrorEventId())
			}
			if strings.Contains(fmt.Sprint(turn, errs), modeltest.Key) {
				t.Error("the key is in the account")
			}
			script.Push(modeltest.Say("next"))
			want(t, w, w.Say(t, "a1", server.Peer(c.peer), "and now?"), replied, "next")
		})
	}
	status, err := w.Agents.GetAgentStatus(t.Context(), &registrypb.GetAgentStatusRequest{AgentId: "a1"})
	if err != nil {
		t.Fatal(err)
	}
	if in := status.GetInbox(); status.GetDead() != 5 || in.GetPending() != 0 || in.GetLastAckedId() != in.GetHeadId() {
		t.Errorf("status %v", status)
	}
}

// An outage of the provider spends nothing: when it is back, every message is
// answered in the order it came (RELIABILITY section 5).
func TestOutage(t *testing.T) {
	url, end := server.Outage(t)
	w := playAt(t, url+"/v1")
	w.Create(t, "a1", "")
	var ids []int64
	for _, text := range []string{"one", "two", "three"} {
		id, err := w.Push(t.Context(), "a1", server.Peer("bob"), text, "")
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	during := w.Ask(t, "a1", ids[0], time.Second)
	if during.GetFate() != registrypb.Fate_FATE_UNSPECIFIED || during.GetErrorAttempts() != 0 || !strings.Contains(during.GetError(), "unreachable") {
		t.Errorf("told during the outage: %v", during)
	}
	var provider modeltest.Provider
	provider.Push(modeltest.Say("1"), modeltest.Say("2"), modeltest.Say("3"))
	end(&provider)
	for i, id := range ids {
		turn := w.Await(t, "a1", id)
		want(t, w, turn, replied, fmt.Sprint(i+1))
		if turn.GetErrorAttempts() != 0 {
			t.Errorf("told %v", turn)
		}
	}
	for i, r := range provider.Requests() {
		if got := r.Chat.LastUser(); got != []string{"one", "two", "three"}[i] {
			t.Errorf("call %d is about %q", i, got)
		}
	}
}

// NO_REPLY is a decision, not a text: nothing goes out, and the fate is where it is
// recorded (S0-80, S1-54).
func TestSilence(t *testing.T) {
	w, _ := play(t, modeltest.Say("NO_", "REPLY"), modeltest.Say("It is not NO_REPLY today."))
	w.Create(t, "a1", "")
	turn := w.Say(t, "a1", server.Peer("bob"), "fyi")
	want(t, w, turn, registrypb.Fate_FATE_SILENT, "")
	if got := kinds(t, w, turn); !slices.Equal(got, []string{"external message", "self record/decision"}) || turn.GetDelivery() != nil {
		t.Errorf("thread holds %q, delivery %v", got, turn.GetDelivery())
	}
	// S0-80
	if d := w.Events(t, "a1", turn.GetThreadId(), "subtype = 'decision'"); len(d) != 1 || d[0].GetContent() != `{"decision":"skip","why":"silent","inbox_id":1}` {
		t.Errorf("decided %v", d)
	}
	turn = w.Say(t, "a1", server.Peer("bob"), "well?")
	if turn.GetFate() != replied {
		t.Errorf("told %v", turn)
	}
}

// A model that only ever calls tools is ended after 100 rounds (S0-106).
func TestToolLoop(t *testing.T) {
	w, script := play(t, modeltest.Step{Repeat: true, Match: "loop", ToolCalls: []modeltest.ToolCall{{ID: "c", Name: "nothing", Arguments: []string{"{}"}}}})
	w.Create(t, "a1", "")
	turn := w.Say(t, "a1", server.Peer("bob"), "loop")
	want(t, w, turn, dead, "")
	if n := len(script.Requests()); n != 100 || !strings.Contains(turn.GetError(), "100 rounds") {
		t.Errorf("%d calls, told %q", n, turn.GetError())
	}
	if n := len(w.Events(t, "a1", turn.GetThreadId(), "subtype = 'toolcall'")); n != 100 {
		t.Errorf("%d records", n)
	}
	script.Push(modeltest.Say("ok"))
	want(t, w, w.Say(t, "a1", server.Peer("bob"), "stop"), replied, "ok")
}

// A changed configuration holds from the next message on (S0-50), a provider
// that is not there is told (S0-41).
func TestConfigBetweenMessages(t *testing.T) {
	w, script := play(t, modeltest.Say("1"), modeltest.Say("2"), modeltest.Say("3"))
	w.Create(t, "a1", "")
	want(t, w, w.Say(t, "a1", server.Peer("bob"), "one"), replied, "1")
	w.Set(t, "a1", "pai.provider", "work")
	w.Set(t, "a1", "pai.model", "m2")
	want(t, w, w.Say(t, "a1", server.Peer("bob"), "two"), replied, "2")
	w.Set(t, "a1", "pai.provider", "elsewhere")
	turn := w.Say(t, "a1", server.Peer("bob"), "three")
	if turn.GetFate() != dead || !strings.Contains(turn.GetError(), "elsewhere") || turn.GetErrorAttempts() != 0 {
		t.Errorf("told %v", turn)
	}
	w.Set(t, "a1", "pai.provider", "work")
	want(t, w, w.Say(t, "a1", server.Peer("bob"), "four"), replied, "3")
	var models []string
	for _, r := range script.Requests() {
		models = append(models, r.Chat.Model)
	}
	if !slices.Equal(models, []string{"m1", "m2", "m2"}) {
		t.Errorf("models %q", models)
	}
}
