package delivery

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/chunk"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/hook"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/obs/tracing"
	"github.com/theclaw/agents/services/deliverer/internal/breaker"
)

const (
	// sendLimit bounds a send whose channel does not bound it.
	sendLimit = 2 * time.Minute
	// leastWait is the wait after a send that spent nothing and of which the
	// breaker learned nothing, so that it is not repeated in a spin.
	leastWait = time.Second
)

// target is the channel and message of an event, or its outcome where nothing is sent.
type target struct {
	channel channel.Channel // nil: nothing to send, see outcome
	message channel.Message
	key     breaker.Key
	outcome Outcome
	name    string // of the channel, also without one to send over
	fail    *channel.Error
	rest    *Due   // what is left of a message in parts, once this one was sent
	size    int64  // bytes of the text of all parts
	action  string // what is done to the message with the id of the platform; empty: message is sent
	id      string
	broken  *atomic.Pointer[channel.Error] // why the file of the message could not be read; nil: it has none
}

// target chooses the channel of an event. It sends nothing and records nothing.
func (l *lane) target(due Due) target {
	channels, err := l.agent.open(due.Settings)
	if err != nil {
		// The owner's mistake is not the message's: it waits for the correction.
		return target{outcome: Unavailable, fail: &channel.Error{
			Class: channel.Unavailable, BeforeSend: true, RetryAfter: l.agent.pool.Breakers.ProbeInterval(),
			What: "the configuration of the channels is wrong: " + channel.Clean(err.Error(), 300),
		}}
	}
	content, err := channel.ParseContent(json.RawMessage(due.Event.Content))
	if err != nil {
		return target{outcome: Rejected, fail: channel.AsError(err)}
	}
	c, ok := channels.For(l.thread, due.Event.Source, content.ReplyContext)
	switch {
	case !ok:
		return target{outcome: Skipped, fail: &channel.Error{What: channel.FateByConfiguration}}
	case c.Name() == channel.NameConsole:
		return target{outcome: Sent, name: channel.NameConsole}
	}
	text := content.Text
	if d := due.Decision; d != nil && d.Cancel {
		return target{outcome: Skipped, name: c.Name(), fail: &channel.Error{What: canceled(d)}}
	} else if d != nil && d.Text != nil {
		text = *d.Text
	}
	w := target{channel: c, name: c.Name(), message: channel.Message{
		AgentID: l.agent.id, ThreadID: l.thread, EventID: due.Event.ID, Key: due.Key, Attempt: due.Attempt,
		MaybeDuplicate: due.MaybeDuplicate, Text: text, Buttons: content.Question.Buttons(), Content: json.RawMessage(due.Event.Content), ReplyContext: content.ReplyContext, CreatedAt: due.Event.CreatedAt,
		Fence: channel.Fence{Resource: lease.DeliverResource(l.agent.id), Token: int64(l.agent.keeper.Token())},
	}}
	if w.action, w.id = content.Action, cmp.Or(content.MessageID, due.MessageID); w.action == "" {
		w.attach(content.Attachments, l.agent.pool.Media)
		if content.UsageFooter != "" && w.name == due.Settings.Account && strings.TrimSpace(w.message.Text) != "" {
			w.message.Text = chunk.Closed(w.message.Text) + "\n\n" + content.UsageFooter
		}
	}
	if w.size = int64(len(w.message.Text)); due.Reach > w.size {
		return target{outcome: Sent, name: c.Name()}
	}
	if w.key = breaker.KeyOf(c, w.message); w.action != "" {
		return w
	}
	return w.part(due)
}

// send takes what was begun to its end and leaves it as unrecorded; ok is
// false when nothing may or need be recorded.
func (l *lane) send() (verdict, bool) {
	due := *l.due
	l.due = nil
	defer l.permit.Release()
	if err := l.agent.check(); err != nil {
		return verdict{err: err}, false
	}
	w := l.target(due)
	if w.channel == nil && w.outcome == Sent && due.Reach > 0 {
		return l.hasLeft(due, w)
	}
	if w.channel == nil {
		l.unrecorded = l.outcome(due, w, w.fail, 0)
		return verdict{}, true
	}
	if l.agent.isClosing() {
		l.unrecorded = l.putBack(due, w, "the deliverer is being stopped, nothing was sent", 0)
		return verdict{}, true
	}
	if len(due.Hooks) > 0 && due.Decision == nil && due.Parts == 0 {
		if v, ok := l.decide(&due, w); !ok || l.unrecorded != nil {
			return v, ok
		}
		if w = l.target(due); w.channel == nil {
			l.unrecorded = l.outcome(due, w, w.fail, 0)
			return verdict{}, true
		}
	}
	if !l.permit.For(w.key) {
		l.permit.Release()
		var wait time.Duration
		if l.permit, wait = l.agent.pool.Breakers.Acquire(w.key, l, l.wake); !l.permit.For(w.key) {
			if l.agent.pool.Breakers.Wait(w.key) == 0 { // others are being sent there: its turn comes soon
				l.due = &due
				return verdict{wait: wait}, false
			}
			l.shut = w.key
			l.unrecorded = l.putBack(due, w, "the channel is down, nothing was sent", wait)
			return verdict{}, true
		}
	}
	began := time.Now()
	receipt, span, err := l.attempt(w, due.RunID)
	took := time.Since(began)
	fail := channel.AsError(err)
	if fail != nil && fail.InDoubt && fail.Class == channel.Interrupted {
		return verdict{wait: leastWait, err: fail}, false // stays sending: see doc.go, Ends
	}
	if fail == nil && w.rest == nil && l.observed(due, w) {
		w.rest = after(due, w, left{receipt, took, span})
	}
	l.unrecorded = l.outcome(due, w, fail, took)
	l.unrecorded.span = span
	l.unrecorded.ProviderID = channel.Clean(receipt.ProviderID, 128)
	if l.unrecorded.Outcome == Unavailable {
		l.unrecorded.RetryAfter = l.heldBack(w, fail)
	}
	if o := l.unrecorded.Outcome; o == Failed || o == Rejected {
		return l.observe(due, w, hook.Result{Status: string(o), Error: l.unrecorded.Error})
	}
	return verdict{}, true
}

