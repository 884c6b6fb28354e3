package model_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/theclaw/agents/services/runner/internal/model"
)

// received is what Receive makes of an answer that arrives in pieces.
func received(r model.Response, err error, pieces ...model.Delta) (model.Response, string, error) {
	var text strings.Builder
	got, err := model.Receive(model.Request{}, func(d model.Delta) { text.WriteString(d.Text) }, func(onDelta func(model.Delta)) (model.Response, error) {
		for _, d := range pieces {
			onDelta(d)
			r.Text, r.Reasoning = r.Text+d.Text, r.Reasoning+d.Reasoning
		}
		return r, err
	})
	return got, text.String(), err
}

// F1: no text of an answer holds bytes that are not UTF-8, and the answer says where it
// was changed; a character that was cut between two pieces is kept.
func TestReceive(t *testing.T) {
	got, text, err := received(model.Response{
		FinishReason: model.FinishToolCalls, Model: "m\xff", ProviderID: strings.Repeat("i", 1000), Replay: json.RawMessage("{\"s\":\"\xff\"}"),
		ToolCalls: []model.ToolCall{{ID: "\xff", Name: "\xff", Arguments: json.RawMessage("{\"a\":\"\xff\"}")}},
	}, nil, model.Delta{Text: "a\xffb\xe2\x82"}, model.Delta{Text: "\xac", Reasoning: "\xfe"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(got)
	if err != nil || got.Text != "a\uFFFDb\u20ac" || text != got.Text || got.Reasoning != "\uFFFD" || got.Model != "m\uFFFD" || len(got.ProviderID) > 256 {
		t.Errorf("%s, streamed %q, %v", b, text, err)
	}
	for _, s := range []string{got.Text, string(got.Replay), got.ToolCalls[0].ID, got.ToolCalls[0].Name, string(got.ToolCalls[0].Arguments)} {
		if !utf8.ValidString(s) {
			t.Errorf("not UTF-8: %q", s)
		}
	}
	notes := strings.Join(got.Notes, "\n")
	for _, want := range []string{"text: bytes that are not UTF-8", "thinking: ", "model name: ", "id: 744 bytes over the limit", "signed part: ", "tool call 1 (_): arguments: ", "there is no tool"} {
		if !strings.Contains(notes, want) {
			t.Errorf("no %q in the notes\n%s", want, notes)
		}
	}
}

// F1: errors and the tools of programs pass the same boundary.
func TestReceiveOthers(t *testing.T) {
	cause := errors.New("cause")
	_, _, err := received(model.Response{}, &model.Error{Class: model.Auth, Status: 401, Message: "\xff" + strings.Repeat("x", 10<<10), Err: cause})
	if e := model.AsError(err); e.Class != model.Auth || e.Status != 401 || !errors.Is(err, cause) || !utf8.ValidString(e.Message) || len(e.Message) > 4<<10 {
		t.Errorf("%v", err)
	}
	use := model.ToolUse{Call: model.ToolCall{ID: "1", Name: "\xff", Arguments: json.RawMessage(`[1]`)}, Result: json.RawMessage("\"\xff\"")}
	_, err = model.Receive(model.Request{}, func(d model.Delta) {
		if u := d.Tool; u.Call.Name != "\uFFFD" || string(u.Call.Arguments) != `{"_raw":"[1]"}` || string(u.Result) != "\"\uFFFD\"" {
			t.Errorf("%+v %s", u.Call, u.Result)
		}
	}, func(onDelta func(model.Delta)) (model.Response, error) {
		onDelta(model.Delta{Tool: &use})
		return model.Response{}, nil
	})
	if err != nil || use.Call.Name != "\xff" {
		t.Errorf("%v, the driver's own value became %+v", err, use)
	}
}

// F19: an answer that hit the output limit says so, in the stream too, and one that holds
// nothing else is not asked for again.
func TestReceiveCutOff(t *testing.T) {
	got, text, err := received(model.Response{FinishReason: model.FinishLength}, nil, model.Delta{Text: "half an ans"})
	if err != nil || !strings.HasPrefix(got.Text, "half an ans\n\n[This answer is incomplete") || text != got.Text {
		t.Errorf("%q, streamed %q, %v", got.Text, text, err)
	}
	got, text, err = received(model.Response{FinishReason: model.FinishLength}, nil)
	if err != nil || got.Text != "" || text != "" {
		t.Errorf("%q, streamed %q, %v", got.Text, text, err)
	}
	if e := model.NoText(got); e.Recoverable() || e.Class != model.TooLarge {
		t.Errorf("an empty answer at the output limit: %v", e)
	}
	if e := model.NoText(model.Response{FinishReason: model.FinishStop}); !e.Recoverable() {
		t.Errorf("an empty answer: %v", e)
	}
}

// Counts that cannot be right are left out: sums would be wrong permanently.
func TestReceiveUsage(t *testing.T) {
	for in, want := range map[model.Usage]model.Usage{
		{Input: 10, Output: 2, CachedInput: 4, Reasoning: 30}: {Input: 10, Output: 2, CachedInput: 4, Reasoning: 30},
		{Input: -1, Output: 2}:                                {},
		{Input: 1, Output: 1 << 62}:                           {},
		{Input: 10, CachedInput: 30, CacheWrite: 5}:           {Input: 10, CachedInput: 10},
		{Input: 10, CachedInput: 4, CacheWrite: 1 << 29}:      {Input: 10, CachedInput: 4, CacheWrite: 6},
	} {
		got, _, err := received(model.Response{Usage: in}, nil)
		if err != nil || got.Usage != want || (want == model.Usage{}) != (len(got.Notes) == 1) {
			t.Errorf("%+v became %+v, notes %q, %v", in, got.Usage, got.Notes, err)
		}
	}
}

// F1: however an answer is cut into pieces, what is streamed is what is kept, and valid.
func FuzzReceive(f *testing.F) {
	f.Add("a\xe2\x82\xac\xff", "b\xfe", uint8(1))
	f.Add("plain", "", uint8(3))
	f.Fuzz(func(t *testing.T, text, reasoning string, size uint8) {
		var pieces []model.Delta
		for n := int(size%7) + 1; text+reasoning != ""; text, reasoning = text[min(n, len(text)):], reasoning[min(n, len(reasoning)):] {
			pieces = append(pieces, model.Delta{Text: text[:min(n, len(text))], Reasoning: reasoning[:min(n, len(reasoning))]})
		}
		got, streamed, err := received(model.Response{FinishReason: model.FinishStop}, nil, pieces...)
		if err != nil || got.Text != streamed || !utf8.ValidString(got.Text+got.Reasoning+fmt.Sprint(got.Notes)) {
			t.Errorf("%q, streamed %q, %v", got.Text, streamed, err)
		}
	})
}
