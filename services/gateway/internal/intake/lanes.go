package intake

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/pause"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/gateway/internal/accounts"
)

const (
	// maxCalls is how many conversations of an account are passed to the registry at a time.
	maxCalls = 64
	// maxCall is how many messages one call takes: those that wait in a conversation.
	maxCall = 100
	// maxCallText is how many bytes of texts and extra data one call takes, if it is not one message: a call has
	// 4 MiB at most, and a text 1 MiB.
	maxCallText = 1 << 20
	// albumGap is how long an album waits for another part, albumLimit how long in all.
	albumGap, albumLimit = time.Second, 5 * time.Second
	// maxParts is how many parts become one message: a call takes so many keys.
	maxParts = 100
	// patience is how long a message is sent again that the registry cannot take: then it is
	// refused, so that one agent holds up no other for long.
	patience = time.Minute
)

// again says when a call that failed is repeated.
var again = pause.Backoff{First: 100 * time.Millisecond, Last: 5 * time.Second}

// Account takes in the updates of one account that connects to its platform. It is the
// [channel.Intake] of the receiver.
type Account struct {
	deps      Deps
	name      string
	lease     accounts.Lease
	kind      channel.Type
	out       channel.Channel // over which people are answered
	connected func(identity, name string) error
	identity  string // at its platform, and the name of its bot there without @; set by Connected
	bot       string
	since     *timestamppb.Timestamp // when it began to receive; set by Connected

	files files

	ctx    context.Context // of all that it does
	fail   context.CancelCauseFunc
	places chan struct{} // for updates on their way
	calls  chan struct{} // for calls of the registry
	work   sync.WaitGroup

	cursors cursors
	notices notices
	typing  typing

	mu    sync.Mutex
	lanes map[string]*lane // that have something to do
}

// lane is the updates of one conversation, in their order.
type lane struct {
	waiting []*item
	more    chan struct{} // has one when waiting has changed
}

// item is an update, or the parts of an album.
type item struct {
	update      channel.Update          // of an album: all its parts, with the key of the first
	parts       []part                  // one, or those of an album
	command     *registryv1.ChatCommand // nil: it is none
	first, last time.Time               // when its parts came
	later       time.Time               // when the registry first could not take it, or one before it; zero: never
}

// part is an update as it came, and what is called when it need not come again.
type part struct {
	update channel.Update
	stored func()
}

// Receive takes in the updates of an account until ctx ends or its transport fails, and then ends
// what it began: what is not stored by then comes again. Errors: [lease.ErrLost] when the lease of the account is
// lost, those of the receiver.
func (d Deps) Receive(ctx context.Context, entry layer.Account, l accounts.Lease, kind channel.Type, r channel.Receiver, out channel.Channel, connected func(identity, name string) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	a := &Account{
		deps: d, name: entry.Name, files: files{d, entry.Name, entry.MediaMaxMiB, make(chan struct{}, 1)}, lease: l, kind: kind, out: out, connected: connected, ctx: ctx, fail: cancel,
		places: make(chan struct{}, accounts.MaxTaken), calls: make(chan struct{}, maxCalls), lanes: map[string]*lane{},
	}
	a.notices.sent = map[refusal]time.Time{}
	defer d.Metrics.SetInflight(entry.Name, 0) // what is on its way comes again
	defer a.work.Wait()
	defer cancel(nil)
	defer d.live.remove(a)
	err := r.Receive(ctx, a)
	cause := context.Cause(ctx)
	if broken, ok := errors.AsType[*channel.Error](cause); ok {
		return broken
	}
	if errors.Is(cause, lease.ErrLost) {
		return cause
	}
	return err
}

// goes runs f next to the receiver. One that panics ends the account alone, which is started again:
// what it had not acknowledged comes again.
func (a *Account) goes(f func()) {
	a.work.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				a.deps.Logger.Error("an account panicked", "account", a.name, "error", fmt.Sprintf("%v\n%s", p, debug.Stack()))
				a.fail(&channel.Error{What: "it broke off, see the log of the gateway"})
			}
		}()
		f()
	})
}

