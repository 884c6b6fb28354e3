package model_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/theclaw/agents/services/runner/internal/model"
)

// S0-86, S0-87: the class alone decides whether and how a call is repeated.
func TestErrorClasses(t *testing.T) {
	tests := []struct {
		class       model.Class
		reason      string
		recoverable bool
		counts      bool
	}{
		{model.RateLimited, "MODEL_RATE_LIMIT", true, false},
		{model.Unavailable, "MODEL_UNAVAILABLE", true, false},
		{model.Unreachable, "MODEL_UNAVAILABLE", true, false},
		{model.CutStream, "MODEL_BAD_RESPONSE", true, true},
		{model.BadResponse, "MODEL_BAD_RESPONSE", true, true},
		{model.Auth, "MODEL_AUTH", false, true},
		{model.Config, "MODEL_CONFIG", false, true},
		{model.ContextTooLong, "MODEL_CONTEXT_TOO_LONG", false, true},
		{model.Policy, "MODEL_POLICY", false, true},
		{model.Canceled, "CANCELED", false, false},
		{model.Timeout, "DEADLINE", false, true},
		{model.TooLarge, "MODEL_BAD_RESPONSE", false, true},
	}
	for _, tt := range tests {
		t.Run(tt.class.String(), func(t *testing.T) {
			err := model.Errorf(tt.class, "why %d", 7)
			if err.Reason() != tt.reason || err.Recoverable() != tt.recoverable || err.CountsTry() != tt.counts {
				t.Errorf("reason %s recoverable %v counts %v", err.Reason(), err.Recoverable(), err.CountsTry())
			}
			if err.Fix() == "" || !strings.Contains(err.Error(), "why 7") {
				t.Errorf("fix %q, text %q", err.Fix(), err.Error())
			}
		})
	}
}

func TestAsError(t *testing.T) {
	inner := model.Errorf(model.Auth, "no")
	if got := model.AsError(fmt.Errorf("call model: %w", inner)); got != inner {
		t.Errorf("wrapped error not found: %v", got)
	}
	if got := model.AsError(nil); got != nil {
		t.Errorf("nil became %v", got)
	}
	for err, class := range map[error]model.Class{
		context.Canceled:         model.Canceled,
		context.DeadlineExceeded: model.Timeout,
		io.ErrClosedPipe:         model.BadResponse,
	} {
		got := model.AsError(err)
		if got.Class != class || !errors.Is(got, err) {
			t.Errorf("%v became %v", err, got)
		}
	}
}

// S0-113: CJK 1.5, Latin-ext 0.7, ASCII 0.25 tokens per character.
func TestEstimateTokens(t *testing.T) {
	for text, want := range map[string]int64{
		"":          0,
		"a":         1,
		"abcd":      1,
		"abcde":     2,
		"éé":        2, // 1.4
		"你好":        3,
		"你":         2, // 1.5
		"안녕":        3,
		"привет":    5, // 4.2
		"日本 go":     4, // 3 + 0.75
		"🙂🙂":        3,
		"naïve ab ": 3, // 8 x 0.25 + 0.7
		// eight at a time, up to what is none and after it
		strings.Repeat("abcdefgh", 5) + "ab":       11, // 10.5
		"abcdefg你" + strings.Repeat("abcdefgh", 2): 8,  // 1.5 + 5.75
	} {
		if got := model.EstimateTokens(text); got != want {
			t.Errorf("EstimateTokens(%q) = %d, want %d", text, got, want)
		}
	}
}

func TestEstimateRequestCountsEverythingSent(t *testing.T) {
	req := model.Request{
		System: "abcd",
		Messages: []model.Message{
			{Role: model.RoleUser, Text: "abcd"},
			{Role: model.RoleAssistant, Reasoning: "abcd", ToolCalls: []model.ToolCall{{Name: "abcd", Arguments: json.RawMessage(`{ } `)}}},
		},
		Tools: []model.Tool{{Name: "abcd", Description: "abcd", Schema: json.RawMessage(`{ } `)}},
	}
	if got := model.EstimateRequest(req); got != 8 {
		t.Errorf("EstimateRequest = %d, want 8", got)
	}
}

func TestSealToolCalls(t *testing.T) {
	req := model.Request{Messages: []model.Message{
		{Role: model.RoleUser, Text: "go"},
		{Role: model.RoleAssistant, ToolCalls: []model.ToolCall{{ID: "call_0", Name: "a"}}},
	}}
	calls := []model.ToolCall{
		{ID: "call_0", Name: "a"}, // taken by an earlier round
		{ID: "x", Name: "b", Arguments: json.RawMessage(" {\"k\":1} ")},
		{ID: "x", Name: "c", Arguments: json.RawMessage("{}")}, // repeated
		{Name: "d"}, // missing
	}
	want := []model.ToolCall{
		{ID: "call_2_0", Name: "a", Arguments: json.RawMessage("{}")},
		{ID: "x", Name: "b", Arguments: json.RawMessage(`{"k":1}`)},
		{ID: "call_2_2", Name: "c", Arguments: json.RawMessage("{}")},
		{ID: "call_2_3", Name: "d", Arguments: json.RawMessage("{}")},
	}
	for range 2 { // stable: the same answer gets the same ids
		if diff := cmp.Diff(want, model.SealToolCalls(req, calls)); diff != "" {
			t.Errorf("sealed calls (-want +got):\n%s", diff)
		}
	}
	// A provider that invents ids in our own pattern does not collide.
	if got := model.SealToolCalls(model.Request{}, []model.ToolCall{{ID: "call_0_1", Name: "a"}, {Name: "b"}}); got[1].ID != "call_0_1_1" {
		t.Errorf("collision: %v", got)
	}
}

