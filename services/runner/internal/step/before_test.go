package step_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/step"
	"github.com/theclaw/agents/services/runner/internal/toolset"
	"github.com/theclaw/agents/services/runner/internal/toolset/message"
)

const (
	done    = pb.StepState_STEP_STATE_DONE
	inDoubt = pb.StepState_STEP_STATE_IN_DOUBT
)

func newLog(t *testing.T, steps ...*pb.Step) *step.Log {
	t.Helper()
	tools, err := toolset.New(message.Tool{})
	if err != nil {
		t.Fatal(err)
	}
	l := &step.Log{Tools: tools}
	for n, s := range steps {
		s.Seq, s.Kind, s.Key = int32(n+1), pb.StepKind_STEP_KIND_TOOL, step.ToolKey(1, n+1)
		l.Add(s)
	}
	return l
}

func ended(summary, result string, took time.Duration) *pb.Step {
	return &pb.Step{Name: "bash_exec", Summary: summary, Result: []byte(result), Duration: durationpb.New(took), State: done}
}

// S1-53, S4-40, S1-48: what precedes the text of a reply, in each mode.
func TestBefore(t *testing.T) {
	sent := ended("message_send hi", `{"status":"sent"}`, time.Second)
	sent.Name, sent.Arguments = "message_send", `{"text":"hi"}`
	l := newLog(t,
		ended("exec ls -la", `{"stdout":"a\nb\n","stderr":"","exitCode":0,"timedOut":false,"truncated":false}`, 47*time.Millisecond),
		ended("exec cat `x`", `{"stdout":"","stderr":"no \u001b[1mfile\n","exitCode":1,"timedOut":false,"truncated":false}`, 1204*time.Millisecond),
		sent,
		ended("read secret.txt", `{"error":"there is no file secret.txt"}`, 0),
		&pb.Step{Name: "web_fetch", Summary: "web_fetch https://example.org", State: inDoubt, Result: toolset.Problem(toolset.Unknown)},
		&pb.Step{Name: "old tool", State: done, Result: []byte(`{"sum":3}`)},
		&pb.Step{Name: "bash_exec", Summary: "exec sleep 9", State: pb.StepState_STEP_STATE_INTENT},
	)
	const (
		names = "`exec`: ok in 47ms\n`exec`: failed in 1.204s\n`read`: failed in 0s\n`web_fetch`: it is not known how it ended\n`old tool`: ok in 0s"
		on    = "`exec ls -la`: ok in 47ms\n`` exec cat `x` ``: failed in 1.204s: `it ended with exit code 1`\n`read secret.txt`: failed in 0s: `there is no file secret.txt`\n" +
			"`web_fetch https://example.org`: it is not known how it ended\n`old tool`: ok in 0s"
		full = "`exec ls -la`: ok in 47ms\n```\na\nb\n```\n`` exec cat `x` ``: failed in 1.204s\n```\nno [1mfile\n```\n`read secret.txt`: failed in 0s\n```\nthere is no file secret.txt\n```\n" +
			"`web_fetch https://example.org`: it is not known how it ended\n`old tool`: ok in 0s\n```\n{\"sum\":3}\n```"
		thought = "> Thinking: first this\n> \n> then that"
	)
	a := step.Answer{Text: "answer", Reasoning: "first this\n\nthen that\n"}
	for _, c := range []struct{ verbose, reasoning, want string }{
		{"", "", ""},
		{"off", "off", ""},
		{"names", "off", names},
		{"on", "stream", on},
		{"full", "", full},
		{"off", "block", thought},
		{"on", "block", on + "\n\n" + thought},
		{"a mode of a later build", "as well", names},
	} {
		if got := l.Before(a, &pb.ReplyParts{Verbose: c.verbose, Reasoning: c.reasoning}); got != c.want {
			t.Errorf("verbose %q, reasoning %q:\n%s\nwant\n%s", c.verbose, c.reasoning, got, c.want)
		}
	}
	if got := l.Before(a, nil); got != "" {
		t.Errorf("of an older registry: %q", got)
	}
	if got := newLog(t).Before(step.Answer{Text: "x"}, &pb.ReplyParts{Verbose: "full", Reasoning: "block"}); got != "" {
		t.Errorf("without calls and thinking: %q", got)
	}
}

// What precedes a reply is bounded, whatever was called and thought.
func TestBeforeIsBounded(t *testing.T) {
	var steps []*pb.Step
	for range 500 {
		steps = append(steps, ended("exec "+strings.Repeat("x", 190), fmt.Sprintf(`{"text":%q}`, strings.Repeat("日", 100_000)), time.Second))
	}
	for _, verbose := range []string{"names", "on", "full"} {
		got := newLog(t, steps...).Before(step.Answer{Reasoning: strings.Repeat("語", 100_000)}, &pb.ReplyParts{Verbose: verbose, Reasoning: "block"})
		lines := strings.Count(got, "`: ok in 1s")
		if len(got) > 8500 || !strings.Contains(got, fmt.Sprintf("\nand %d more calls\n\n> Thinking: 語", 500-lines)) || !strings.HasSuffix(got, "語…") {
			t.Errorf("%s: %d bytes, %d lines, %q", verbose, len(got), lines, got[max(len(got)-2100, 0):][:100])
		}
		if n := strings.Count(got, "日"); verbose == "full" && n != 500*lines {
			t.Errorf("%d characters of %d results", n, lines)
		}
	}
}