// Connected passes on who the account is, and reads no cursor of another identity.
func (a *Account) Connected(identity, name string) error {
	if err := a.connected(identity, name); err != nil {
		return err
	}
	a.identity, a.bot, a.since = identity, strings.TrimPrefix(name, "@"), timestamppb.Now()
	a.deps.live.add(a)
	if a.cursors.begin(identity) {
		a.goes(a.keepCursors)
		a.goes(a.resumeTyping)
	}
	return nil
}

// Ready returns nil while the account may ask its platform for updates: while its lease is to be trusted. It reads the
// clock: a process that was stopped and goes on must not take updates from the gateway that took over.
func (a *Account) Ready() error { return a.lease.Check() }

// lost ends the account because the registry refused its lease.
func (a *Account) lost(err error) {
	a.fail(fmt.Errorf("%w: %w", lease.ErrLost, err))
}

// Take puts an update into the lane of its conversation.
func (a *Account) Take(ctx context.Context, u channel.Update, stored func()) error {
	select {
	case a.places <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-a.ctx.Done():
		return a.ctx.Err()
	}
	fault.Point("G1")
	a.deps.Metrics.SetInflight(a.name, len(a.places))
	done := func() {
		<-a.places
		a.deps.Metrics.SetInflight(a.name, len(a.places))
		stored()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.lanes[u.SessionID]
	if l == nil {
		l = &lane{more: make(chan struct{}, 1)}
		a.lanes[u.SessionID] = l
		a.goes(func() { a.run(u.SessionID, l) })
	}
	now := time.Now()
	if n := len(l.waiting); n > 0 && l.waiting[n-1].takes(u) {
		l.waiting[n-1].join(part{u, done})
		l.waiting[n-1].last = now
	} else {
		l.waiting = append(l.waiting, &item{update: u, parts: []part{{u, done}}, command: a.command(u), first: now, last: now})
	}
	poke(l.more)
	return nil
}

// postpone notes for messages of a conversation, and for what waits behind them, that the registry cannot take them now.
func (a *Account) postpone(list []*item) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, i := range slices.Concat(list, a.lanes[list[0].update.SessionID].waiting) {
		if i.later.IsZero() {
			i.later = time.Now()
		}
	}
}

// putBack puts an item before what waits in its lane, which is being worked on.
func (a *Account) putBack(i *item) {
	i.command = a.command(i.update)
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.lanes[i.update.SessionID]
	l.waiting = slices.Insert(l.waiting, 0, i)
}

// Ignored counts an update that says nothing to the account.
func (a *Account) Ignored() { a.deps.Metrics.AddIgnored(a.name) }

// takes reports whether an update is another part of an album. A part that was edited, or came twice, is an item of its
// own.
func (i *item) takes(u channel.Update) bool {
	return u.Album != "" && i.update.Album == u.Album && i.update.EditOf == "" && u.EditOf == "" && len(i.parts) < maxParts && len(i.update.Text)+len(u.Text) < maxCallText &&
		!slices.ContainsFunc(i.parts, func(p part) bool { return p.update.Key == u.Key })
}

// join adds another part to an album: they are one message, with the key of the first.
func (i *item) join(p part) {
	i.parts = append(i.parts, p)
	if i.update.Text != "" && p.update.Text != "" {
		i.update.Text += "\n"
	}
	i.update.Text += p.update.Text
	i.update.Attachments = slices.Concat(i.update.Attachments, p.update.Attachments)
	i.update.Mentioned = i.update.Mentioned || p.update.Mentioned
}

// rest is an album without its first part, which was stored before; nil: it has no more.
func (i *item) rest() *item {
	if len(i.parts) < 2 {
		return nil
	}
	out := &item{update: i.parts[1].update, parts: i.parts[1:2:2]} // of a repeat: it waits for no more
	for _, p := range i.parts[2:] {
		out.join(p)
	}
	return out
}

// message is what the registry is asked to store, without attachments.
func (i *item) message() *registryv1.InboundMessage {
	m := message(i.update)
	m.Command = i.command
	for _, p := range i.parts[1:] {
		m.PartKeys = append(m.PartKeys, valid(p.update.Key))
	}
	return m
}

// alone reports whether an item has a call of its own: that checks who takes it, before its files
// are fetched or its command is answered.
func (i *item) alone() bool { return len(i.update.Attachments) > 0 || answered(i.command) }

// id names an item in logs.
func (i *item) id() string { return channel.Clean(i.update.Key, 200) }

