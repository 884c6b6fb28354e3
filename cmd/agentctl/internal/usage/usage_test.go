package usage

import (
	"testing"

	"github.com/theclaw/agents/internal/price"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// A row with one answer without a price has no cost, however many others have.
func TestCostIsNeverAGuess(t *testing.T) {
	prices := map[string]price.Price{"p/m": {Input: 1, Output: 2}}
	sum := func(model string, cached int64) *registry.UsageSum {
		return &registry.UsageSum{Model: model, Answers: 1, Usage: &registry.Usage{Input: 1_000_000, Output: 500_000, CachedInput: cached}}
	}
	var r row
	r.add(sum("p/m", 0), prices)
	r.add(sum("p/m", 0), prices)
	if r.cost() != "4.000000" || r.Answers != 2 {
		t.Errorf("cost %s of %d answers", r.cost(), r.Answers)
	}
	for _, unknown := range []*registry.UsageSum{sum("p/n", 0), sum("p/m", 7)} {
		s := r
		s.add(unknown, prices)
		s.add(sum("p/m", 0), prices)
		if s.Cost != nil || s.cost() != "-" || s.Answers != 4 {
			t.Errorf("%v: cost %s of %d answers", unknown, s.cost(), s.Answers)
		}
	}
}
