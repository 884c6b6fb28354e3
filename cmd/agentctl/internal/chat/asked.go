package chat

import (
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/theclaw/agents/cmd/agentctl/internal/chat/feed"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// ask shows a command that waits for a yes or no, once; one that has its answer,
// from wherever, waits no more.
func (m *console) ask(a feed.ApprovalChange) {
	id := a.Approval.GetApprovalId()
	at := -1
	for n, w := range m.asked {
		if w.GetApprovalId() == id {
			at = n
		}
	}
	switch pending := a.Approval.GetState() == registry.ApprovalState_APPROVAL_STATE_PENDING; {
	case pending && at < 0:
		m.asked = append(m.asked, a.Approval)
		m.said.Problem(m.from.Agent + " asks whether it may run this, once (" + a.Approval.GetReason() + "):")
		m.said.Quote(a.Approval.GetCommand())
	case !pending && at >= 0:
		m.asked = append(m.asked[:at:at], m.asked[at+1:]...)
	}
}

// yesOrNo reads the answer to a command that waits; ok is false for any other text.
func yesOrNo(text string) (yes, ok bool) {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "y", "yes":
		return true, true
	case "n", "no":
		return false, true
	}
	return false, false
}

// answer says yes or no to the command that waits longest.
func (m *console) answer(yes bool) tea.Cmd {
	if len(m.asked) == 0 {
		m.said.Note(noQuestion)
		return nil
	}
	return m.from.Answer(m.ctx, m.asked[0].GetApprovalId(), yes)
}
