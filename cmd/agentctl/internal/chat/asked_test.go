package chat

import (
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"

	"github.com/theclaw/agents/cmd/agentctl/internal/chat/feed"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// A command that waits for a yes or no is shown once, answered in its turn, and
// forgotten when somebody else has answered.
func TestAsked(t *testing.T) {
	m := typing(t)
	asked := func(id, command string, s registry.ApprovalState) {
		m.Update(feed.ApprovalChange{Approval: &registry.Approval{ApprovalId: id, AgentId: "a1", Command: command, Reason: "it runs outside of the sandbox", State: s}})
	}
	yes := func() tea.Cmd {
		press(m, text("/approve")...)
		return press(m, special(tea.KeyEnter))
	}
	if yes() != nil || !strings.Contains(shown(m), "no command waits") {
		t.Errorf("nothing was asked:\n%s", shown(m))
	}
	for range 2 { // a registry that was away tells it again
		asked("1", "rm -r build", registry.ApprovalState_APPROVAL_STATE_PENDING)
	}
	asked("2", "make\x1b[2J", registry.ApprovalState_APPROVAL_STATE_PENDING)
	if s := shown(m); strings.Count(s, "  rm -r build") != 1 || !strings.Contains(s, "make") || strings.Contains(s, "\x1b[2J") || !strings.Contains(s, "Run it, once? y or n, then Enter: rm -r build\n") {
		t.Errorf("asked:\n%s", s)
	}
	if yes() == nil || m.asked[0].GetApprovalId() != "1" {
		t.Error("the first one is not answered")
	}
	for _, said := range []string{"y", "No"} { // neither is a message
		press(m, text(said)...)
		if press(m, special(tea.KeyEnter)) == nil || m.input.Value() != "" || len(m.unsent) > 0 {
			t.Errorf("%s is no answer: %v", said, m.unsent)
		}
	}
	asked("1", "rm -r build", registry.ApprovalState_APPROVAL_STATE_APPROVED)
	if len(m.asked) != 1 || m.asked[0].GetApprovalId() != "2" {
		t.Errorf("waiting: %v", m.asked)
	}
	asked("2", "make", registry.ApprovalState_APPROVAL_STATE_DENIED)
	press(m, text("y")...)
	if press(m, special(tea.KeyEnter)); len(m.unsent) != 1 || m.unsent[0].Text != "y" {
		t.Errorf("nothing is asked, and y is not sent: %v", m.unsent)
	}
	if len(m.asked) != 0 {
		t.Errorf("waiting: %v", m.asked)
	}
}

// S2-15: a command that can be allowed permanently says what always would allow, and takes that
// answer; one that cannot does not offer it.
func TestAskedAlways(t *testing.T) {
	m := typing(t)
	m.Update(feed.ApprovalChange{Approval: &registry.Approval{
		ApprovalId: "1", AgentId: "a1", Command: "/usr/bin/git push", Reason: "it runs outside of the sandbox", State: registry.ApprovalState_APPROVAL_STATE_PENDING,
		Patterns: []*registry.ExecEntry{{Pattern: "/usr/bin/git", Args: []string{"push"}}, {Pattern: "/usr/bin/id\x1b[2J"}},
	}})
	if s := shown(m); !strings.Contains(s, "always allows from now on: /usr/bin/git push, /usr/bin/id") || !strings.Contains(s, "Run it, once? y, n or always, then Enter") || strings.Contains(s, "\x1b[2J") {
		t.Errorf("asked:\n%s", s)
	}
	press(m, text("always")...)
	if press(m, special(tea.KeyEnter)) == nil || len(m.unsent) > 0 {
		t.Errorf("always is no answer: %v", m.unsent)
	}
	for text, want := range map[string]registry.ApprovalDecision{
		"approve": registry.ApprovalDecision_APPROVAL_DECISION_ONCE, "approve always": registry.ApprovalDecision_APPROVAL_DECISION_ALWAYS,
		"approve no": 0, "approve 17": 0, "deny": registry.ApprovalDecision_APPROVAL_DECISION_DENY, "deny always": 0,
	} {
		name, rest, _ := strings.Cut(text, " ")
		if got, ok := commanded(name, rest); ok != (want != 0) || ok && got != want {
			t.Errorf("/%s: %v, %t", text, got, ok)
		}
	}
}

// S1-52: what the agent sends while it works stands where it was sent, once; the
// same again at the end is not shown.
func TestSentOnTheWay(t *testing.T) {
	m := typing(t)
	press(m, text("go")...)
	press(m, special(tea.KeyEnter))
	m.Update(feed.Accepted{ID: 7})
	m.Update(feed.Pieces{ID: 7, Items: []feed.Item{
		{What: feed.Began, Tool: "message_send", CallID: "c1", Text: `{"text":"half way"}`},
		{What: feed.Ended, Tool: "message_send", CallID: "c1", Text: `{"sent":true}`},
		{What: feed.Spoke, Text: "half way"},
	}})
	m.Update(feed.Finished{ID: 7, Turn: &registry.Turn{InboundEventId: 3, Fate: registry.Fate_FATE_SILENT, Steps: []*registry.Step{
		{Kind: registry.StepKind_STEP_KIND_TOOL, Name: "message_send", CallId: "c1", Result: []byte(`{"sent":true}`)},
	}}})
	m.Update(feed.Seen{Events: []*registry.Event{{Id: 4, Source: "self", Content: `{"text":"half way"}`}}})
	if s := shown(m); strings.Count(s, "a1: half way") != 1 || strings.Contains(s, "no reply") {
		t.Errorf("shown:\n%s", s)
	}
	m.Update(feed.Seen{Events: []*registry.Event{{Id: 6, Source: "self", Content: `{"text":"from another window"}`}}})
	if s := shown(m); !strings.Contains(s, "from another window") {
		t.Errorf("later:\n%s", s)
	}
}
