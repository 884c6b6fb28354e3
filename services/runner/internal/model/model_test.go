package model_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

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
		{model.RateLimited, "MODEL_RATE_LIMIT", true, true},
		{model.Unavailable, "MODEL_UNAVAILABLE", true, true},
		{model.Unreachable, "MODEL_UNAVAILABLE", true, false},
		{model.CutStream, "MODEL_BAD_RESPONSE", true, true},
		{model.BadResponse, "MODEL_BAD_RESPONSE", true, true},
		{model.Auth, "MODEL_AUTH", false, true},
		{model.Config, "MODEL_CONFIG", false, true},
		{model.ContextTooLong, "MODEL_CONTEXT_TOO_LONG", false, true},
		{model.Policy, "MODEL_POLICY", false, true},
		{model.Canceled, "CANCELED", false, false},
		{model.Timeout, "DEADLINE", false, true},
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
		got, err := model.SealToolCalls(req, calls)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("sealed calls (-want +got):\n%s", diff)
		}
	}
	// A provider that invents ids in our own pattern does not collide.
	got, err := model.SealToolCalls(model.Request{}, []model.ToolCall{{ID: "call_0_1", Name: "a"}, {Name: "b"}})
	if err != nil || got[1].ID != "call_0_1_1" {
		t.Errorf("collision: %v %v", got, err)
	}
}

func TestSealToolCallsRefusesNonsense(t *testing.T) {
	for _, args := range []string{`{"a":`, `[1]`, `"text"`, `null`, `{} {}`} {
		_, err := model.SealToolCalls(model.Request{}, []model.ToolCall{{Name: "a", Arguments: json.RawMessage(args)}})
		if e := model.AsError(err); e == nil || e.Class != model.BadResponse {
			t.Errorf("arguments %s: %v", args, err)
		}
	}
	if _, err := model.SealToolCalls(model.Request{}, []model.ToolCall{{ID: "1"}}); err == nil {
		t.Error("a call without a name passed")
	}
}
