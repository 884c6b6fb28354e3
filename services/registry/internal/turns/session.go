package turns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/sessionkey"
	"github.com/theclaw/agents/internal/store"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// sessionOf is what a claim must know of the session of its conversation; nil: it has none.
func sessionOf(agentID, threadID string, set *agentdir.Agent, origin *store.Origin, t route.Tuple) *store.BeginSession {
	b := &store.BeginSession{}
	if origin != nil && origin.Key != "" {
		b.Key = origin.Key
	} else if k, ok := sessionkey.OfThread(agentID, threadID, set.Config.Session.MainKey, t); ok {
		b.Key = k.String()
	} else {
		return nil
	}
	reset := set.Config.Session.Reset
	if reset.Daily() {
		b.Before = reset.Before(time.Now(), set.Config.Zone())
	}
	if reset.Idles() {
		b.Idle = reset.Idle
	}
	return b
}

// conversation is what the settings of a turn depend on. The key says which kind of conversation it is and, where
// it has one, through which account; of a direct one the message does, which may be from a group. A group that
// is known by its key alone is of the default account of its type.
func conversation(accounts []layer.Account, key, threadID string, t route.Tuple) config.Conversation {
	at := config.Conversation{Thread: threadID, Key: key}
	k, err := sessionkey.Parse(at.Key)
	if err != nil { // it has none
		k = sessionkey.Key{}
	}
	at.Account, at.Kind = k.Account, k.Kind
	if !t.Internal && slices.ContainsFunc(accounts, func(a layer.Account) bool { return a.Name == t.ChannelID }) {
		at.Account = t.ChannelID
		if at.Kind == "" {
			at.Kind = t.SessionType
		}
	}
	if at.Account == "" && k.Type != "" {
		for _, a := range accounts {
			if a.Type == k.Type && (at.Account == "" || a.Default) {
				at.Account = a.Name
			}
		}
	}
	if at.Kind == "" && at.Account != "" {
		at.Kind = sessionkey.DM
	}
	return at
}

// history is how many earlier messages of people the prompt of a direct conversation through an account has at most; 0: the
// settings of accounts bound it not. set means that the account states it, in the place of context.recent_messages.
func history(accounts []layer.Account, at config.Conversation, t route.Tuple) (turns int, set bool) {
	if at.Kind != sessionkey.DM {
		return 0, false
	}
	for i := range accounts {
		if accounts[i].Name == at.Account {
			return accounts[i].HistoryOf(t.PeerID)
		}
	}
	return 0, false
}

// maxHistory is the most messages of context where an account states how many messages of people there are.
const maxHistory = 2000

// setHistory makes what an account states count in the prompts of a turn.
func setHistory(c *registryv1.TurnConfig, turns int, set bool) {
	if c.HistoryTurns = int32(turns); set {
		c.Compaction.RecentMessages = maxHistory
	}
}

// GetTurnConfig returns the settings that the next turn of a conversation has.
func (s *Service) GetTurnConfig(ctx context.Context, req *registryv1.GetTurnConfigRequest) (*registryv1.GetTurnConfigResponse, error) {
	a, err := s.Agents.Agent(ctx, req.GetAgentId())
	if err != nil {
		return nil, err
	}
	set, err := s.Agents.Settings(ctx, a)
	if err != nil {
		return nil, err
	}
	r := store.Ref{Agent: a.ID, Thread: req.GetThreadId()}
	main := sessionkey.Key{Agent: a.ID, Scope: sessionkey.Main, MainKey: set.Config.Session.MainKey}
	se := &store.Session{}
	if key := req.GetSessionKey(); key != "" {
		k, err := sessionkey.Parse(key)
		if err != nil {
			return nil, err
		}
		if k.Agent != a.ID {
			return nil, fault.New(codes.InvalidArgument, fault.SessionKeyInvalid, fmt.Sprintf("%.200q is a conversation of agent '%s', not of '%s'", key, k.Agent, a.ID),
				"name that agent, or a key that 'agentctl sessions list "+a.ID+"' shows")
		}
		r.Thread, se.Key = k.Thread(), key
	} else if r.Thread == "" {
		r.Thread, se.Key = main.Thread(), main.String()
	}
	// A conversation without a message has no thread, and the key is all that is known of it.
	t, err := s.madeFor(ctx, r)
	if err != nil && !fault.Is(err, fault.ThreadNotFound) {
		return nil, err
	}
	switch stored, err := s.Store.Session(ctx, r); {
	case err == nil:
		se = &stored
	case !errors.Is(err, store.ErrNoSession) && !errors.Is(err, store.ErrNotFound):
		return nil, s.Fault(a.ID, r.Thread, err)
	case se.Key == "":
		if k, ok := sessionkey.OfThread(a.ID, r.Thread, main.MainKey, t); ok {
			se.Key = k.String()
		}
	}
	at := conversation(set.Accounts, se.Key, r.Thread, t)
	c, err := s.config(ctx, a.ID, set, at)
	if err != nil {
		return nil, err
	}
	turns, stated := history(set.Accounts, at, t)
	setHistory(c, turns, stated)
	if set, err = s.withOwners(ctx, set); err != nil {
		return nil, err
	}
	c.Owners = owners(set)
	setForSession(c, se)
	return &registryv1.GetTurnConfigResponse{Config: c, SessionKey: se.Key}, nil
}

// setForSession makes what people set for a conversation count over the agent's settings.
func setForSession(c *registryv1.TurnConfig, s *store.Session) {
	if s.Model != "" {
		c.Model = s.Model
		if provider, model, ok := strings.Cut(s.Model, "/"); ok {
			c.Provider, c.Model = provider, model
		}
	}
	c.Thinking = s.Thinking
	c.Parts.Verbose, c.Parts.Reasoning = cmp.Or(s.Verbose, c.GetParts().GetVerbose()), cmp.Or(s.Reasoning, c.GetParts().GetReasoning())
	if s.QueueMode != "" {
		c.QueueMode = wire.QueueMode(s.QueueMode)
	}
}
