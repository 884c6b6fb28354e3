package chat

import (
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/theclaw/agents/cmd/agentctl/internal/chat/feed"
	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/internal/execpolicy"
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
		if text := always(a.Approval); text != "" {
			m.said.Note(text)
		}
	case !pending && at >= 0:
		m.asked = append(m.asked[:at:at], m.asked[at+1:]...)
	}
}

// always says what the answer always would allow from now on; empty: it is not possible.
func always(a *registry.Approval) string {
	var entries []string
	for _, p := range a.GetPatterns() {
		entries = append(entries, screen.Line(execpolicy.Entry{Pattern: p.GetPattern(), Args: p.GetArgs()}.String()))
	}
	if len(entries) == 0 {
		return ""
	}
	return "always allows from now on: " + strings.Join(entries, ", ")
}

// choices are the answers to a command that waits.
func choices(a *registry.Approval) string {
	if len(a.GetPatterns()) > 0 {
		return "y, n or always"
	}
	return "y or n"
}

// decision reads the answer to a command that waits; ok is false for any other text.
func decision(text string) (d registry.ApprovalDecision, ok bool) {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "y", "yes", "once":
		return registry.ApprovalDecision_APPROVAL_DECISION_ONCE, true
	case "always":
		return registry.ApprovalDecision_APPROVAL_DECISION_ALWAYS, true
	case "n", "no":
		return registry.ApprovalDecision_APPROVAL_DECISION_DENY, true
	}
	return d, false
}

// howToAnswer is shown after /approve or /deny with a word that says something else.
const howToAnswer = "answer with /approve, /approve always or /deny"

// commanded is the answer that /approve and /deny give; ok is false when the words after it say
// something else.
func commanded(name, rest string) (d registry.ApprovalDecision, ok bool) {
	if rest = strings.TrimSpace(rest); rest == "" {
		rest = map[string]string{"approve": "once", "deny": "no"}[name]
	}
	d, ok = decision(rest)
	denies := d == registry.ApprovalDecision_APPROVAL_DECISION_DENY
	return d, ok && denies == (name == "deny")
}

// answer answers the command that waits longest.
func (m *console) answer(d registry.ApprovalDecision) tea.Cmd {
	if len(m.asked) == 0 {
		m.said.Note(noQuestion)
		return nil
	}
	return m.from.Answer(m.ctx, m.asked[0].GetApprovalId(), d)
}
