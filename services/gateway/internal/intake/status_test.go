package intake

import (
	"testing"

	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerv1 "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// A cost is shown only where everything has a price: nothing is guessed, and no part is left out.
func TestSpent(t *testing.T) {
	read := 0.3
	models := map[string]*runnerv1.ProviderModel{
		"work/m1": {Price: &runnerv1.Price{Input: 3, Output: 15, CacheRead: &read}}, "work/m2": {Price: &runnerv1.Price{Input: 1, Output: 2}}, "work/m3": {},
	}
	sum := func(model string, answers, input, cached, output int64) *registryv1.UsageSum {
		return &registryv1.UsageSum{Model: model, Answers: answers, Usage: &registryv1.Usage{Input: input, CachedInput: cached, Output: output}}
	}
	for _, c := range []struct {
		name       string
		sums       []*registryv1.UsageSum
		used, cost string
	}{
		{"one answer", []*registryv1.UsageSum{sum("work/m1", 1, 1200, 200, 80)}, "1 answer of a model, 1200 tokens in (200 cached), 80 out", "cost 0.004260 by the prices of providers.yaml"},
		{"two models", []*registryv1.UsageSum{sum("work/m1", 1, 1200, 200, 80), sum("work/m2", 2, 1000, 0, 500)}, "3 answers of models, 2200 tokens in (200 cached), 580 out", "cost 0.006260 by the prices of providers.yaml"},
		{"cached without a price", []*registryv1.UsageSum{sum("work/m2", 1, 1000, 1, 500)}, "1 answer of a model, 1000 tokens in (1 cached), 500 out", ""},
		{"a model without a price", []*registryv1.UsageSum{sum("work/m3", 1, 1, 0, 1), sum("work/m1", 1, 1, 0, 1)}, "2 answers of models, 2 tokens in, 2 out", ""},
		{"a model that is not known", []*registryv1.UsageSum{sum("work/m1", 1, 1, 0, 1), sum("gone/m1", 1, 1, 0, 1)}, "2 answers of models, 2 tokens in, 2 out", ""},
	} {
		if used, cost := spent(c.sums, models); used != c.used || cost != c.cost {
			t.Errorf("%s: %q %q, want %q %q", c.name, used, cost, c.used, c.cost)
		}
	}
	for _, c := range [][3]int64{{128000, 8000, 8000}, {4000, 8000, 4000}, {0, 8000, 8000}, {128000, 0, 0}} {
		if got := window(c[0], c[1]); got != c[2] {
			t.Errorf("window of %d and %d: %d", c[0], c[1], got)
		}
	}
}
