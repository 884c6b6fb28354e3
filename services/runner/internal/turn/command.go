package turn

import (
	"context"
	"errors"
	"time"

	"github.com/theclaw/agents/internal/fault"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/registrycall"
	"github.com/theclaw/agents/services/runner/internal/step"
)

// Commands carries out chat commands.
type Commands interface {
	// Command returns the answer. A repeat, after a crash, changes nothing more. An error becomes the answer, unless
	// the context or the lease ended.
	Command(ctx context.Context, c Command) (answer string, err error)
}

// Command is a chat command in its conversation.
type Command struct {
	AgentID, ThreadID string
	InboxID           int64
	Source            string
	FromOwner         bool
	Name, Args        string
	// Trusted returns nil while the lease is.
	Trusted func(ctx context.Context) error
}

// command answers a chat command, without a model.
func (t *turn) command(ctx context.Context, b *registrypb.BeginTurnResponse) (Result, error) {
	t.begun, t.started = b, time.Now()
	t.out.Begin(nil)
	text := b.GetAnswer()
	if text == "" {
		var err error
		if text, err = t.carryOut(ctx); err != nil && ctx.Err() != nil {
			return Result{}, context.Cause(ctx)
		} else if err != nil {
			return t.stopped(ctx, err)
		}
	}
	return t.end(ctx, &registrypb.FinishTurnRequest{Fate: registrypb.Fate_FATE_REPLIED, Text: text})
}

// carryOut returns the answer of a command, within the time of a turn. A person may end it, which is then the cause
// returned.
func (t *turn) carryOut(ctx context.Context) (string, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(t.w.Abort, func() { cancel(context.Cause(t.w.Abort)) })()
	work, end := context.WithTimeoutCause(ctx, maxTime(t.begun.GetConfig()), errTimeout)
	defer end()
	c := t.begun.GetCommand()
	text, err := t.Commands.Command(work, Command{
		AgentID: t.w.AgentID, ThreadID: t.w.ThreadID, InboxID: t.w.InboxID, Source: t.w.Source, FromOwner: t.w.FromOwner,
		Name: c.GetName(), Args: c.GetArgs(), Trusted: t.trusted,
	})
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err == nil:
		return text, nil
	case errors.Is(err, registrycall.ErrLost), errors.Is(err, registrycall.ErrStale):
		return "", err
	case fault.Is(err, fault.LeaseLost):
		return "", errors.Join(ErrLost, err)
	case work.Err() != nil:
		return "/" + c.GetName() + " took too long and was given up.", nil
	}
	f := fault.From(err)
	text = "/" + c.GetName() + " failed: " + f.What
	if f.Fix != "" {
		text += " - " + f.Fix
	}
	return step.ErrorText(text), nil
}
