package chat

import (
	"fmt"
	"slices"
	"strings"

	"github.com/theclaw/agents/cmd/agentctl/internal/chat/feed"
	"github.com/theclaw/agents/internal/fault"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// asking are the questions of the agent that wait for an answer of the peer, oldest first.
type asking []*registry.Question

// change takes over how a question stands; fresh: it waits and was not known.
func (a *asking) change(q *registry.Question) (fresh bool) {
	same := func(b *registry.Question) bool { return b.GetQuestionId() == q.GetQuestionId() }
	switch pending := q.GetState() == registry.QuestionState_QUESTION_STATE_PENDING; {
	case !pending:
		*a = slices.DeleteFunc(*a, same)
	case !slices.ContainsFunc(*a, same):
		*a = append(*a, q)
		return true
	}
	return false
}

// questionText is a question with its numbered options, as the peer reads it.
func questionText(q *registry.Question) string {
	var b strings.Builder
	b.WriteString(q.GetText())
	for n, o := range q.GetOptions() {
		fmt.Fprintf(&b, "\n%d. %s", n+1, o)
	}
	return b.String()
}

// options is what may be typed as the answer to a question.
func options(q *registry.Question) string {
	switch n := len(q.GetOptions()); {
	case n == 0:
		return "your answer"
	case q.GetAllowText():
		return fmt.Sprintf("1 to %d, or your answer", n)
	default:
		return fmt.Sprintf("1 to %d", n)
	}
}

// askPeer shows a question once; one that has ended, wherever it was answered, waits no more.
func (m *console) askPeer(q *registry.Question) {
	if m.questions.change(q) {
		m.said.Problem(m.from.Agent + " asks you:")
		m.said.Quote(questionText(q))
		m.askedBy[askingTurn(q)]++
	}
}

// askingTurn is the key of the turn that asks; the key of the question begins with it.
func askingTurn(q *registry.Question) string {
	parts := strings.SplitN(q.GetKey(), ":", 4)
	return strings.Join(parts[:min(3, len(parts))], ":")
}

// askPeer shows a question once.
func (p *plain) askPeer(q *registry.Question) {
	if p.questions.change(q) {
		p.say(p.from.Agent+" asks you", questionText(q))
		p.ask(options(q) + ": ")
	}
}

// reply answers the question that waits longest, and asks again when the text is no answer to it.
func (p *plain) reply(text string) {
	q := p.questions[0]
	p.questions = p.questions[1:]
	r := p.from.Reply(p.ctx, q.GetQuestionId(), text)()
	p.show(r)
	if c, ok := r.(feed.CommandResult); ok && fault.Is(c.Err, fault.AnswerInvalid) {
		p.questions = append(asking{q}, p.questions...)
		if p.end == nil {
			p.ask(options(q) + ": ")
		}
	}
}
