package intake

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/hook"
	"github.com/theclaw/agents/internal/pause"
	"github.com/theclaw/agents/internal/source"
)

// SetHooks takes over the hooks of the home.
func (d Deps) SetHooks(list []hook.Hook) {
	list = hook.For(list, "", hook.MessageReceived)
	d.live.hooks.Store(&list)
}

// dropped reports whether a hook drops a message before it is stored: then nothing of it is. The error is HOOK_FAILED
// of one that must decide, or the cause of ctx.
func (d Deps) dropped(ctx context.Context, account, kind string, u channel.Update) (bool, error) {
	list := d.live.hooks.Load()
	if list == nil || len(*list) == 0 {
		return false, nil
	}
	from := source.Address{Kind: source.External, ChannelType: kind, ChannelID: account, SessionType: u.Kind, SessionID: valid(u.SessionID), PeerID: valid(u.PeerID)}
	e := &hook.Event{
		Name: hook.MessageReceived, Key: valid(u.Key), Source: from.String(), At: u.SentAt,
		Payload: hook.Payload{Account: account, Peer: valid(u.PeerID), Text: valid(u.Text)},
	}
	if e.At.IsZero() {
		e.At = time.Now()
	}
	for _, a := range u.Attachments {
		e.Payload.Attachments = append(e.Payload.Attachments, hook.Attachment{Name: valid(a.Name), MIME: valid(a.MIME), Size: a.Size})
	}
	decided, err := d.Hooks.Call(ctx, *list, e)
	if err != nil {
		f := fault.New(codes.Unavailable, fault.HookFailed, err.Error(), "'agentctl hooks test' shows what the hook answers")
		f.RetryAfter = again.Last
		return false, fault.Wrap(f, err)
	}
	if decided.Cancel {
		d.Logger.Info("a hook dropped a message", "account", account, "update_id", channel.Clean(u.Key, 200), "hook", decided.Hook, "reason", decided.Reason)
	}
	return decided.Cancel, nil
}

// keep leaves out the updates that hooks drop. While a hook that must decide fails, the updates wait.
func (a *Account) keep(list []*item, began time.Time) (kept []*item) {
	for _, i := range list {
		for failures := 0; ; failures++ {
			drop, err := a.deps.dropped(a.ctx, a.name, a.kind.Name, i.update)
			if a.ctx.Err() != nil {
				return nil
			}
			if err != nil {
				_ = pause.For(a.ctx, again.Wait(failures))
				continue
			}
			if drop {
				a.done(i, outcomeDropped, "", began)
			} else {
				kept = append(kept, i)
			}
			break
		}
	}
	return kept
}

// outcomeDropped is the outcome of an update that a hook dropped, for metrics.
const outcomeDropped = "dropped"

// Event is one of the gateway itself, at its start or its end.
func (d Deps) Event(ctx context.Context, home layer.HomeSettings, name, holder string) {
	_, _ = d.Hooks.Call(ctx, home.Hooks, &hook.Event{Name: name, Key: fmt.Sprintf("gateway:%s", holder), At: time.Now()}) // it observes: failures are logged
}
