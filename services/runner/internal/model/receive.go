package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/theclaw/agents/internal/boundary"
)

const (
	maxLabel = 256     // of a model's name and of an answer's id, in bytes
	maxError = 4 << 10 // of an error's message, in bytes
	// maxTokens is the most that is believed of one figure of an answer's usage.
	maxTokens = 1_000_000_000
)

// cutNote stands at the end of an answer that is not complete.
const cutNote = "\n\n[This answer is incomplete: the model reached its output limit.]"

// Receive makes one call of a provider and makes valid and bounded what comes of it; the
// drivers make all their calls through it. No text behind it, neither of the answer and
// its pieces nor of an error, holds bytes that are not UTF-8: such bytes become U+FFFD,
// and [Response].Notes says so. Tool calls are sealed ([SealToolCalls]). An answer that hit
// the output limit says so at its end.
func Receive(req Request, onDelta func(Delta), call func(onDelta func(Delta)) (Response, error)) (Response, error) {
	if onDelta == nil {
		onDelta = func(Delta) {}
	}
	var text, reasoning boundary.Stream
	r, err := call(func(d Delta) {
		d.Text, d.Reasoning = text.Add(d.Text), reasoning.Add(d.Reasoning)
		if d.Tool != nil {
			use := sealUse(*d.Tool)
			d.Tool = &use
		}
		if d != (Delta{}) {
			onDelta(d)
		}
	})
	if err != nil {
		return Response{}, sealError(err)
	}
	if d := (Delta{Text: text.End(), Reasoning: reasoning.End()}); d != (Delta{}) {
		onDelta(d)
	}
	r = seal(req, r)
	if r.FinishReason == FinishLength && len(r.ToolCalls) == 0 && strings.TrimSpace(r.Text) != "" {
		r.Text += cutNote
		onDelta(Delta{Text: cutNote})
	}
	return r, nil
}

func seal(req Request, r Response) Response {
	for _, f := range []struct {
		name  string
		text  *string
		limit int
	}{
		{"text", &r.Text, 0}, {"thinking", &r.Reasoning, 0}, // the driver bounds both
		{"model name", &r.Model, maxLabel}, {"id", &r.ProviderID, maxLabel},
	} {
		var c boundary.Change
		if *f.text, c = boundary.Text(*f.text, f.limit); c != (boundary.Change{}) {
			r.Notes = append(r.Notes, "the answer's "+f.name+": "+c.Note())
		}
	}
	if replay, c := boundary.Text(string(r.Replay), 0); c != (boundary.Change{}) {
		r.Replay, r.Notes = json.RawMessage(replay), append(r.Notes, "the answer's signed part: "+c.Note())
	}
	r.ToolCalls = SealToolCalls(req, r.ToolCalls)
	for i, c := range r.ToolCalls {
		for _, note := range []string{c.Note, c.Problem} {
			if note != "" && len(r.Notes) < 10 {
				r.Notes = append(r.Notes, fmt.Sprintf("tool call %d (%s): %s", i+1, c.Name, note))
			}
		}
	}
	var believed bool
	if r.Usage, believed = sealUsage(r.Usage); !believed {
		r.Notes = append(r.Notes, "the provider's token counts cannot be right and were left out")
	}
	return r
}

// sealUsage leaves out counts that cannot be right: sums over them would stay wrong.
func sealUsage(u Usage) (Usage, bool) {
	for _, n := range []int64{u.Input, u.Output, u.CachedInput, u.CacheWrite, u.Reasoning} {
		if n < 0 || n > maxTokens {
			return Usage{}, false
		}
	}
	u.CachedInput = min(u.CachedInput, u.Input)
	u.CacheWrite = min(u.CacheWrite, u.Input-u.CachedInput)
	return u, true
}

// sealUse is for the tools of a program, which it has run itself: nothing is refused.
func sealUse(u ToolUse) ToolUse {
	u.Call.ID, _ = boundary.Text(u.Call.ID, maxCallID)
	u.Call.Name, _ = boundary.Text(u.Call.Name, maxLabel)
	if len(u.Call.Arguments) <= MaxArguments { // longer ones are cut where they are journaled
		u.Call = sealArguments(u.Call)
	}
	arguments, _ := boundary.Text(string(u.Call.Arguments), 0)
	u.Call.Arguments = json.RawMessage(arguments)
	if u.Result != nil {
		result, _ := boundary.Text(string(u.Result), 0)
		u.Result = json.RawMessage(result)
	}
	return u
}

func sealError(err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	sealed := *e
	sealed.Message, _ = boundary.Text(e.Message, maxError)
	return &sealed
}

// NoText is the failure of an answer without text and calls. One that used up its output
// limit, as a model does that thinks for too long, does so again.
func NoText(r Response) *Error {
	if r.FinishReason == FinishLength {
		return Errorf(TooLarge, "the model reached its output limit before the first word of its answer")
	}
	return Errorf(BadResponse, "the model answered nothing")
}
