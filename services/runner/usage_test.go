package runner_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/theclaw/agents/internal/fault"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
)

// tokens of a usage, to be compared.
type tokens struct{ input, output, cached, written, reasoning int64 }

func (t *tokens) add(u *registrypb.Usage) {
	t.input += u.GetInput()
	t.output += u.GetOutput()
	t.cached += u.GetCachedInput()
	t.written += u.GetCacheWrite()
	t.reasoning += u.GetReasoning()
}

// S1-13: every answer that a turn committed counts once, through failed tries,
// answers that were of no use and the end of a runner in the middle of one; the
// sum is the provider's own.
func TestUsageIsTheProvidersCount(t *testing.T) {
	w := newWorld(t)
	w.agent("a1", "")
	gate := make(chan struct{})
	t.Cleanup(func() { close(gate) })
	useless := &modeltest.Usage{Input: 1000, Output: 1}
	script := modeltest.New(t,
		modeltest.Fail(503, "busy"),
		modeltest.Step{Text: []string{"half an"}, Usage: &modeltest.Usage{Input: 500, Output: 3}, Cut: true},
		modeltest.Step{Usage: useless}, // an answer without a word is paid, and tried again
	)
	r := w.runner(script, func(c *runner.Config) { c.Backoff = time.Millisecond })
	if end := w.wait(r, "a1", w.say(r, "a1", "nothing comes of this")); end.GetStatus() != runnerpb.RunStatus_RUN_STATUS_ERROR || end.GetInputTokens() != 0 {
		t.Fatalf("ended %v", end)
	}
	script.Push(
		modeltest.Fail(429, "slow down"),
		modeltest.Step{
			ToolCalls: []modeltest.ToolCall{{ID: "c1", Name: "bash_exec", Arguments: []string{`{"command":"true"}`}}},
			Usage:     &modeltest.Usage{Input: 100, Output: 20, Cached: 10, CacheWrite: 60, Reasoning: 5},
		},
		modeltest.Step{Text: []string{"never ", "finished"}, Gate: gate, Usage: &modeltest.Usage{Input: 9000, Output: 9000}},
		modeltest.Step{Text: []string{"finished"}, Usage: &modeltest.Usage{Input: 130, Output: 4, Cached: 70, Reasoning: 1}},
		modeltest.Step{Text: []string{"again"}, Usage: &modeltest.Usage{Input: 150, Output: 6}},
	)
	r.stop()
	r = w.runner(script, func(c *runner.Config) { c.Grace, c.Backoff = time.Millisecond, time.Millisecond })
	id := w.say(r, "a1", "hi")
	w.hears(r, "a1", id, "never ")
	r.stop() // in the middle of an answer
	r = w.runner(script)
	if end := w.wait(r, "a1", id); end.GetText() != "finished" || end.GetInputTokens() != 230 || end.GetOutputTokens() != 24 {
		t.Fatalf("ended %v", end)
	}
	other := w.say(r, "a1", "once more")
	if end := w.wait(r, "a1", other); end.GetText() != "again" {
		t.Fatalf("ended %v", end)
	}

	var paid tokens
	for _, u := range script.Usages() {
		if u != *useless {
			paid.add(&registrypb.Usage{Input: u.Input, Output: u.Output, CachedInput: u.Cached, CacheWrite: u.CacheWrite, Reasoning: u.Reasoning})
		}
	}
	if want := (tokens{380, 30, 80, 60, 6}); paid != want {
		t.Fatalf("the provider counted %+v, the script says %+v", paid, want)
	}
	sums := func(req *registrypb.SumUsageRequest) ([]*registrypb.UsageSum, tokens) {
		t.Helper()
		req.AgentId = "a1"
		out, err := w.turns.SumUsage(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		var total tokens
		for _, s := range out.GetSums() {
			total.add(s.GetUsage())
		}
		return out.GetSums(), total
	}
	for name, req := range map[string]*registrypb.SumUsageRequest{
		"model": {}, "day": {ByDay: true}, "run": {ByRun: true}, "since": {Since: timestamppb.New(time.Now().Add(-time.Hour))},
	} {
		list, total := sums(req)
		if total != paid {
			t.Errorf("by %s %+v, the provider counted %+v", name, total, paid)
		}
		for _, s := range list {
			if s.GetModel() != "work/m1" || (s.GetDay() != "") != (name == "day") || (s.GetRunId() != "") != (name == "run") {
				t.Errorf("by %s: %v", name, s)
			}
		}
	}
	if runs, _ := sums(&registrypb.SumUsageRequest{ByRun: true}); len(runs) != 2 || runs[0].GetAnswers()+runs[1].GetAnswers() != 3 {
		t.Errorf("runs %v", runs)
	}
	if list, _ := sums(&registrypb.SumUsageRequest{Since: timestamppb.New(time.Now().Add(time.Hour))}); len(list) != 0 {
		t.Errorf("tomorrow: %v", list)
	}
	// The list of turns tells the same, when it is asked to.
	for _, with := range []bool{true, false} {
		page, err := w.turns.ListTurns(t.Context(), &registrypb.ListTurnsRequest{AgentId: "a1", WithUsage: with})
		if err != nil || len(page.GetTurns()) != 3 {
			t.Fatalf("%v, %v", page, err)
		}
		var total tokens
		for _, turn := range page.GetTurns() {
			total.add(turn.GetUsage())
		}
		if want := map[bool]tokens{true: paid, false: {}}[with]; total != want {
			t.Errorf("turns %+v, want %+v", total, want)
		}
	}
}

// A provider can be looked at and tried; its key is not shown, and what fails
// has a turn's reason.
func TestProviders(t *testing.T) {
	w := newWorld(t)
	script := modeltest.New(t, modeltest.Step{Text: []string{"ready"}, Usage: &modeltest.Usage{Input: 12, Output: 1}}, modeltest.Fail(401, "who are you"))
	dir := t.TempDir()
	file := filepath.Join(dir, "providers.yaml")
	text := "default: work\nproviders:\n  work: {base_url: " + script.URL() + ", api_key: 'file:key', models: [m1], price: {m1: {input: 3, output: 15}}}\n" +
		"  lost: {base_url: 'http://x/v1', api_key: 'env:NO_SUCH_KEY'}\n"
	for path, content := range map[string]string{file: text, filepath.Join(dir, "key"): modeltest.Key} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := w.runner(nil, func(c *runner.Config) { c.ProvidersFile = file })
	for all, least := range map[bool]int{false: 3, true: 14} {
		list, err := r.ListProviders(t.Context(), &runnerpb.ListProvidersRequest{All: all})
		if err != nil || len(list.GetProviders()) != least {
			t.Fatalf("%d providers, %v", len(list.GetProviders()), err)
		}
		if strings.Contains(list.String(), modeltest.Key) {
			t.Errorf("the key is in the list: %v", list)
		}
		for _, p := range list.GetProviders() {
			want := map[string]runnerpb.KeyState{"work": runnerpb.KeyState_KEY_STATE_SET, "offline": runnerpb.KeyState_KEY_STATE_NONE, "ollama": runnerpb.KeyState_KEY_STATE_NONE}[p.GetName()]
			if want == 0 {
				want = runnerpb.KeyState_KEY_STATE_MISSING
			}
			if p.GetKey() != want || p.GetIsDefault() != (p.GetName() == "work") {
				t.Errorf("%v", p)
			}
			if claude := p.GetName() == "anthropic"; claude != slices.Equal(p.GetAliases(), []string{"claude"}) {
				t.Errorf("%s is also called %q", p.GetName(), p.GetAliases())
			}
			if p.GetName() == "work" && (p.GetModels()[0].GetPrice().GetOutput() != 15 || p.GetKeyFrom() != "file:key") {
				t.Errorf("%v", p)
			}
		}
	}
	// H3: a choice is checked as a turn would find its model; nothing is called.
	for _, c := range []struct{ provider, model, reason, words string }{
		{"", "", "", ""},
		{"work", "m1", "", ""},
		{"offline", "", "", ""},
		{"nosuch", "", "MODEL_CONFIG", `provider "nosuch" is not configured`},
		{"work", "gpt-nope", "MODEL_CONFIG", `provider "work" has no model "gpt-nope"; providers.yaml lists m1`},
		{"", "gpt-nope", "MODEL_CONFIG", `has no model "gpt-nope"`},
		{"lost", "m", "MODEL_AUTH", "the environment variable NO_SUCH_KEY is not set"},
		{"openai", "", "MODEL_CONFIG", "set OPENAI_API_KEY"},
	} {
		list, err := r.ListProviders(t.Context(), &runnerpb.ListProvidersRequest{Check: &runnerpb.ModelChoice{Provider: c.provider, Model: c.model}})
		if err != nil || list.GetProblemReason() != c.reason || !strings.Contains(list.GetProblem(), c.words) || (list.GetProblemFix() == "") != (c.reason == "") || c.reason == "" && list.GetProblem() != "" {
			t.Errorf("%+v: %q %q %q, %v", c, list.GetProblem(), list.GetProblemReason(), list.GetProblemFix(), err)
		}
	}
	if info, err := r.GetRunnerInfo(t.Context(), &runnerpb.GetRunnerInfoRequest{}); err != nil || info.GetProblem() != "" || len(info.GetOutages()) != 0 {
		t.Errorf("%v %v", info, err)
	}
	if n := len(script.Requests()); n != 0 {
		t.Errorf("%d calls", n)
	}
	got, err := r.TestProvider(t.Context(), &runnerpb.TestProviderRequest{})
	if err != nil || got.GetText() != "ready" || got.GetModel() != "m1" || got.GetInputTokens() != 12 || got.GetLatency().AsDuration() <= 0 {
		t.Errorf("%v, %v", got, err)
	}
	for name, reason := range map[string]string{"work": "MODEL_AUTH", "lost": "MODEL_AUTH", "zzz": "MODEL_CONFIG"} {
		_, err := r.TestProvider(t.Context(), &runnerpb.TestProviderRequest{Name: name, Model: "m1"})
		if f := fault.From(err); err == nil || f.Reason != reason || f.Fix == "" || strings.Contains(err.Error(), modeltest.Key) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A test of a provider that does not answer ends with the deadline of its caller, and says
// so: not that a turn asks for too much.
func TestAProviderThatDoesNotAnswer(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // the system accepts connections, and they are not read
	file := filepath.Join(t.TempDir(), "providers.yaml")
	text := "providers:\n  mute: {base_url: 'http://" + l.Addr().String() + "/v1', models: [m1]}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	r := w.runner(nil, func(c *runner.Config) { c.ProvidersFile = file })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err = r.TestProvider(ctx, &runnerpb.TestProviderRequest{})
	if f := fault.From(err); f.Reason != fault.ModelUnavailable || !strings.HasPrefix(f.What, "mute: no answer within ") || !strings.Contains(f.Fix, "--timeout") {
		t.Errorf("%+v", f)
	}
}
