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

// The usage of a conversation in a line never guesses a cost.
func TestLine(t *testing.T) {
	prices := map[string]price.Price{"p/m": {Input: 1, Output: 2}}
	var r row
	if got := r.line(false); got != "no answers" {
		t.Error(got)
	}
	r.add(&registry.UsageSum{Model: "p/m", Answers: 1, Usage: &registry.Usage{Input: 1_000_000, Output: 500_000}}, prices)
	for unpriced, want := range map[bool]string{
		false: "1 answer, 1000000 tokens in, 500000 out, cost 2.000000",
		true:  "1 answer, 1000000 tokens in, 500000 out, cost not known: no runner answers",
	} {
		if got := r.line(unpriced); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	r.add(&registry.UsageSum{Model: "p/n", Answers: 2, Usage: &registry.Usage{Input: 1, CachedInput: 1}}, prices)
	if got, want := r.line(false), "3 answers, 1000001 tokens in (1 cached), 500000 out, cost not known: a model has no price"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
