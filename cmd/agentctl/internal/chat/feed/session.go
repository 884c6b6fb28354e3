package feed

import (
	"cmp"
	"context"
	"fmt"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/theclaw/agents/cmd/agentctl/internal/message"
	"github.com/theclaw/agents/cmd/agentctl/internal/usage"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/binding"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/sessionkey"
	"github.com/theclaw/agents/internal/thinking"
	"github.com/theclaw/agents/internal/thread"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// Place is where the conversation is stored, and its session key; empty: not known yet.
type Place struct{ Thread, Key string }

// ResetResult reports that the next message begins a new session. Text is what to send in it.
type ResetResult struct {
	Note, Text string
	Err        error
}

// asAgent is what unsets a setting of the session.
const asAgent = "default"

// locate completes what is known of a place: a turn of the conversation has named it, or the
// given key does, or the routing of the agent.
func (s *Source) locate(ctx context.Context, at Place) (Place, error) {
	if s.Session != "" {
		k, err := sessionkey.Parse(s.Session)
		return Place{k.Thread(), s.Session}, err
	}
	if at.Thread != "" && at.Key != "" {
		return at, nil
	}
	set, err := s.Env.Agents().GetAgentConfig(ctx, &registry.GetAgentConfigRequest{AgentId: s.Agent})
	if err != nil {
		return at, err
	}
	values := map[string]string{}
	for _, v := range set.GetValues() {
		values[v.GetKey()] = v.GetValue()
	}
	c := config.FromValues(values)
	if at.Thread == "" {
		k := binding.KeyOfSource(binding.Agent{ID: s.Agent, MainKey: c.Session.MainKey, DM: c.DMScope()}, s.Peer.Tuple())
		return Place{k.Thread(), k.String()}, nil
	}
	at.Key = s.Peer.SessionKey(s.Agent, at.Thread, c.Session.MainKey)
	return at, nil
}

// session returns the session of the conversation; nil before its first message.
func (s *Source) session(ctx context.Context, at Place) (*registry.Session, Place, error) {
	at, err := s.locate(ctx, at)
	if err != nil {
		return nil, at, err
	}
	r, err := s.Env.Sessions().GetSession(ctx, &registry.GetSessionRequest{AgentId: s.Agent, Key: at.Key})
	if message.NoSession(err) {
		return nil, at, nil
	}
	return r.GetSession(), at, err
}

// patch changes the session of the conversation, which may have had no message yet.
func (s *Source) patch(ctx context.Context, at Place, set func(*registry.PatchSessionRequest)) error {
	at, err := s.locate(ctx, at)
	if err != nil {
		return err
	}
	req := &registry.PatchSessionRequest{AgentId: s.Agent, Key: at.Key, Create: true}
	set(req)
	_, err = s.Env.Sessions().PatchSession(ctx, req)
	return err
}

// Reset lets the next message begin a new session, for a reason of the contract: new or reset.
// text is sent in it.
func (s *Source) Reset(ctx context.Context, at Place, reason, text string) tea.Cmd {
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(ctx, s.Env.Flags.Timeout)
		defer cancel()
		at, err := s.locate(ctx, at)
		if err == nil {
			_, err = s.Env.Sessions().ResetSession(ctx, &registry.ResetSessionRequest{AgentId: s.Agent, Key: at.Key, Reason: reason})
		}
		if message.NoSession(err) {
			return ResetResult{Note: "This session is new: it has no message yet.", Text: text}
		}
		return ResetResult{
			Note: fmt.Sprintf("New session: the next message begins it. Earlier messages stay in `agentctl sessions history %s --all`.", at.Key),
			Text: text, Err: err,
		}
	}
}

// Thinking shows how the model thinks in this conversation, or sets it.
func (s *Source) Thinking(ctx context.Context, at Place, want string) tea.Cmd {
	return s.bounded(ctx, func(ctx context.Context) (string, error) {
		if want == "" {
			found, _, err := s.session(ctx, at)
			if err != nil {
				return "", err
			}
			now := "as the settings of " + s.Agent + " say"
			if t := found.GetOverrides().GetThinking(); t != "" {
				now = t + " (this session)"
			}
			return "thinking: " + now + "\nto change it: /think " + thinking.Form + "; /think default: as the settings say", nil
		}
		value := want
		if want == asAgent {
			value = ""
		} else if err := command.Thinking.Check(want); err != nil {
			return "", fault.Usage(err.Error(), command.Thinking.Fix)
		}
		if err := s.patch(ctx, at, func(r *registry.PatchSessionRequest) { r.Thinking = &value }); err != nil {
			return "", err
		}
		return "thinking: " + want + ", from the next message on, in this conversation", nil
	})
}

