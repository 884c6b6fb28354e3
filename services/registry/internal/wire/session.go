package wire

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/sessionkey"
	"github.com/theclaw/agents/internal/store"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Session is a session as an answer carries it.
func Session(agentID, threadID string, s store.Session) *registryv1.Session {
	return &registryv1.Session{
		AgentId: agentID, Key: Text(s.Key), ThreadId: threadID, SessionId: s.Epoch, EpochFromId: s.EpochFrom, StartedAt: stampOf(s.StartedAt),
		Pending: s.Pending, Title: Text(s.Title), Archived: s.Archived,
		Overrides: &registryv1.SessionOverrides{
			Model: Text(s.Model), Thinking: Text(s.Thinking), Verbose: Text(s.Verbose), Reasoning: Text(s.Reasoning), QueueMode: Text(s.QueueMode),
			UsageFooter: Text(s.UsageFooter), Elevated: Text(s.Elevated),
		},
	}
}

// SessionEntry is a session of a list.
func SessionEntry(agentID string, e store.SessionEntry) *registryv1.Session {
	return &registryv1.Session{
		AgentId: agentID, Key: Text(e.Key), ThreadId: e.Thread, SessionId: e.Epoch, LastAt: stampOf(e.LastAt), Messages: e.Messages,
		Title: Text(e.Title), Archived: e.Archived,
	}
}

// SessionFault is what a caller gets for an error about the session of a key.
func (s Faults) SessionFault(k sessionkey.Key, err error) error {
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrNoSession) {
		if s.Missing(k.Agent) {
			return s.Fault(k.Agent, "", store.ErrNotFound)
		}
		return fault.New(codes.NotFound, fault.SessionNotFound, fmt.Sprintf("agent '%s' has no conversation %.200q", k.Agent, k.String()),
			"'agentctl sessions list "+k.Agent+"' lists its conversations")
	}
	return s.Fault(k.Agent, k.Thread(), err)
}
