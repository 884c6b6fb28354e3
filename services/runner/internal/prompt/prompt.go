package prompt

import (
	"slices"
	"strings"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/thread"
	"github.com/theclaw/agents/services/runner/internal/model"
)

// Budget is what a prompt may take of a context window, in tokens. The rest is for the
// answer and for the provider's own framing.
func Budget(contextWindow, maxOutput int64) int64 {
	return contextWindow - maxOutput - config.SafetyTokens
}

// File is a file of the prompt, such as IDENTITY.md or memory/agent.md.
type File struct{ Name, Content string }

// Event is a message of the conversation.
type Event struct {
	ID        int64
	CreatedAt string
	Source    string
	Content   string
	// Transcripts of its files.
	Transcripts []thread.Transcript
	// Unanswered: it died of a failure of this class; Refused: the provider of the model
	// refuses its text.
	Unanswered, Refused bool
	Class               string
}

// Scope is all that a prompt is made of: one conversation of one agent.
type Scope struct {
	// Files in their order.
	Files []File
	// Tail holds the newest messages before and up to Inbound, in rising id.
	Tail []Event
	// Context holds what people wrote in the conversation since the last reply without addressing the agent, and the
	// later versions of messages, in rising id.
	Context []Event
	// Inbound is the message to answer; its ID 0 means that there is none yet.
	Inbound Event
	// ReplyContext of the answer, JSON text.
	ReplyContext string
	// Turn holds what was said and done since Inbound.
	Turn []model.Message
	// Tools that will be offered; they cost tokens too.
	Tools []model.Tool

	// Digested: the memory holds the events up to it. Of those only the newest are
	// shown raw, up to Keep tokens of all messages; newer ones are as they fit.
	Digested, Keep int64
	// Turns is how many messages of people before Inbound are shown at most, with what followed each; 0: any number.
	Turns int
	// Most bounds the messages before Inbound in tokens, and MaxPrompt the complete prompt
	// below its budget, for a provider that found it too long; 0: not bounded.
	Most, MaxPrompt int64
	// Owners of the agent, each as type:peer, in a fixed order.
	Owners []string
	// Agents that work may be handed to.
	Agents []Agent

	// ContextWindow and MaxOutput are in tokens; a window of 0 is not bounded.
	ContextWindow, MaxOutput int64
	// Workdir, Network and Walled say where commands run.
	Workdir string
	Network bool
	// Hosts are those that commands reach where the network is closed.
	Hosts  []string
	Walled bool
}

// Agent is another agent and the beginning of its USAGE.md.
type Agent struct{ ID, Usage string }

// Prompt is what the model gets.
type Prompt struct {
	System   string
	Messages []model.Message
	// Tokens is the estimate of everything, tools included; Budget what there is.
	Tokens, Budget int64
	// Wanted is what the prompt would be with every message that is not digested.
	Wanted int64
	// Undigested messages came before Inbound. Turns are those with Inbound's whose
	// messages are in no digest.
	Undigested, Turns int
	// Upto is the last event before Inbound; 0: none.
	Upto int64
	// Dropped counts older messages that did not fit and are in no digest.
	Dropped int

	parts []Part         // of the system text
	sent  [groups][]Part // the messages
}

// Parts are the prompt piece by piece, in the order the model gets it, with the messages
// one by one.
func (p *Prompt) Parts() []Part {
	out := slices.Clone(p.parts)
	for _, parts := range p.sent {
		for _, part := range parts {
			part.Text = shown(part.message)
			out = append(out, part)
		}
	}
	return out
}

