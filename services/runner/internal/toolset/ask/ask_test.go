package ask_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/toolset/ask"
	"github.com/theclaw/agents/services/runner/internal/toolset/toolsettest"
)

// answered is a registry whose questions wait once and have their answer then.
type answered struct{ ask.Questions }

func (answered) RequestQuestion(ctx context.Context, in *registrypb.RequestQuestionRequest, _ ...grpc.CallOption) (*registrypb.RequestQuestionResponse, error) {
	q := &registrypb.Question{QuestionId: "1", Text: in.GetText(), Options: in.GetOptions(), State: registrypb.QuestionState_QUESTION_STATE_PENDING}
	if in.GetWait() != nil {
		q.State, q.Answer, q.By = registrypb.QuestionState_QUESTION_STATE_ANSWERED, "savings", "owner"
	}
	return &registrypb.RequestQuestionResponse{Question: q}, context.Cause(ctx)
}

// It is a tool as others are. What happens with a question is tested over the real registry, in
// services/runner.
func TestTool(t *testing.T) {
	toolsettest.Run(t, ask.Tool{Questions: answered{}}, toolsettest.Cases{
		Good: []string{`{"question":"Which account?","options":["main","savings"]}`, `{"question":"How much?"}`},
		Bad:  []string{`{}`, `{"question":""}`, `{"question":1}`},
	})
}

// What cannot be asked asks nothing, and says why.
func TestRefused(t *testing.T) {
	long := strings.Repeat("x", 4097)
	options := `"` + strings.Repeat(`a","`, 10) + `b"`
	for arguments, want := range map[string]string{
		`{}`:                                  "question is missing",
		`{"question":" "}`:                    "question is missing",
		`{"question":7}`:                      "question must be of type string",
		`{"question":"q","options":"a"}`:      "options must be of type array",
		`{"question":"q","options":["a",""]}`: "option 2 is empty",
		`{"question":"q","options":["` + strings.Repeat("é", 101) + `"]}`: "longer than 200 bytes",
		`{"question":"q","options":[` + options + `]}`:                    "11 options are too many",
		`{"question":"` + long + `"}`:                                     "question has 4097 bytes",
		`{"question":"q","allow_text":false}`:                             "there are no options",
	} {
		calls, j := toolsettest.Calls(t, &registrypb.TurnConfig{}, ask.Tool{})
		text, err := toolsettest.Use(t.Context(), calls, "tool:1:1", model.ToolCall{Name: ask.Name, Arguments: json.RawMessage(arguments)}, false)
		var got struct{ Error string }
		if err != nil || json.Unmarshal([]byte(text), &got) != nil || !strings.Contains(got.Error, want) || len(j.Said) > 0 {
			t.Errorf("%.80s: %s, want %q (%v)", arguments, text, want, err)
		}
	}
}

// S3-48: it is offered where a person is the peer.
func TestOffered(t *testing.T) {
	calls, _ := toolsettest.Calls(t, &registrypb.TurnConfig{}, ask.Tool{})
	if got := calls.Set.Offered(); len(got) != 1 {
		t.Errorf("to a person: %v", got)
	}
	calls.Set = calls.Set.WithoutPerson()
	if got := calls.Set.Offered(); len(got) != 0 {
		t.Errorf("to a program: %v", got)
	}
	text, err := toolsettest.Use(t.Context(), calls, "tool:1:1", model.ToolCall{Name: ask.Name, Arguments: json.RawMessage(`{"question":"q"}`)}, false)
	if want := fmt.Sprintf(`{"error":"tool \"%s\" is not available here: no person is the peer of this conversation"}`, ask.Name); err != nil || text != want {
		t.Errorf("called: %s, want %s (%v)", text, want, err)
	}
}
