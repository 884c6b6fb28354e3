package chat

import (
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"

	"github.com/theclaw/agents/cmd/agentctl/internal/chat/feed"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// S3-48: a question is shown once with its numbered options, what is typed answers it, and it is
// forgotten when it was answered anywhere. Its message is not shown again after the run.
func TestQuestion(t *testing.T) {
	m := typing(t)
	press(m, text("go")...)
	press(m, special(tea.KeyEnter))
	m.Update(feed.Accepted{ID: 7})
	asked := func(id, question string, s registry.QuestionState, options ...string) {
		m.Update(feed.QuestionChange{Question: &registry.Question{QuestionId: id, Key: "u:7:f:tool:1:1", Text: question, Options: options, State: s}})
	}
	for range 2 { // a registry that was away reports it again
		asked("1", "Which account?\x1b[2J", registry.QuestionState_QUESTION_STATE_PENDING, "main", "savings")
	}
	asked("2", "And how much?", registry.QuestionState_QUESTION_STATE_PENDING)
	if s := shown(m); strings.Count(s, "2. savings") != 1 || strings.Contains(s, "\x1b[2J") || !strings.Contains(s, "And how much?") ||
		!strings.Contains(s, "Type 1 to 2, then Enter: Which account?") || !strings.Contains(s, "waits for your answer") {
		t.Errorf("asked:\n%s", s)
	}
	press(m, text("2")...)
	if press(m, special(tea.KeyEnter)) == nil || m.input.Value() != "" || len(m.unsent) > 0 {
		t.Errorf("2 is no answer: %v", m.unsent)
	}
	asked("1", "Which account?", registry.QuestionState_QUESTION_STATE_ANSWERED)
	if s := shown(m); !strings.Contains(s, "Type your answer, then Enter: And how much?") {
		t.Errorf("the next question:\n%s", s)
	}
	asked("2", "And how much?", registry.QuestionState_QUESTION_STATE_EXPIRED)
	press(m, text("more")...)
	if press(m, special(tea.KeyEnter)); len(m.unsent) != 1 || m.unsent[0].Text != "more" {
		t.Errorf("nothing is asked, and the text is not sent: %v", m.unsent)
	}
	m.watching = true
	m.Update(feed.Seen{Events: []*registry.Event{{Id: 4, Source: "self", Content: `{"text":"Which account?\n1. main\n2. savings"}`}, {Id: 5, Source: "self", Content: `{"text":"And how much?"}`}}})
	m.unsent = nil
	m.Update(feed.Finished{ID: 7, OK: true, Reply: "done", Turn: &registry.Turn{Key: "u:7:f", InboundEventId: 3, ReplyEventId: 6, Fate: registry.Fate_FATE_REPLIED}})
	if s := shown(m); strings.Count(s, "2. savings") != 1 || strings.Count(s, "And how much?") != 1 || !strings.Contains(s, "done") {
		t.Errorf("after the run:\n%s", s)
	}
}
