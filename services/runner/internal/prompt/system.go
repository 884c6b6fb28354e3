package prompt

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/theclaw/agents/internal/source"
	"github.com/theclaw/agents/internal/toolpolicy"
	"github.com/theclaw/agents/services/runner/internal/silence"
)

// NoReply as the complete answer means that the agent stays silent.
const NoReply = silence.Word

func memoryTitle(name string) string {
	name = strings.TrimPrefix(name, "memory/")
	switch {
	case name == "agent.md":
		return "Memory: what you know"
	case strings.HasPrefix(name, "user-"):
		return "Memory: the person you talk with"
	case strings.HasPrefix(name, "thread-"):
		return "Memory: this conversation so far"
	}
	return "Memory: " + name
}

// shellName is the name under which the tool for commands is offered.
func shellName(s *Scope) string {
	for _, t := range s.Tools {
		if toolpolicy.Canonical(t.Name) == "exec" {
			return t.Name
		}
	}
	return "bash_exec"
}

func toolText(s *Scope) string {
	var b strings.Builder
	b.WriteString("## Tools\n\nThe tool " + shellName(s) + " runs a shell command")
	if s.Walled {
		b.WriteString(" in a sandbox")
	}
	if s.Workdir != "" {
		b.WriteString(", in the directory " + s.Workdir)
		if s.Walled {
			b.WriteString("; only there files can be written")
		}
	}
	b.WriteString(". The network is ")
	switch {
	case s.Network:
		b.WriteString("open.")
	case len(s.Hosts) > 0:
		b.WriteString("closed, except for HTTP and HTTPS to " + strings.Join(s.Hosts, ", ") + ", through the proxy of the variable HTTPS_PROXY.")
	default:
		b.WriteString("closed.")
	}
	b.WriteString(" To find a program for a task, run `cmds find \"what you need\"`; `cmds info NAME` explains one.")
	return b.String()
}

// peerText describes who writes and where the answer goes (S0-108).
func peerText(s *Scope) string {
	var c struct {
		ChannelType string `json:"channel_type"`
		ChannelID   string `json:"channel_id"`
		PeerID      string `json:"peer_id"`
		SourceAgent string `json:"source_agent_id"`
		Visibility  string `json:"visibility"`
	}
	if s.ReplyContext == "" || json.Unmarshal([]byte(s.ReplyContext), &c) != nil {
		return ""
	}
	var b strings.Builder
	b.WriteString("## Conversation\n\nYou talk with ")
	switch {
	case c.ChannelType == "internal" || c.SourceAgent != "":
		if c.SourceAgent == "" {
			c.SourceAgent = c.PeerID
		}
		b.WriteString("the agent " + quote(c.SourceAgent) + ".")
	default:
		b.WriteString(quote(c.PeerID) + " over the channel " + quote(c.ChannelID))
		switch kind(s.Inbound.Source) {
		case source.Group, source.Channel:
			b.WriteString(", in a group that reads your answer.")
		default:
			b.WriteString(", alone.")
		}
	}
	b.WriteString(" Your final text is delivered to them by itself: do not send it with a tool. To stay silent, answer with " + NoReply + " and nothing else.")
	return b.String()
}

// maxOwners is how many owners a prompt names.
const maxOwners = 32

// ownersText says who may decide for the agent, and whether the message is from one of them (S4-56). The ids are in the
// prompts of owners' messages alone: a guest can persuade a model to repeat its prompt, and on some platforms an id is a
// phone number. No right depends on this text: the registry decides what an owner may do.
func ownersText(s *Scope) string {
	if s.Inbound.Source == "" {
		return ""
	}
	if !source.IsOwner(s.Inbound.Source, s.Owners) {
		return "## Owners\n\nYou have owners, who may decide for you. This message is not from one of them."
	}
	var b strings.Builder
	b.WriteString("## Owners\n\nThis message is from one of your owners, who may decide for you. Their ids are ")
	for i, o := range s.Owners[:min(len(s.Owners), maxOwners)] {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(quote(o))
	}
	if more := len(s.Owners) - maxOwners; more > 0 {
		b.WriteString(" and " + strconv.Itoa(more) + " more")
	}
	b.WriteString("; everyone else is a guest.")
	return b.String()
}

// othersText introduces the agents that work may be handed to, in what they say
// about themselves to callers (S0-24).
func othersText(s *Scope) string {
	var b strings.Builder
	for _, a := range s.Agents {
		b.WriteString("\n- " + quote(a.ID) + ": " + strings.ReplaceAll(a.Usage, "\n", "\n  "))
	}
	if b.Len() == 0 {
		return ""
	}
	return "## Other agents\n" + b.String()
}

func kind(src string) string {
	a, _, err := source.ParseLenient(src)
	if err != nil {
		return source.DM
	}
	return a.SessionType
}

// quote keeps a peer's name one short word of the sentence: it is the peer's
// choice, and it must not read like an instruction of ours.
func quote(s string) string {
	const longest = 120
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == '`' || r == 0x7f {
			return '_'
		}
		return r
	}, s)
	if len(s) > longest {
		s = Cut(s, longest/4) + "..."
	}
	return "`" + s + "`"
}
