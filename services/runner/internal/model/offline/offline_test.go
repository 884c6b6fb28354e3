package offline_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/offline"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var bash = []model.Tool{{Name: offline.Tool}}

func user(texts ...string) []model.Message {
	var messages []model.Message
	for _, text := range texts {
		messages = append(messages, model.Message{Role: model.RoleUser, Text: text})
	}
	return messages
}

// generate calls the driver and checks what holds for every answer.
func generate(t *testing.T, req model.Request) (model.Response, error) {
	t.Helper()
	var pieces []string
	got, err := offline.Driver{}.Generate(t.Context(), req, func(d model.Delta) { pieces = append(pieces, d.Text) })
	if err != nil {
		return got, err
	}
	if streamed := strings.Join(pieces, ""); streamed != got.Text {
		t.Errorf("streamed %q, answered %q", streamed, got.Text)
	}
	if words := strings.Count(strings.TrimSpace(got.Text), " "); len(pieces) < words {
		t.Errorf("%d deltas for %d words", len(pieces), words)
	}
	if got.Usage.Input != model.EstimateRequest(req) || got.Usage.Output == 0 {
		t.Errorf("usage %+v", got.Usage)
	}
	if (got.FinishReason == model.FinishToolCalls) != (len(got.ToolCalls) > 0) {
		t.Errorf("finish %s with %d calls", got.FinishReason, len(got.ToolCalls))
	}
	return got, nil
}

func TestReplies(t *testing.T) {
	tests := []struct{ said, want string }{
		{"hello", "offline: hello"},
		{"  hello\n", "offline: hello"},
		{"say: exactly this: yes", "exactly this: yes"},
		{"SAY: x", "x"},
		{"say:", "offline: say:"},
		{"note: not an instruction", "offline: note: not an instruction"},
		{"help", offline.Help},
		{"", offline.Help},
		{"recall", "offline: I see no earlier message of yours."},
		{"tools: many", "offline: tools: must be a number from 0 to 1000."},
		{"tools: 0", "offline: 0 tool rounds done."},
		{"slow: never", "offline: slow: must be seconds from 0 to 3600."},
		{"slow: NaN", "offline: slow: must be seconds from 0 to 3600."},
		{"fail: oddly", "offline: fail: does not know the kind oddly."},
		{"fail: auth often", "offline: fail: must be a kind and perhaps a number of tries."},
		{strings.Repeat("é", 300), "offline: " + strings.Repeat("é", 200) + "..."},
	}
	for _, tt := range tests {
		got, err := generate(t, model.Request{Messages: user(tt.said), Tools: bash})
		if err != nil || got.Text != tt.want || got.FinishReason != model.FinishStop {
			t.Errorf("%q: %q, %v", tt.said, got.Text, err)
		}
	}
	if !strings.Contains(offline.Help, "no language model") {
		t.Error("the help does not say that this is no model")
	}
}

func TestRecallSeesOnlyTheUser(t *testing.T) {
	messages := append(user("my name is Ada", "second"), model.Message{Role: model.RoleAssistant, Text: "hidden"})
	got, err := generate(t, model.Request{System: "hidden", Messages: append(messages, user("recall")...)})
	if err != nil || got.Text != "offline: your earlier messages (2):\n1. my name is Ada\n2. second" {
		t.Errorf("%q, %v", got.Text, err)
	}
}

func TestRunReportsTheResult(t *testing.T) {
	messages := user("run: echo hi: there")
	asked, err := generate(t, model.Request{Messages: messages, Tools: bash})
	if err != nil || len(asked.ToolCalls) != 1 {
		t.Fatalf("%+v, %v", asked, err)
	}
	call := asked.ToolCalls[0]
	var arguments map[string]string
	if err := json.Unmarshal(call.Arguments, &arguments); err != nil || arguments["command"] != "echo hi: there" || call.Name != "bash_exec" || call.ID == "" {
		t.Errorf("call %+v %v", call, err)
	}
	for result, want := range map[string]string{
		`{"stdout":"hi: there\n","stderr":"","exitCode":0}`: "offline: the command answered:\nhi: there",
		`{"stdout":"","stderr":"no\n","exit_code":3}`:       "offline: the command failed with exit code 3:\nno",
		"plain\n":               "offline: the tool answered:\nplain",
		`{"error":"timed out"}`: "offline: the tool answered:\n" + `{"error":"timed out"}`,
	} {
		round := append(messages[:1:1],
			model.Message{Role: model.RoleAssistant, ToolCalls: asked.ToolCalls},
			model.Message{Role: model.RoleTool, ToolCallID: call.ID, Text: result})
		got, err := generate(t, model.Request{Messages: round, Tools: bash})
		if err != nil || got.Text != want {
			t.Errorf("%s: %q, %v", result, got.Text, err)
		}
	}
}