// heldBack is the wait after a send that spent nothing.
func (l *lane) heldBack(w target, fail *channel.Error) time.Duration {
	if fail.Class == channel.Interrupted {
		if l.agent.isClosing() {
			return 0 // the next holder may send at once
		}
		return leastWait
	}
	l.shut = w.key
	return max(l.agent.pool.Breakers.Wait(w.key), min(leastWait, l.agent.pool.Breakers.ProbeInterval()))
}

// attempt is D2. A channel that panics has failed: its message is dead after
// some tries, instead of ending this process each time it comes up.
func (l *lane) attempt(w target, run string) (r channel.Receipt, span tracing.Span, err error) {
	m := w.message
	ctx, span := l.agent.pool.Trace.Deliver(l.agent.sends, run, tracing.Where{AgentID: m.AgentID, ThreadID: m.ThreadID, EventID: m.EventID}, w.name, m.Attempt)
	defer func() {
		if p := recover(); p != nil {
			l.log("send panicked", fmt.Errorf("%v\n%s", p, debug.Stack()))
			err = &channel.Error{Class: channel.Failed, InDoubt: true, What: "the channel broke off, see the deliverer's log"}
		}
		l.permit.Record(err)
		if fail := channel.AsError(err); fail != nil {
			span.Fail(fail.Class.String())
		}
		span.End()
	}()
	fault.Point("D2.before")
	ctx, cancel := context.WithTimeout(ctx, sendLimit)
	defer cancel()
	if err = w.find(ctx, &m); err == nil && w.action != "" {
		err = channel.Act(ctx, w.channel, w.action, w.id, m)
	} else if err == nil {
		r, err = w.channel.Send(ctx, m)
		if err != nil && w.broken != nil && w.broken.Load() != nil {
			err = w.broken.Load()
		}
	}
	fault.Point("D2.after")
	return r, span, err
}

// find adds the direct conversation of an account with a person where the message names the person alone: the agent has
// had none with it.
func (w target) find(ctx context.Context, m *channel.Message) (err error) {
	rc := m.ReplyContext
	if rc.Kind() != channel.KindDM || rc.SessionID() != "" || rc.PeerID() == "" || rc.ChannelID() != w.name {
		return nil
	}
	session := rc.PeerID()
	if f, ok := w.channel.(channel.Finder); ok {
		if session, err = f.Find(ctx, session); err != nil {
			return err
		}
	}
	m.ReplyContext = maps.Clone(rc)
	m.ReplyContext["session_id"], err = json.Marshal(session)
	return err
}

// putBack records a begun delivery that was not sent.
func (l *lane) putBack(due Due, w target, why string, wait time.Duration) *record {
	return l.outcome(due, w, &channel.Error{Class: channel.Unavailable, BeforeSend: true, RetryAfter: wait, What: why}, 0)
}

// outcome says how the journal shall remember a send.
func (l *lane) outcome(due Due, w target, fail *channel.Error, took time.Duration) *record {
	r := &record{took: took, flag: w.message.MaybeDuplicate, Finish: Finish{
		EventID: due.Event.ID, Outcome: w.outcome, Channel: channel.Clean(w.name, 120), Level: "INFO",
	}}
	if w.channel != nil {
		r.Outcome = outcomeOf(fail)
		if w.name == due.Settings.Account {
			r.account = w.name
		}
	}
	if r.Outcome == Sent && w.rest != nil {
		r.Outcome, r.rest, r.Parts, r.Reach, r.left = Part, w.rest, w.rest.Parts, w.rest.Reach, w.rest.left != nil
	}
	if fail != nil {
		r.Error = l.agent.pool.Redactor.Redact(fail.What)
		r.RetryAfter, r.InDoubt = fail.RetryAfter, fail.InDoubt
	}
	switch r.Outcome {
	case Failed, Unavailable:
		r.Level = "WARN"
	case Rejected:
		r.Level = "ERROR"
	}
	r.Log = fmt.Sprintf("outbound: channel=%s event=%d outcome=%s ms=%d", cmp.Or(r.Channel, "none"), r.EventID, r.Outcome, took.Milliseconds())
	if w.message.Part > 0 {
		r.Log += fmt.Sprintf(" part=%d", w.message.Part)
	}
	if r.Error != "" {
		r.Log += fmt.Sprintf(" error=%q", r.Error)
	}
	return r
}

func outcomeOf(fail *channel.Error) Outcome {
	if fail == nil {
		return Sent
	}
	switch fail.Class {
	case channel.Rejected:
		return Rejected
	case channel.Unavailable, channel.Interrupted:
		return Unavailable
	default:
		return Failed
	}
}