// Build assembles the prompt of a scope.
func (list Sources) Build(s Scope) Prompt {
	p := Prompt{Budget: Budget(s.ContextWindow, s.MaxOutput)}
	if s.ContextWindow <= 0 {
		p.Budget = 1 << 40
	}
	said := p.collect(list, &s)
	var system []string
	for _, part := range p.parts {
		system = append(system, part.Text)
	}
	p.System = strings.Join(system, "\n\n")
	fixed := cost(model.Request{System: p.System, Tools: s.Tools})

	history, inbound, turn := said[oldest], said[end], said[results]
	first := firstOf(history, s.Turns)
	p.measure(&s, history, first)
	p.Wanted += fixed + sum(inbound) + sum(turn)
	budget := p.Budget
	if s.MaxPrompt > 0 {
		budget = min(budget, s.MaxPrompt)
	}
	room := budget - fixed - sum(inbound) - sum(turn)
	if room < 0 {
		room += shrinkTools(turn, -room)
	}
	for i := 0; i < len(inbound) && room < 0; i++ {
		room += shrinkText(&inbound[i], -room)
	}
	kept := len(history)
	for raw := int64(0); kept > first; kept-- {
		e := &history[kept-1]
		raw += e.Tokens
		if room -= e.Tokens; room < 0 || s.Most > 0 && raw > s.Most || s.digested(*e) && raw > s.Keep {
			break
		}
	}
	for i := range history[:kept] {
		if !s.digested(history[i]) {
			p.Dropped++
		}
	}

	p.Tokens, p.sent = fixed, [groups][]Part{history[kept:], inbound, turn}
	p.Messages = make([]model.Message, 0, len(history)-kept+len(inbound)+len(turn)+1) // and the answer
	for _, parts := range p.sent {
		for i := range parts {
			p.Messages = append(p.Messages, parts[i].message)
			p.Tokens += parts[i].Tokens
		}
	}
	return p
}

// collect asks the sources. Those of the system text become parts of the prompt, the
// stable ones first; messages are answered by their group.
func (p *Prompt) collect(list Sources, s *Scope) (said [groups][]Part) {
	for _, source := range list {
		parts := source.Parts(s)
		if m, ok := source.(messages); ok {
			if said[m.group()] == nil { // history is long
				said[m.group()] = parts
			} else {
				said[m.group()] = append(said[m.group()], parts...)
			}
			continue
		}
		for _, part := range parts {
			if part.Text = strings.TrimSpace(part.Text); part.Text != "" {
				part.Role, part.Tokens = model.RoleSystem, model.EstimateTokens(part.Text)
				p.parts = append(p.parts, part)
			}
		}
	}
	slices.SortStableFunc(p.parts, func(a, b Part) int {
		switch {
		case a.Stable == b.Stable:
			return 0
		case a.Stable:
			return -1
		}
		return 1
	})
	return said
}

func (s *Scope) digested(e Part) bool { return s.Digested > 0 && e.id <= s.Digested }

// firstOf is the place of the oldest message that is shown where at most so many messages of people are; 0 is any
// number of them.
func firstOf(history []Part, turns int) int {
	for i := len(history) - 1; i >= 0 && turns > 0; i-- {
		if history[i].message.Role != model.RoleUser {
			continue
		}
		if turns--; turns == 0 {
			return i
		}
	}
	return 0
}

// measure counts what no digest holds, and what would be shown of the rest, of which that before first is not.
func (p *Prompt) measure(s *Scope, history []Part, first int) {
	p.Turns = 1
	for i := len(history) - 1; i >= 0; i-- {
		e := &history[i]
		p.Upto = max(p.Upto, e.id)
		if !s.digested(*e) {
			if !e.note {
				p.Undigested++
			}
			if e.message.Role != model.RoleAssistant {
				p.Turns++
			}
		} else if p.Wanted+e.Tokens > s.Keep {
			break
		}
		if i >= first {
			p.Wanted += e.Tokens
		}
	}
}

// shown is a message as a person reads it.
func shown(m model.Message) string {
	var b strings.Builder
	b.WriteString(m.Text)
	for _, c := range m.ToolCalls {
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(c.Name + " " + string(c.Arguments))
	}
	return b.String()
}

func cost(r model.Request) int64 { return model.EstimateRequest(r) }

func sum(list []Part) int64 {
	var n int64
	for i := range list {
		n += list[i].Tokens
	}
	return n
}
