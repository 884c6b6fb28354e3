package runner_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/theclaw/agents/internal/obs"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
)

// A digest that a person asked for has cost something too: the sums are those of the
// provider, for the conversation's layer and the agent's, and in the metrics.
func TestDigestsAreCounted(t *testing.T) {
	usage := func(in, out int64) *modeltest.Usage { return &modeltest.Usage{Input: in, Output: out} }
	w, all := newWorld(t), prometheus.NewRegistry()
	w.metrics = obs.NewRunnerMetrics(all)
	script := modeltest.New(t,
		modeltest.Step{Text: []string{"hello"}, Usage: usage(100, 10)},
		modeltest.Step{Text: []string{"fact-one"}, Usage: usage(200, 20)},
		modeltest.Step{Text: []string{"fact-one, in short"}, Usage: usage(400, 40)})
	w.agent("a1", "")
	r := w.runner(script)
	w.wait(r, "a1", w.say(r, "a1", "fact-one"))
	for _, thread := range []string{console, ""} {
		if out, err := r.CompactMemory(t.Context(), &runnerpb.CompactMemoryRequest{AgentId: "a1", ThreadId: thread}); err != nil || out.GetName() == "" {
			t.Fatalf("%q: %v, %v", thread, out, err)
		}
	}
	var paid, sum [2]int64
	for _, u := range script.Usages() {
		paid[0], paid[1] = paid[0]+u.Input, paid[1]+u.Output
	}
	sums, err := w.turns.SumUsage(t.Context(), &registrypb.SumUsageRequest{AgentId: "a1", ByRun: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sums.GetSums() {
		sum[0], sum[1] = sum[0]+s.GetUsage().GetInput(), sum[1]+s.GetUsage().GetOutput()
	}
	if paid != [2]int64{700, 70} || sum != paid || len(sums.GetSums()) != 3 {
		t.Errorf("counted %v, the provider %v: %v", sum, paid, sums)
	}
	tokens := map[string]float64{}
	families, err := all.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "theclaw_runner_tokens_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "direction" {
					tokens[l.GetValue()] += m.GetCounter().GetValue()
				}
			}
		}
	}
	if tokens["input"] != 700 || tokens["output"] != 70 {
		t.Errorf("metrics say %v", tokens)
	}
}

// One that follows a turn is counted under its own key, and is no part of that turn.
func TestLaterDigestIsCounted(t *testing.T) {
	w := newWorld(t)
	script := modeltest.New(t,
		modeltest.Step{Text: []string{"hello"}, Usage: &modeltest.Usage{Input: 100, Output: 10}},
		modeltest.Step{Text: []string{"fact-one, in short"}, Usage: &modeltest.Usage{Input: 400, Output: 40}})
	w.agent("a1", "compaction:\n  after_turns: 1")
	r := w.runner(script)
	run := w.say(r, "a1", "fact-one")
	if end := w.wait(r, "a1", run); end.GetInputTokens() != 100 {
		t.Errorf("the run cost %v", end)
	}
	for info := (*runnerpb.GetRunnerInfoResponse)(nil); info == nil || info.GetDigestsActive() > 0; {
		var err error
		if info, err = r.GetRunnerInfo(t.Context(), &runnerpb.GetRunnerInfoRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	sums, err := w.turns.SumUsage(t.Context(), &registrypb.SumUsageRequest{AgentId: "a1", ByRun: true})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, s := range sums.GetSums() {
		got[s.GetRunId()] = s.GetUsage().GetInput()
	}
	if len(got) != 2 || got[run] != 100 || got["compact:memory/thread-threads%2Fpeers%2Fcli-cli.md:1"] != 400 {
		t.Errorf("counted %v", got)
	}
}