// S0-103: a tool that is not offered is never called.
func TestNoToolNoCall(t *testing.T) {
	for _, said := range []string{"run: ls", "remember: x", "tools: 2"} {
		got, err := generate(t, model.Request{Messages: user(said)})
		if err != nil || len(got.ToolCalls) != 0 || !strings.Contains(got.Text, "not offered") {
			t.Errorf("%s: %+v, %v", said, got, err)
		}
	}
}

// The remembered text is data for the shell, whatever it holds.
func TestRememberQuotes(t *testing.T) {
	text := `it's $HOME; echo "pwned" > x && rm -rf .` + "\n- second line"
	got, err := generate(t, model.Request{Messages: user("remember: " + text), Tools: bash})
	if err != nil || len(got.ToolCalls) != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	var arguments struct{ Command string }
	if err := json.Unmarshal(got.ToolCalls[0].Arguments, &arguments); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "bash", "-c", arguments.Command)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	notes, err := os.ReadFile(filepath.Join(dir, "notes.md"))
	if err != nil || string(notes) != text+"\n" {
		t.Errorf("notes %q, %v", notes, err)
	}
	done, err := generate(t, model.Request{Tools: bash, Messages: append(user("remember: tea"),
		model.Message{Role: model.RoleAssistant, ToolCalls: got.ToolCalls},
		model.Message{Role: model.RoleTool, Text: `{"stdout":"","exitCode":0}`})})
	if err != nil || done.Text != "offline: noted in notes.md: tea" {
		t.Errorf("%q, %v", done.Text, err)
	}
}

func TestToolRounds(t *testing.T) {
	messages := user("tools: 3")
	ids := map[string]bool{}
	for round := range 4 {
		got, err := generate(t, model.Request{Messages: messages, Tools: bash})
		if err != nil {
			t.Fatal(err)
		}
		if round == 3 {
			if got.Text != "offline: 3 tool rounds done." {
				t.Errorf("%q", got.Text)
			}
			break
		}
		if len(got.ToolCalls) != 1 || ids[got.ToolCalls[0].ID] || !strings.Contains(string(got.ToolCalls[0].Arguments), fmt.Sprintf("round %d", round+1)) {
			t.Fatalf("round %d: %+v", round, got.ToolCalls)
		}
		ids[got.ToolCalls[0].ID] = true
		messages = append(messages, model.Message{Role: model.RoleAssistant, ToolCalls: got.ToolCalls},
			model.Message{Role: model.RoleTool, ToolCallID: got.ToolCalls[0].ID, Text: "ok"})
	}
}

func TestFailures(t *testing.T) {
	for kind, class := range map[string]model.Class{
		"rate-limit": model.RateLimited, "unavailable": model.Unavailable, "unreachable": model.Unreachable,
		"cut": model.CutStream, "bad": model.BadResponse, "auth": model.Auth, "config": model.Config,
		"context": model.ContextTooLong, "policy": model.Policy,
	} {
		_, err := generate(t, model.Request{Messages: user("fail: " + kind)})
		if e := model.AsError(err); e == nil || e.Class != class {
			t.Errorf("%s: %v", kind, err)
		}
		if !strings.Contains(offline.Help, kind) {
			t.Errorf("the help does not know %s", kind)
		}
	}
	// S0-86: a drill that recovers at its third try.
	for try, fails := range []bool{true, true, true, false} { // try 0 counts as 1
		_, err := generate(t, model.Request{Messages: user("fail: unavailable 2"), Try: try})
		if (err != nil) != fails {
			t.Errorf("try %d: %v", try, err)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("fail: panic did not")
		}
	}()
	_, _ = generate(t, model.Request{Messages: user("fail: panic")})
}

func TestSlowRespectsTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		got, err := generate(t, model.Request{Messages: user("slow: 2.5")})
		if err != nil || got.Text != "offline: waited 2.5 s." || time.Since(start) != 2500*time.Millisecond {
			t.Errorf("%q after %v, %v", got.Text, time.Since(start), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = offline.Driver{}.Generate(ctx, model.Request{Messages: user("slow: 60")}, nil)
		if e := model.AsError(err); e == nil || e.Class != model.Timeout || time.Since(start) != 3500*time.Millisecond {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := offline.Driver{}.Generate(ctx, model.Request{Messages: user("hi")}, nil)
	if e := model.AsError(err); e == nil || e.Class != model.Canceled {
		t.Errorf("canceled: %v", err)
	}
}