// size is how many bytes of texts and extra data an item has.
func (i *item) size() int {
	n := len(i.update.Text)
	for name, value := range i.update.Extra {
		n += len(name) + len(value)
	}
	return n
}

// open is how long an album still waits for parts.
func (i *item) open(now time.Time) time.Duration {
	if i.update.Album == "" {
		return 0
	}
	return min(i.last.Add(albumGap).Sub(now), i.first.Add(albumLimit).Sub(now))
}

// run works on a lane until nothing waits in it.
func (a *Account) run(session string, l *lane) {
	for {
		ready, wait := a.next(session, l)
		switch {
		case wait > 0:
			if !a.sleep(l, wait) {
				return
			}
		case len(ready) == 0:
			return
		default:
			if a.accept(ready); a.ctx.Err() != nil {
				return
			}
		}
	}
}

// next takes what can be passed on from a lane, or says how long to wait for it. A lane with
// nothing is removed.
func (a *Account) next(session string, l *lane) (ready []*item, wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, size := time.Now(), 0
	for len(l.waiting) > 0 && len(ready) < maxCall {
		i := l.waiting[0]
		if wait = i.open(now); wait > 0 && len(l.waiting) == 1 || i.alone() && len(ready) > 0 {
			break // what follows an album ends it
		}
		if size += i.size(); size > maxCallText && len(ready) > 0 {
			break
		}
		ready, l.waiting = append(ready, i), l.waiting[1:]
		if i.alone() {
			break
		}
	}
	switch {
	case len(ready) > 0:
		return ready, 0
	case wait > 0:
		return nil, wait
	}
	delete(a.lanes, session)
	return nil, 0
}

// sleep waits for a while or for a change of the lane; false: the account ends.
func (a *Account) sleep(l *lane, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.more:
	case <-a.ctx.Done():
		return false
	}
	return true
}

// accept passes updates of one conversation to the registry, until each is stored or refused, or
// the account ends.
func (a *Account) accept(list []*item) {
	began := time.Now()
	if list = a.keep(list, began); len(list) == 0 {
		return
	}
	messages := make([]*registryv1.InboundMessage, len(list))
	for n, i := range list {
		messages[n] = i.message()
	}
	check := list[0].alone()
	for failures, together := 0, len(list); len(list) > 0 && a.ctx.Err() == nil; {
		together = min(together, len(list))
		results, err := a.call(messages[:together], check)
		switch f := fault.From(err); {
		case err != nil && f.Code == codes.InvalidArgument && together > 1:
			together = 1 // the others are not the cause
			continue
		case fault.Is(err, fault.LeaseLost):
			a.lost(err)
			return
		case err != nil && f.Code == codes.InvalidArgument:
			a.deps.Logger.Warn("a message cannot be taken in and is left out", "account", a.name, "update_id", list[0].id(), "error", fault.Chain(err))
			results = []*registryv1.AcceptedMessage{{Outcome: registryv1.AcceptOutcome_ACCEPT_OUTCOME_REFUSED, Reason: f.Reason}}
		case err != nil:
			if failures == 0 {
				a.deps.Logger.Warn("messages are not accepted now", "account", a.name, "update_id", list[0].id(), "error", fault.Chain(err))
			}
			_ = pause.For(a.ctx, max(again.Wait(failures), f.RetryAfter))
			failures++
			continue
		}
		failures = 0
		if outcome := results[0].GetOutcome(); check && err == nil && outcome != registryv1.AcceptOutcome_ACCEPT_OUTCOME_LATER {
			check = false
			switch taken := outcome == registryv1.AcceptOutcome_ACCEPT_OUTCOME_ACCEPTED; {
			case taken && answered(list[0].command):
				a.answer(list[0].update, list[0].command, results[0])
				a.done(list[0], "command", "", began)
				return
			case taken:
				for n, out := range attach(list[0].update, messages[0]) {
					a.files.put(a.ctx, results[0].GetAgentId(), list[0].update.Attachments[n], out)
				}
				continue
			case outcome == registryv1.AcceptOutcome_ACCEPT_OUTCOME_CONTEXT: // it is stored without its files
				nameFiles(list[0].update, messages[0])
				continue
			case outcome == registryv1.AcceptOutcome_ACCEPT_OUTCOME_PAIR: // the person asks to be let in
				continue
			}
		}
		done, wait := a.settle(list, messages, results, began)
		list, messages = list[done:], messages[done:]
		if wait > 0 {
			_ = pause.For(a.ctx, wait)
		}
	}
}

