package chat

import (
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/theclaw/agents/cmd/agentctl/internal/chat/feed"
	"github.com/theclaw/agents/cmd/agentctl/internal/message"
	"github.com/theclaw/agents/cmd/agentctl/internal/turn"
	"github.com/theclaw/agents/internal/fault"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// say sends a text: at once to the inbox, and onto the screen when it is its turn.
func (m *console) say(text string) tea.Cmd {
	s := feed.Message{Key: message.NewKey(), Text: text}
	m.own[s.Key] = true
	idle := !m.busy()
	m.unsent = append(m.unsent, s)
	m.said.Bottom()
	var cmds []tea.Cmd
	if idle {
		m.said.You(text)
		m.begun = m.now()
		cmds = append(cmds, m.spin.Tick)
	}
	if len(m.unsent) == 1 {
		cmds = append(cmds, m.push())
	}
	return tea.Batch(cmds...)
}

// push sends the oldest message, one at a time: the order of typing is the order
// in the inbox.
func (m *console) push() tea.Cmd {
	if len(m.unsent) == 0 {
		return nil
	}
	return m.from.Say(m.ctx, m.unsent[0])
}

func (m *console) accept(a feed.Accepted) tea.Cmd {
	if len(m.unsent) == 0 {
		return nil
	}
	text := m.unsent[0].Text
	m.unsent = m.unsent[1:]
	if a.Err != nil {
		m.problem(a.Err)
		if len(m.queue) == 0 { // it was the one on the screen
			return tea.Batch(m.push(), m.next())
		}
		return m.push()
	}
	m.queue = append(m.queue, sent{a.ID, text})
	if len(m.queue) > 1 {
		return m.push()
	}
	return tea.Batch(m.push(), m.follow())
}

// follow waits for the oldest message, so that replies are shown in order.
func (m *console) follow() tea.Cmd {
	return m.from.Attend(m.ctx, m.queue[0].id)
}

// next shows the message whose turn it is now.
func (m *console) next() tea.Cmd {
	m.aborted, m.digests, m.begun, m.waits = false, false, m.now(), feed.Changed{}
	switch {
	case len(m.queue) > 0:
		m.said.You(m.queue[0].text)
		return m.follow()
	case len(m.unsent) > 0:
		m.said.You(m.unsent[0].Text)
	default:
		m.show(m.later, nil)
		m.later = nil
	}
	return nil
}

// happen shows what the run of the oldest message does.
func (m *console) happen(p feed.Pieces) {
	if len(m.queue) == 0 || p.ID != m.queue[0].id {
		return
	}
	for _, i := range p.Items {
		m.digests = i.What == feed.Digest
		switch now := m.now(); i.What {
		case feed.Spoke:
			m.said.Say(i.Text, now)
		case feed.Thought:
			m.said.Think(i.Text, now)
		case feed.Began:
			m.said.Start(i.CallID, i.Tool, i.Text, i.Summary, now)
			if said, ok := message.ToPeer(i.Text); ok && i.Tool == "message_send" {
				m.said.Reply(said)
			}
		case feed.Output:
			m.said.Update(i.CallID, i.Text)
		case feed.Ended:
			m.said.End(i.CallID, i.Text, now)
		case feed.Again:
			m.said.Again()
			m.said.Note("the run goes on after an interruption")
		}
	}
}

func (m *console) finish(f feed.Finished) tea.Cmd {
	if len(m.queue) == 0 || m.queue[0].id != f.ID || m.ctx.Err() != nil {
		return nil
	}
	m.queue = m.queue[1:]
	m.newest = f.ID
	if t := f.Turn; t != nil {
		m.locate(t)
		if n := turn.SentMessages(t) + m.askedBy[t.GetKey()]; n > 0 && (m.watching || t.GetReplyEventId() == 0) {
			m.heard, m.heardFrom = n, t.GetInboundEventId()
		}
		m.watch(max(t.GetReplyEventId(), t.GetInboundEventId()))
		m.shown[t.GetReplyEventId()] = f.OK
	}
	switch {
	case f.OK:
		// The journal may be read before the last pieces of the stream have come.
		for _, st := range f.Turn.GetSteps() {
			if st.GetKind() == registry.StepKind_STEP_KIND_TOOL {
				m.said.End(st.GetCallId(), string(st.GetResult()), m.now())
			}
		}
		m.said.Finish(f.Reply, feed.Measured(f.Turn), m.now())
		m.said.Note(feed.Account(f.Turn))
	case f.Err != nil && f.Turn.GetFate() == registry.Fate_FATE_ABORTED:
		m.said.Stop(m.now())
		m.said.Problem(m.ended(f.ID))
	case f.Err != nil:
		m.said.Stop(m.now())
		m.said.Problem(strings.TrimPrefix(fault.Line(f.Err), "Error: "))
	case turn.SentMessages(f.Turn) > 0: // it had said all there was to say, and says it no more
		m.said.Void()
		m.said.Stop(m.now())
		m.said.Note(feed.Account(f.Turn))
	default:
		m.said.Stop(m.now())
		m.said.Note("(no reply: " + message.FateName(f.Turn.GetFate()) + ")")
	}
	return m.next()
}

// abort ends the run under way.
func (m *console) abort() tea.Cmd {
	if len(m.queue) == 0 {
		m.said.Note(noRun)
		return nil
	}
	m.aborted = true
	return m.from.Abort(m.ctx, m.queue[0].id)
}
