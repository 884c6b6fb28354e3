package message

import (
	"github.com/oklog/ulid/v2"

	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/thread"
)

// Peer is who speaks at the console. Each has a conversation of its own with an
// agent that routes by peers, which is the default.
type Peer string

// Console is the person at the console unless they say otherwise.
const Console Peer = "cli"

// ParsePeer reads the name of a conversation; "" is the one of the console. The
// error is one of usage.
func ParsePeer(name string) (Peer, error) {
	if name == "" {
		return Console, nil
	}
	if err := command.Conversation.Check(name); err != nil {
		return "", fault.Usage(err.Error(), command.Conversation.Fix)
	}
	return Peer(name), nil
}

// Source is the address the peer speaks from.
func (p Peer) Source() string { return "external:console:cli:dm:" + string(p) + ":" + string(p) }

// Tuple is the same for routing.
func (p Peer) Tuple() route.Tuple {
	return route.Tuple{ChannelType: "console", ChannelID: "cli", PeerID: string(p), SessionType: "dm", SessionID: string(p)}
}

// Conversation is the thread of what the peer says with the default routing.
func (p Peer) Conversation() string { return route.Thread(route.PerPeer, p.Tuple()) }

// Envelope is the content of a message from the console, in the form that the
// gateway writes. It depends on nothing but its arguments, because a repeat under
// the same key must be the same event: the message's id is the key, and its time
// is the one in a ULID (null in a key of another form; the event has its own).
func (p Peer) Envelope(key, text string) string {
	b := append([]byte{}, `{"id":`...)
	b = thread.AppendString(b, key)
	b = append(b, `,"channel_id":"cli","peer_id":`...)
	b = thread.AppendString(b, string(p))
	b = append(b, `,"peer_name":null,"session_id":`...)
	b = thread.AppendString(b, string(p))
	b = append(b, `,"text":`...)
	b = thread.AppendString(b, text)
	b = append(b, `,"attachments":[],"reply_to":null,"created_at":`...)
	if id, err := ulid.ParseStrict(key); err == nil {
		b = thread.AppendString(b, thread.Stamp(ulid.Time(id.Time())))
	} else {
		b = append(b, "null"...)
	}
	return string(append(b, '}'))
}
