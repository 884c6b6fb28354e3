package intake

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/chunk"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/pause"
)

const (
	// noticeTries is how often a notice is sent until it is given up.
	noticeTries = 3
	// noticeLimit bounds one try.
	noticeLimit = 20 * time.Second
	// noticeGap is the least time between two notices in one conversation about messages that
	// were not taken in for the same reason.
	noticeGap = 10 * time.Minute
	// noticeCut ends a notice that its platform would not take.
	noticeCut = "\n[the rest was cut]"
	// maxNoticed is how many notices are remembered for that.
	maxNoticed = 10_000
)

// refusal is why messages of a conversation are not taken in.
type refusal struct{ session, reason string }

// notices remembers when a conversation got one, by reason: that a command is for owners says nothing of a message that
// is lost later.
type notices struct {
	mu   sync.Mutex
	sent map[refusal]time.Time
}

// rare reports whether a conversation may get a notice now, and notes it.
func (n *notices) rare(r refusal, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if at, ok := n.sent[r]; ok && now.Sub(at) < noticeGap {
		return false
	}
	if len(n.sent) >= maxNoticed {
		maps.DeleteFunc(n.sent, func(_ refusal, at time.Time) bool { return now.Sub(at) >= noticeGap })
	}
	if len(n.sent) >= maxNoticed {
		clear(n.sent)
	}
	n.sent[r] = now
	return true
}

// replyContext is the place of a conversation.
func (a *Account) replyContext(u channel.Update) channel.ReplyContext {
	rc := channel.ReplyContext{}
	for key, value := range map[string]string{
		"channel_type": "external", "channel_id": a.name, "peer_id": u.PeerID, "session_id": u.SessionID, "kind": u.Kind,
		"platform_thread": u.Thread, "reply_to_id": u.MessageID, "guild_id": u.Guild, "team_id": u.Team,
	} {
		if value != "" {
			rc[key], _ = json.Marshal(value) // a text: it cannot fail
		}
	}
	return rc
}

// notifyRarely answers a conversation that got no notice for the same reason for a while.
func (a *Account) notifyRarely(u channel.Update, reason, text string) {
	if text != "" && a.notices.rare(refusal{u.SessionID, reason}, time.Now()) {
		_ = a.notify(u, "refused", strings.TrimSuffix(text, ".")+".")
	}
}

// notify answers a person over the platform, outside of any conversation with an agent. What
// cannot be sent is logged and returned: the update is acknowledged all the same.
func (a *Account) notify(u channel.Update, kind, text string, buttons ...channel.Button) error {
	err := a.try(a.ctx, u, kind, text, buttons...)
	if err != nil && a.ctx.Err() == nil {
		a.deps.Logger.Warn("a notice was not sent", "account", a.name, "kind", kind, "error", channel.AsError(err).What)
	}
	return err
}

// try sends a notice until ctx ends.
func (a *Account) try(ctx context.Context, u channel.Update, kind, text string, buttons ...channel.Button) error {
	if l, ok := a.out.(channel.Limiter); ok {
		if list := pieces(l.Limit(), text); len(list) > 1 {
			text = list[0].Text + noticeCut
		}
	}
	// The text is part of the key: another start may give a person another code, and a platform that
	// drops a known key would show the one that is not valid any more.
	m := channel.Message{
		Key: channel.Fingerprint("notice", kind, u.Key, text), Text: text, Buttons: buttons, ReplyContext: a.replyContext(u), CreatedAt: time.Now().UTC().Format(time.RFC3339Nano),
	}
	var err *channel.Error
	for try := range noticeTries {
		m.Attempt = try + 1
		within, cancel := context.WithTimeout(ctx, noticeLimit)
		_, failed := a.out.Send(within, m)
		cancel()
		if err = channel.AsError(failed); err == nil {
			fault.Point("N1")
			a.deps.Metrics.AddNotice(kind)
			a.deps.Accounts.Noticed(a.name)
			return nil
		}
		if err.Class == channel.Rejected || ctx.Err() != nil || pause.For(ctx, min(max(err.RetryAfter, again.Wait(try)), noticeLimit)) != nil {
			break
		}
	}
	return err
}

// pieces are the parts of a notice that its platform would take, each with the end of one that is cut.
func pieces(l channel.Limit, text string) []chunk.Piece {
	return chunk.Split(text, chunk.Bounds{Max: max(l.Max-len(noticeCut), chunk.Least), Units: l.Units})
}

// ErrNotUp reports that an account is not connected to its platform here.
var ErrNotUp = errors.New("the account is not connected here")

// Test sends a notice to a person over an account, and returns its id at the platform. Errors:
// ErrNotUp, a [*channel.Error].
func (d Deps) Test(ctx context.Context, account, peer, text string) (providerID string, err error) {
	a := d.live.named(account)
	if a == nil {
		return "", ErrNotUp
	}
	session, err := a.direct(ctx, peer)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, noticeLimit)
	defer cancel()
	m := channel.Message{Text: text, Attempt: 1, ReplyContext: a.replyContext(channel.Update{Kind: "dm", SessionID: session, PeerID: peer}), CreatedAt: time.Now().UTC().Format(time.RFC3339Nano)}
	m.Key = channel.Fingerprint("test", account, peer, m.CreatedAt)
	receipt, err := a.out.Send(ctx, m)
	if err == nil {
		d.Accounts.Noticed(account)
	}
	return receipt.ProviderID, err
}
