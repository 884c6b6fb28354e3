package message

import (
	"context"
	"fmt"

	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/sessionkey"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// SessionKey returns the key of the conversation that text names, as the registry writes it:
// a session of the agent, in whatever case, or one that begins with the first message. A text
// that is no key, or names another agent, is an error of usage.
func SessionKey(ctx context.Context, e *command.Env, agent, text string) (string, error) {
	if id := command.SessionAgent(text); id != agent {
		return "", fault.Usage(fmt.Sprintf("%.80q is a session of agent %q, and not of %q", text, id, agent),
			fmt.Sprintf("'agentctl sessions list %s' shows the keys", agent))
	}
	r, err := e.Sessions().GetSession(ctx, &registry.GetSessionRequest{AgentId: agent, Key: text})
	if !NoSession(err) {
		return r.GetSession().GetKey(), err
	}
	if _, err := sessionkey.Parse(text); err != nil {
		f := fault.From(err)
		return "", fault.Usage(f.What, f.Fix)
	}
	return text, nil
}

// NoSession reports whether err means that the agent has no such conversation yet.
func NoSession(err error) bool {
	return fault.Is(err, fault.SessionNotFound)
}

// SessionKey is the key of the peer's conversation that is stored in a thread, which depends
// on the routing of the agent; mainKey is the last word of its main session key. It is the one
// with the default routing when the thread is none of the peer's.
func (p Peer) SessionKey(agent, thread, mainKey string) string {
	t := p.Tuple()
	k, ok := sessionkey.OfThread(agent, thread, mainKey, t)
	if !ok {
		k = sessionkey.Key{Agent: agent, Scope: sessionkey.AccountChannelPeer, Type: t.ChannelType, Account: t.ChannelID, Peer: t.PeerID}
	}
	return k.String()
}
