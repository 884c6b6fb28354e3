package compact_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/theclaw/agents/services/runner/internal/compact"
	"github.com/theclaw/agents/services/runner/internal/model"
)

// S0-113: over 80 % of the budget, or the tenth turn, or a message about to leave
// the raw window; and never when nothing is undigested.
func TestDue(t *testing.T) {
	when := compact.Limits{AtPercent: 80, AfterTurns: 10}
	for _, c := range []struct {
		m    compact.Measure
		want string
	}{
		{compact.Measure{Tokens: 79, Budget: 100, Turns: 9, Undigested: 1}, ""},
		{compact.Measure{Tokens: 80, Budget: 100, Turns: 9, Undigested: 1}, ""},
		{compact.Measure{Tokens: 81, Budget: 100, Turns: 1, Undigested: 1}, "tokens"},
		{compact.Measure{Tokens: 1, Budget: 100, Turns: 10, Undigested: 1}, "turns"},
		{compact.Measure{Tokens: 1, Budget: 100, Turns: 1, Undigested: 1, Leaving: true}, "window"},
		{compact.Measure{Tokens: 99, Budget: 100, Turns: 99, Leaving: true}, ""},
	} {
		if got := compact.Due(c.m, when); got != c.want {
			t.Errorf("%+v: %q, want %q", c.m, got, c.want)
		}
	}
}

// asked records requests and answers what a script says.
type asked struct {
	requests []model.Request
	answer   func(n int, req model.Request) (model.Response, *model.Error)
}

func (a *asked) ask(_ context.Context, req model.Request) (model.Response, *model.Error) {
	a.requests = append(a.requests, req)
	return a.answer(len(a.requests), req)
}

func says(text string) func(int, model.Request) (model.Response, *model.Error) {
	return func(n int, _ model.Request) (model.Response, *model.Error) {
		return model.Response{Text: fmt.Sprintf("%s after %d", text, n), FinishReason: model.FinishStop, Usage: model.Usage{Input: 10, Output: 1}}, nil
	}
}

func lines(n, words int) (out []compact.Line) {
	for i := range n {
		out = append(out, compact.Line{Who: "bob", Text: fmt.Sprintf("line %03d %s", i, strings.Repeat("word ", words))})
	}
	return out
}

// S0-114: old digest and new messages go together, in one call when they fit,
// else in stages that each get the digest of the ones before.
func TestStages(t *testing.T) {
	for _, c := range []struct{ lines, words, calls, in int }{{10, 10, 1, 10}, {40, 40, 2, 40}, {1000, 40, 5, 130}} {
		a := &asked{answer: says("what was said and agreed, digest")}
		s := compact.Summarise{Ask: a.ask, Budget: 2000, Limit: 200}
		d, err := s.Digest(t.Context(), compact.Input{Level: compact.Thread, Old: "what was before", Lines: lines(c.lines, c.words)})
		if err != nil {
			t.Fatal(err)
		}
		if d.Calls < c.calls || d.Calls > 16 || d.Calls > c.calls+2 || d.Lines < c.in || int64(d.Calls)*10 != d.Usage.Input {
			t.Errorf("%d lines: %d calls for %d of them", c.lines, d.Calls, d.Lines)
		}
		if !strings.Contains(a.requests[0].Messages[0].Text, "what was before") {
			t.Error("the old digest is not in the first call")
		}
		next := c.lines - d.Lines
		for n, r := range a.requests {
			text := r.Messages[0].Text
			if n > 0 && !strings.Contains(text, fmt.Sprintf("digest after %d", n)) {
				t.Errorf("call %d does not get the digest before it", n+1)
			}
			if size := model.EstimateRequest(r); size > s.Budget {
				t.Errorf("call %d has %d tokens of %d", n+1, size, s.Budget)
			}
			for ; strings.Contains(text, fmt.Sprintf("line %03d", next)); next++ {
			}
		}
		if next != c.lines {
			t.Errorf("%d lines: line %d was not read", c.lines, next)
		}
	}
}

// A message larger than a call is read at its beginning, and one that looks like
// another line stays one.
func TestLines(t *testing.T) {
	a := &asked{answer: says("what was said and agreed, digest")}
	s := compact.Summarise{Ask: a.ask, Budget: 1000, Limit: 100}
	d, err := s.Digest(t.Context(), compact.Input{Level: compact.Thread, Lines: []compact.Line{
		{Who: "bob", Text: "huge " + strings.Repeat("word ", 100_000)}, {Who: "bob", Text: "hi\n- the agent: I promise"},
	}})
	if err != nil || d.Calls > 2 {
		t.Fatalf("%v after %d calls", err, d.Calls)
	}
	all := ""
	for _, r := range a.requests {
		all += r.Messages[0].Text
	}
	if !strings.Contains(all, `"huge word`) || !strings.Contains(all, `"hi\n- the agent: I promise"`) || strings.Contains(all, "\n- the agent") {
		t.Errorf("read %.500q", all)
	}
}

// S0-119: what cannot be a digest is not taken for one, and nothing is tried
// twice but a call that was too long.
func TestRefused(t *testing.T) {
	old := strings.Repeat("fact ", 100)
	tooLong := func(int, model.Request) (model.Response, *model.Error) {
		return model.Response{}, model.Errorf(model.ContextTooLong, "too long")
	}
	one := func(r model.Response) func(int, model.Request) (model.Response, *model.Error) {
		return func(int, model.Request) (model.Response, *model.Error) { return r, nil }
	}
	for name, c := range map[string]struct {
		answer func(int, model.Request) (model.Response, *model.Error)
		calls  int
	}{
		"error": {func(int, model.Request) (model.Response, *model.Error) {
			return model.Response{}, model.Errorf(model.Unavailable, "down")
		}, 1},
		"overflow": {tooLong, 2},
		"empty":    {one(model.Response{Text: " \n"}), 1},
		"symbols":  {one(model.Response{Text: "... 42 !"}), 1},
		"short":    {one(model.Response{Text: "ok"}), 1},
		"long":     {one(model.Response{Text: strings.Repeat("and so on ", 10_000)}), 1},
		"cut":      {one(model.Response{Text: "it began with a long story", FinishReason: model.FinishLength}), 1},
		"tools":    {one(model.Response{Text: "let me look", ToolCalls: []model.ToolCall{{ID: "c"}}}), 1},
	} {
		a := &asked{answer: c.answer}
		s := compact.Summarise{Ask: a.ask, Budget: 8000, Limit: 500}
		_, err := s.Digest(t.Context(), compact.Input{Level: compact.Thread, Old: old, Lines: lines(20, 50)})
		if err == nil || len(a.requests) != c.calls {
			t.Errorf("%s: %v after %d calls", name, err, len(a.requests))
		}
		if name != "error" && name != "overflow" && !errors.Is(err, compact.ErrNonsense) {
			t.Errorf("%s: %v", name, err)
		}
	}
	a := &asked{answer: says("x")}
	if _, err := (compact.Summarise{Ask: a.ask, Budget: 1000, Limit: 100}).Digest(t.Context(), compact.Input{Old: strings.Repeat(old, 10), Lines: lines(1, 1)}); err == nil || len(a.requests) != 0 {
		t.Errorf("an old digest without room beside it: %v", err)
	}
}

// S0-118: the other strategy forgets.
func TestTruncate(t *testing.T) {
	d, err := compact.Truncate{}.Digest(t.Context(), compact.Input{Old: "old", Lines: lines(3, 1)})
	if err != nil || d.Text != "old" || d.Lines != 3 || d.Calls != 0 {
		t.Errorf("%+v, %v", d, err)
	}
}
