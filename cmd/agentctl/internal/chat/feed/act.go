package feed

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/theclaw/agents/cmd/agentctl/internal/message"
	"github.com/theclaw/agents/cmd/agentctl/internal/provider"
	"github.com/theclaw/agents/cmd/agentctl/internal/turn"
	"github.com/theclaw/agents/internal/lease/runlock"
	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/rpc/runs"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// CommandResult is the result of a command of the user.
type CommandResult struct {
	Text string
	Err  error
}

// AbortResult is the result of the request to abort a run.
type AbortResult struct {
	ID  int64
	Err error
}

// bounded makes a command of a call that takes as long as --timeout at most.
func (s *Source) bounded(ctx context.Context, call func(ctx context.Context) (string, error)) tea.Cmd {
	return func() tea.Msg { return s.within(ctx, s.Env.Flags.Timeout, call)() }
}

// within is bounded with another limit.
func (s *Source) within(ctx context.Context, limit time.Duration, call func(ctx context.Context) (string, error)) tea.Cmd {
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		text, err := call(ctx)
		return CommandResult{text, err}
	}
}

// Abort ends the run of a message.
func (s *Source) Abort(ctx context.Context, id int64) tea.Cmd {
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(ctx, s.Env.Flags.Timeout)
		defer cancel()
		run, err := s.Run(ctx, id)
		if err == nil {
			_, err = s.Env.RunnerService().AbortRun(ctx, &runner.AbortRunRequest{AgentId: s.Agent, RunId: run})
		}
		return AbortResult{id, err}
	}
}

// Status shows the state of the agent and of the conversation.
func (s *Source) Status(ctx context.Context, at Place) tea.Cmd {
	return s.bounded(ctx, func(ctx context.Context) (string, error) {
		r, err := s.Env.Agents().GetAgentStatus(ctx, &registry.GetAgentStatusRequest{AgentId: s.Agent})
		if err != nil {
			return "", err
		}
		var b strings.Builder
		state := "started"
		if !r.GetAgent().GetStarted() {
			state = "stopped"
		}
		fmt.Fprintf(&b, "%s is %s, %d waiting in its inbox, %d replies on their way, %d dead letters", s.Agent, state,
			r.GetInbox().GetPending(), r.GetOutboundPending(), r.GetDead())
		if h := r.GetHolder(); runlock.Blocks(h) {
			fmt.Fprintf(&b, "; no runner takes it: %s", h)
		} else if h != "" && r.GetInbox().GetPending() > 0 {
			fmt.Fprintf(&b, ", worked on by %s", h)
		}
		if p := r.GetAgent().GetProblem(); p != "" {
			fmt.Fprintf(&b, "\nproblem: %s", p)
		}
		if r.GetInbox().GetPending() > 0 {
			first := message.First(ctx, s.Env, s.Agent)
			if w := message.Waiting(first, time.Now()); w != "" {
				fmt.Fprintf(&b, "\nmessage %d waits: %s", first.GetInboxId(), w)
			}
		}
		text, model, err := s.describeSession(ctx, at)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "\nmodel: %s%s\nversion: agentctl %s", s.model(ctx, model), text, s.Env.Version)
		return b.String(), nil
	})
}

// model is what answers, in one line; want is the model of the session, if it has one. A runner
// that is away is not waited for long.
func (s *Source) model(ctx context.Context, want string) string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	m := modelOf(ctx, s.Env, s.Agent, want)
	if m.Offline {
		return "none, the offline stand-in answers"
	}
	return cmp.Or(m.Title(), "unknown, no runner answers")
}

// Model shows which model answers in the conversation, or sets it: MODEL or PROVIDER/MODEL.
func (s *Source) Model(ctx context.Context, at Place, want string) tea.Cmd {
	return s.bounded(ctx, func(ctx context.Context) (string, error) {
		if want == "" {
			found, _, err := s.session(ctx, at)
			if err != nil {
				return "", err
			}
			return "model: " + s.model(ctx, found.GetOverrides().GetModel()) +
				"\nto change it: /model MODEL, or /model PROVIDER/MODEL; /model default: as the settings say", nil
		}
		value, note := want, ""
		if want == asAgent {
			value = ""
		} else {
			name, model, both := strings.Cut(want, "/")
			if !both {
				name, model = "", want
			}
			var err error
			if note, err = s.checkModel(ctx, name, model); err != nil {
				return "", err
			}
		}
		if err := s.patch(ctx, at, func(r *registry.PatchSessionRequest) { r.Model = &value }); err != nil {
			return "", err
		}
		return "model: " + want + ", from the next message on, in this conversation" + note, nil
	})
}

// checkModel refuses a model that is known not to be there; note is a warning about one
// that cannot be used yet.
func (s *Source) checkModel(ctx context.Context, name, model string) (note string, err error) {
	if name == "" {
		if name, _, err = provider.Chosen(ctx, s.Env, s.Agent); err != nil {
			return "", err
		}
	}
	p := provider.Check(ctx, s.Env, name, model)
	switch {
	case p == nil:
		return "", nil
	case p.Wrong:
		return "", p.Err()
	}
	return "\nwarning: " + p.What + " - " + p.Fix, nil
}

// Memory shows what the agent has written down that bears on this conversation.
func (s *Source) Memory(ctx context.Context, at Place) tea.Cmd {
	return s.bounded(ctx, func(ctx context.Context) (string, error) {
		at, err := s.locate(ctx, at)
		if err != nil {
			return "", err
		}
		var parts []string
		for _, name := range []string{route.MemoryAgentFile, route.MemoryUserFile(s.Peer.Tuple()), route.MemoryThreadFile(at.Thread)} {
			r, err := s.Env.Agents().ReadAgentFile(ctx, &registry.ReadAgentFileRequest{AgentId: s.Agent, Name: "memory/" + name})
			if err != nil {
				return "", err
			}
			if text := strings.TrimSpace(string(r.GetContent())); text != "" {
				parts = append(parts, "memory/"+name+":\n"+text)
			}
		}
		if len(parts) == 0 {
			return "the memory is empty", nil
		}
		return strings.Join(parts, "\n\n"), nil
	})
}

// Explain shows the history of a message.
func (s *Source) Explain(ctx context.Context, id int64) tea.Cmd {
	return s.bounded(ctx, func(ctx context.Context) (string, error) {
		r, err := runs.GetTurn(ctx, s.Env.Turns(), &registry.GetTurnRequest{AgentId: s.Agent, InboxId: id})
		if err != nil {
			return "", err
		}
		var b strings.Builder
		for _, l := range turn.History(r.GetTurn(), turn.Begun{}) {
			at := "            "
			if !l.At.IsZero() {
				at = l.At.UTC().Format("15:04:05.000")
			}
			fmt.Fprintf(&b, "%s  %s\n", at, l.Text)
		}
		return b.String(), nil
	})
}