// call is one AcceptMessages. A lane that waits to call again holds no place.
func (a *Account) call(messages []*registryv1.InboundMessage, check bool) ([]*registryv1.AcceptedMessage, error) {
	select {
	case a.calls <- struct{}{}:
		defer func() { <-a.calls }()
	case <-a.ctx.Done():
		return nil, a.ctx.Err()
	}
	ctx, cancel := context.WithTimeout(a.ctx, acceptLimit)
	defer cancel()
	got, err := a.deps.Channels.AcceptMessages(a.lease.Fence(ctx), &registryv1.AcceptMessagesRequest{Account: a.name, Messages: messages, Check: check, ConnectedAt: a.since})
	if err == nil && len(got.GetResults()) != len(messages) {
		err = errors.New("the registry did not say what became of each message")
	}
	fault.Point("G3")
	return got.GetResults(), err
}

// settle takes over the outcomes of the first messages of a list, up to one that has to be sent again, after wait.
func (a *Account) settle(list []*item, messages []*registryv1.InboundMessage, results []*registryv1.AcceptedMessage, began time.Time) (done int, wait time.Duration) {
	for n, r := range results {
		i, outcome := list[n], "refused"
		switch r.GetOutcome() {
		case registryv1.AcceptOutcome_ACCEPT_OUTCOME_ACCEPTED:
			outcome = "accepted"
			a.notifyOfFiles(i.update, messages[n])
			a.deps.Accounts.Accepted(a.name, i.update.SentAt)
			a.deps.received(a.ctx, a.name, r, began)
			a.showTyping(i.update, r)
		case registryv1.AcceptOutcome_ACCEPT_OUTCOME_DUPLICATE:
			outcome = "duplicate"
			a.showTyping(i.update, r)
			if rest := i.rest(); rest != nil { // it may have come too late for the message that was stored
				a.putBack(rest)
				i.parts = i.parts[:1]
			}
		case registryv1.AcceptOutcome_ACCEPT_OUTCOME_CONTEXT:
			outcome = "context"
		case registryv1.AcceptOutcome_ACCEPT_OUTCOME_PAIR:
			outcome = "pair"
			if r.GetNotify() {
				_ = a.notify(i.update, "pair", fmt.Sprintf("This assistant is private. Code: %s (1 hour). Its owner approves it.", r.GetCode()))
			}
		case registryv1.AcceptOutcome_ACCEPT_OUTCOME_LATER:
			a.postpone(list[n:])
			// A quota of the day, for example, lets it in only after it was refused: it would wait for nothing.
			if wait := max(r.GetRetryAfter().AsDuration(), again.First); wait < patience && time.Since(i.later) < patience {
				return n, wait
			}
			a.notifyRarely(i.update, r.GetReason(), "This message was not taken in: "+r.GetMessage()+". Please send it again later")
		default:
			if r.GetNotify() {
				a.notifyRarely(i.update, r.GetReason(), r.GetMessage())
			}
		}
		if a.ctx.Err() != nil { // a notice may be missing: the message comes again
			return n, 0
		}
		if a.deps.Logger.Enabled(a.ctx, slog.LevelDebug) {
			a.deps.Logger.Debug("a message was received", "account", a.name, "update_id", i.id(), "outcome", outcome, "agent_id", r.GetAgentId(), "session_key", r.GetSessionKey(), "run_id", r.GetRunId())
		}
		a.done(i, outcome, r.GetReason(), began)
		if r.GetOutcome() == registryv1.AcceptOutcome_ACCEPT_OUTCOME_LATER {
			return n + 1, 0 // what is behind it was not tried
		}
	}
	return len(results), 0
}

// done ends the way of an update: its platform may know that it arrived. reason says why one was refused.
func (a *Account) done(i *item, outcome, reason string, began time.Time) {
	if a.ctx.Err() != nil {
		return
	}
	a.deps.Metrics.AddUpdate(a.name, outcome, time.Since(began))
	if outcome == "refused" {
		a.deps.Metrics.AddRefused(reason)
	}
	for _, p := range i.parts {
		p.stored()
	}
	fault.Point("G4")
}
