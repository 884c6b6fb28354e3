package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/hook"
	"github.com/theclaw/agents/internal/thread"
)

// canceled is why a message is not sent, for people.
func canceled(d *hook.Decision) string {
	why := "canceled by hook " + d.Hook
	if d.Reason != "" {
		why += ": " + channel.Clean(d.Reason, 500)
	}
	return why
}

// event is an event about a message.
func (l *lane) event(name string, due Due, w target) *hook.Event {
	e := &hook.Event{
		Name: name, Key: due.Key, Agent: l.agent.id, SessionKey: due.SessionKey, RunID: due.RunID, Source: due.Event.Source,
		At: thread.ParseStamp(due.Event.CreatedAt), Payload: hook.Payload{Account: w.name},
	}
	if c, err := channel.ParseContent(json.RawMessage(due.Event.Content)); err == nil {
		e.Payload.Text, e.Payload.Peer = c.Text, c.ReplyContext.PeerID()
		for _, a := range c.Attachments {
			e.Payload.Attachments = append(e.Payload.Attachments, hook.Attachment{Name: a.Name, MIME: a.MIME, Size: a.Size})
		}
	}
	if d := due.Decision; d != nil && d.Text != nil {
		e.Payload.Text = *d.Text
	}
	return e
}

// decide asks the hooks about a message that was begun, and records what they decide before anything of it is sent: a
// decision is made once. Where one that must decide fails, the message is put back. ok is false when the lane waits
// for the journal.
func (l *lane) decide(due *Due, w target) (v verdict, ok bool) {
	p, e := l.agent.pool, l.event(hook.MessageSending, *due, w)
	if !slices.ContainsFunc(due.Hooks, func(h hook.Hook) bool { return h.Matches(e) }) {
		return verdict{}, true
	}
	if due.asked == nil {
		d, err := p.Hooks.Call(l.agent.sends, due.Hooks, e)
		if f, failed := errors.AsType[*hook.Failure](err); failed {
			l.unrecorded = l.putBack(*due, w, "nothing was sent: "+channel.Clean(f.Error(), 500), f.Retry)
			return verdict{}, true
		} else if err != nil {
			l.unrecorded = l.putBack(*due, w, "the deliverer is being stopped, nothing was sent", 0)
			return verdict{}, true
		}
		due.asked = &d
		fault.Point("hook.answered") // killed here: the hooks are asked again
	}
	if err := l.agent.check(); err != nil {
		return verdict{err: err}, false
	}
	stands, err := p.Journal.Decide(l.agent.term, l.agent.id, l.thread, *due, *due.asked)
	if err != nil {
		if v = l.trouble("record the decision of hooks", err); v.wait > 0 {
			l.due = due // it is begun, and what was decided is recorded later
		}
		return v, false
	}
	l.failures, due.Decision = 0, &stands
	return verdict{}, true
}

// observed reports whether a hook observes the message that was sent.
func (l *lane) observed(due Due, w target) bool {
	if len(due.Hooks) == 0 {
		return false
	}
	e := l.event(hook.MessageSent, due, w)
	return slices.ContainsFunc(due.Hooks, func(h hook.Hook) bool { return h.Matches(e) })
}

// after is a message of which nothing is left to send. It is recorded as that before the hooks are called, so that
// they are called at least once, and the message is not sent again when the process ends meanwhile.
func after(due Due, w target, l left) *Due {
	due.Parts, due.Reach, due.left = due.Parts+1, w.size+1, &l
	return &due
}

// hasLeft calls the hooks that observe a message that was sent, and ends it.
func (l *lane) hasLeft(due Due, w target) (verdict, bool) {
	end := left{}
	if due.left != nil {
		end = *due.left
	}
	id := channel.Clean(end.receipt.ProviderID, 128)
	l.unrecorded = l.outcome(due, w, nil, end.took)
	l.unrecorded.span, l.unrecorded.ProviderID, l.unrecorded.flag = end.span, id, due.left != nil && due.MaybeDuplicate
	return l.observe(due, w, hook.Result{Status: string(Sent), ProviderID: id})
}

// observe calls the hooks that observe how a try to send ended, before that is recorded. When the work ends meanwhile
// nothing is: the next holder calls them.
func (l *lane) observe(due Due, w target, r hook.Result) (verdict, bool) {
	if len(due.Hooks) == 0 {
		return verdict{}, true
	}
	e := l.event(hook.MessageSent, due, w)
	r.Channel, r.Attempt = w.name, due.Attempt
	e.Payload.Result = &r
	_, _ = l.agent.pool.Hooks.Call(l.agent.sends, due.Hooks, e) // it observes: failures are logged
	if l.agent.sends.Err() != nil {
		l.unrecorded = nil
		return verdict{wait: leastWait, err: context.Cause(l.agent.sends)}, false
	}
	return verdict{}, true
}