// Elevated shows which commands may ask to run outside of the sandbox in this conversation, or sets it.
func (s *Source) Elevated(ctx context.Context, at Place, want string) tea.Cmd {
	return s.mode(ctx, at, "elevated", "off, on, ask or full", want, (*registry.SessionOverrides).GetElevated,
		func(r *registry.PatchSessionRequest, value *string) { r.Elevated = value })
}

// Reasoning shows whether the thoughts of the model are shown in this conversation, or sets it.
func (s *Source) Reasoning(ctx context.Context, at Place, want string) tea.Cmd {
	return s.mode(ctx, at, "reasoning", "stream or off", want, (*registry.SessionOverrides).GetReasoning,
		func(r *registry.PatchSessionRequest, value *string) { r.Reasoning = value })
}

// mode shows a setting of the conversation that has one of some words, or sets it.
func (s *Source) mode(ctx context.Context, at Place, name, words, want string, get func(*registry.SessionOverrides) string, set func(*registry.PatchSessionRequest, *string)) tea.Cmd {
	return s.bounded(ctx, func(ctx context.Context) (string, error) {
		if want == "" {
			found, _, err := s.session(ctx, at)
			if err != nil {
				return "", err
			}
			return name + ": " + cmp.Or(get(found.GetOverrides()), "as the settings of "+s.Agent+" say") +
				"\nto change it: /" + name + " " + words + "; /" + name + " default: as the settings say", nil
		}
		value := want
		if want == asAgent {
			value = ""
		}
		if err := s.patch(ctx, at, func(r *registry.PatchSessionRequest) { set(r, &value) }); err != nil {
			return "", err
		}
		return name + ": " + want + ", from the next message on, in this conversation", nil
	})
}

// Usage shows what the conversation has cost, in its epoch and in all.
func (s *Source) Usage(ctx context.Context, at Place) tea.Cmd {
	return s.bounded(ctx, func(ctx context.Context) (string, error) {
		found, at, err := s.session(ctx, at)
		if err != nil {
			return "", err
		}
		all, err := usage.OfThread(ctx, s.Env, s.Agent, at.Thread, time.Time{})
		if err != nil {
			return "", err
		}
		epoch, err := s.epochUsage(ctx, found, at.Thread)
		if err != nil {
			return "", err
		}
		return "this session: " + epoch + "\nthe conversation: " + all, nil
	})
}

// epochUsage is what the epoch of a session has cost; one without a beginning is the whole
// conversation.
func (s *Source) epochUsage(ctx context.Context, found *registry.Session, thread string) (string, error) {
	var since time.Time
	if found.GetEpochFromId() > 0 && found.GetStartedAt() != nil {
		since = found.GetStartedAt().AsTime()
	}
	return usage.OfThread(ctx, s.Env, s.Agent, thread, since)
}

// describeSession is what /status says of the conversation.
func (s *Source) describeSession(ctx context.Context, at Place) (text, model string, err error) {
	found, at, err := s.session(ctx, at)
	if err != nil {
		return "", "", err
	}
	text = "\nsession: " + at.Key
	if found == nil {
		return text + "\nepoch: none, it has no message yet", "", nil
	}
	epoch := found.GetSessionId()
	if epoch == "" {
		epoch = "the first"
	}
	if found.GetStartedAt() != nil {
		epoch += ", since " + thread.Stamp(found.GetStartedAt().AsTime())
	}
	if p := found.GetPending(); p != "" {
		epoch += "; the next message begins a new one (" + p + ")"
	}
	text += "\nepoch: " + epoch
	if mode := found.GetOverrides().GetQueueMode(); mode != "" {
		text += "\nqueue: " + mode + " (this session)"
	}
	used, err := s.epochUsage(ctx, found, at.Thread)
	if err != nil {
		return "", "", err
	}
	return text + "\ntokens: " + used, found.GetOverrides().GetModel(), nil
}

// digestion bounds a digest: a slow model takes minutes.
const digestion = 10 * time.Minute

// Compact digests the conversation into its memory.
func (s *Source) Compact(ctx context.Context, at Place) tea.Cmd {
	return s.within(ctx, digestion, func(ctx context.Context) (string, error) {
		at, err := s.locate(ctx, at)
		if err != nil {
			return "", err
		}
		r, err := s.Env.RunnerService().CompactMemory(ctx, &runner.CompactMemoryRequest{AgentId: s.Agent, ThreadId: at.Thread})
		switch {
		case fault.Is(err, fault.ThreadNotFound):
			return "there is nothing to digest: the conversation has no message yet", nil
		case err != nil:
			return "", err
		case r.GetName() == "":
			return "there is nothing new to digest", nil
		}
		return fmt.Sprintf("%s digested from %s", r.GetName(), command.Count(r.GetMessages(), "message or record", "messages or records")), nil
	})
}