// F9: a call that cannot be made keeps its place with what is wrong; what goes back to the
// provider is valid, and the other calls of the answer are not touched.
func TestSealToolCallsRefused(t *testing.T) {
	long := strings.Repeat("x", model.MaxArguments)
	for name, c := range map[string]struct{ name, arguments, wantName, wantArguments, problem, note string }{
		"cut off":       {"a", `{"a":`, "a", `{"_raw":"{\"a\":"}`, "not valid JSON", ""},
		"array":         {"a", `[1]`, "a", `{"_raw":"[1]"}`, "not a JSON object", ""},
		"string":        {"a", `"text"`, "a", `{"_raw":"\"text\""}`, "not a JSON object", ""},
		"two objects":   {"a", `{} {}`, "a", `{"_raw":"{} {}"}`, "not valid JSON", ""},
		"words":         {"a", `ls -l`, "a", `{"_raw":"ls -l"}`, "not a JSON object", ""},
		"invalid bytes": {"a", "{\"a\":\"x\xffy\"}", "a", "{\"a\":\"x\uFFFDy\"}", "", "replaced by U+FFFD in 1 places"},
		"too large":     {"a", `{"a":"` + long + `"}`, "a", `{"_raw":"{\"a\":\"` + long[:4<<10-6] + `"}`, "larger than 192 KiB", ""},
		"no name":       {"", `{}`, "unnamed", `{}`, "names no tool", ""},
		"bad name":      {"bash exec\xff!", `{}`, "bash_exec__", `{}`, `there is no tool "bash exec\xff!"`, ""},
		"endless name":  {long, `{}`, long[:64], `{}`, "there is no tool xxx", ""},
		"offered name":  {"odd name", `{}`, "odd name", `{}`, "", ""},
		"null":          {"a", ` null `, "a", `{}`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			req := model.Request{Tools: []model.Tool{{Name: "odd name"}}}
			got := model.SealToolCalls(req, []model.ToolCall{{Name: c.name, Arguments: json.RawMessage(c.arguments)}, {Name: "b", Arguments: json.RawMessage(`{"k":1}`)}})
			if got[0].Name != c.wantName || string(got[0].Arguments) != c.wantArguments || !strings.Contains(got[0].Problem, c.problem) ||
				(c.problem == "") != (got[0].Problem == "") || !strings.Contains(got[0].Note, c.note) || (c.note == "") != (got[0].Note == "") {
				t.Errorf("sealed %.300q, problem %.300q, note %q", got[0].Name+string(got[0].Arguments), got[0].Problem, got[0].Note)
			}
			if string(got[1].Arguments) != `{"k":1}` || got[1].Problem != "" {
				t.Errorf("the other call: %+v", got[1])
			}
		})
	}
}

// F9: ids that are missing, repeated, endless or not UTF-8 become usable ones.
func TestSealToolCallsIDs(t *testing.T) {
	got := model.SealToolCalls(model.Request{}, []model.ToolCall{
		{ID: "a\xff", Name: "t"}, {ID: "a\xfe", Name: "t"}, {ID: strings.Repeat("x", 100<<10), Name: "t"}, {ID: "ok", Name: "t"}, {ID: "ok", Name: "t"},
	})
	var ids []string
	for _, c := range got {
		ids = append(ids, c.ID)
	}
	if s := strings.Join(ids, " "); s != "a\uFFFD call_0_1 call_0_2 ok call_0_4" {
		t.Errorf("ids %.300s", s)
	}
}

// F1: whatever the calls of an answer are, they can be journaled and sent back.
func FuzzSealToolCalls(f *testing.F) {
	f.Add("id", "bash_exec", []byte(`{"a":1}`), "id", "", []byte("{\"a\xff"))
	f.Add("\xff", "a b", []byte("[1]"), "\xfe", "x", []byte(" null "))
	f.Fuzz(func(t *testing.T, id1, name1 string, arguments1 []byte, id2, name2 string, arguments2 []byte) {
		got := model.SealToolCalls(model.Request{}, []model.ToolCall{{ID: id1, Name: name1, Arguments: arguments1}, {ID: id2, Name: name2, Arguments: arguments2}})
		if len(got) != 2 || got[0].ID == got[1].ID {
			t.Fatalf("sealed %+v", got)
		}
		for _, c := range got {
			var object map[string]any
			if c.ID == "" || c.Name == "" || len(c.ID) > 256 || len(c.Name) > 64 || json.Unmarshal(c.Arguments, &object) != nil || object == nil {
				t.Errorf("sealed %+v", c)
			}
			if !utf8.ValidString(c.ID + c.Name + string(c.Arguments) + c.Problem + c.Note) {
				t.Errorf("not UTF-8: %+q", c)
			}
		}
	})
}
