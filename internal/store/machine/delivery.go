package machine

import (
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

const (
	// maxSendCrashes bounds how often a send that kills its process is begun.
	maxSendCrashes = 10
	// dueAtFirst events are loaded to find the next one to send, and dueAfterDead when
	// those before were given up.
	dueAtFirst, dueAfterDead = 1, 16
)

// Delivery is a row of the journal of deliveries.
type Delivery struct {
	store.Delivery
	BootID    string       // name of the store.Generation in which the row was last written
	Run       string       // key of the turn whose reply it is
	NotBefore int64        // milliseconds since 1970
	Crashes   int          // sends that ended with the process
	ErrorID   int64        // event that reports its end; 0: none
	Event     thread.Event // of a candidate for Next
	Foreign   bool         // a candidate without a row: another program wrote Event
	Change    Change
}

func (d *Delivery) open() bool {
	return d.State == store.DeliveryPending || d.State == store.DeliverySending
}

// SetNextAt derives NextAt from what is stored.
func (d *Delivery) SetNextAt() {
	d.NextAt = time.Time{}
	if d.State == store.DeliveryPending {
		d.NextAt = store.FromMillis(d.NotBefore)
	}
}

func (t *Thread) save(d *Delivery) {
	if d.Change == Unchanged {
		d.Change = Updated
	}
	d.UpdatedAt = store.FromMillis(t.Now.UnixMilli())
	d.SetNextAt()
}

// adopt makes the row of a message that another program wrote as the agent. Its age
// counts from when it was written, not from when it was noticed. Such a row is on disk
// only some time later, so one of a message that is older than this generation may have
// been there before.
func (t *Thread) adopt(d *Delivery, n store.NextDelivery) {
	written := t.Now.UnixMilli()
	if at := thread.ParseStamp(d.Event.CreatedAt); !at.IsZero() {
		written = min(written, at.UnixMilli())
	}
	d.EventID, d.Key, d.State, d.BootID = d.Event.ID, d.Event.DeliveryKey(t.UUID), store.DeliveryPending, n.BootID
	d.MaybeDuplicate = written < n.Since.UnixMilli() && !n.Since.IsZero()
	d.CreatedAt, d.Foreign, d.Change = store.FromMillis(written), false, Inserted
	t.save(d)
}

// SkipForeign records the candidates that another program wrote before a stamp, or all
// when it is empty, as skipped with a cause, and moves the ack. It answers how many, and
// whether there may be more: the engine then saves t, loads again and calls it again.
func SkipForeign(t *Thread, before, why string) (n int64, more bool) {
	if len(t.Deliveries) == 0 {
		t.ack()
		return 0, false
	}
	to, open := t.Acked, false
	for i := range t.Deliveries {
		d := &t.Deliveries[i]
		if !d.Foreign || (before != "" && d.Event.CreatedAt >= before) {
			open = true
			continue
		}
		t.adopt(d, store.NextDelivery{})
		d.State, d.Error = store.DeliverySkipped, why
		n++
		if !open {
			to = max(to, d.EventID)
		}
	}
	if to > t.Acked {
		t.Acked, t.AckMoved = to, true
	}
	return n, n > 0
}

// deliver makes the row of a message that was just appended. A thread without a channel
// skips it, so that a channel configured later does not send what was said before it.
func (t *Thread) deliver(e thread.Event, c channelOf) {
	d := Delivery{
		Delivery: store.Delivery{EventID: e.ID, Key: e.DeliveryKey(t.UUID), State: store.DeliveryPending, CreatedAt: store.FromMillis(t.Now.UnixMilli())},
		BootID:   c.bootID, Run: c.run, Change: Inserted,
	}
	switch {
	case !c.deliver:
		d.State = store.DeliverySkipped
	case c.console:
		d.State, d.Channel = store.DeliverySent, "console"
	}
	t.save(&d)
	t.Deliveries = append(t.Deliveries, d)
	if !d.open() {
		t.ack()
		return
	}
	t.OpenHead = e.ID
	if t.FirstOpen == 0 {
		t.FirstOpen = e.ID
	}
}

// ack moves the outbound ack to the end of the done prefix.
func (t *Thread) ack() {
	to := t.FirstOpen - 1
	if t.FirstOpen == 0 {
		to = t.Head
	}
	if to > t.Acked {
		t.Acked, t.AckMoved = to, true
	}
}

// NextNeeds are the rows of a search for the next event to send.
func NextNeeds(n store.NextDelivery) Needs {
	return Needs{Due: dueAtFirst, FirstOpen: true, Dead: true, Runs: n.WithRun && !n.Peek}
}

// Next answers the first undelivered event and counts the attempt (D1). When all
// candidates are given up (D4), the engine saves t, loads what more names and calls Next
// again.
func Next(t *Thread, n store.NextDelivery) (out store.DueDelivery, more *Needs) {
	for i := range t.Deliveries {
		d := &t.Deliveries[i]
		if !due(t, d, n, &out) {
			t.Dead++
			continue
		}
		if d.EventID > t.Acked { // those before it are done; it may also be below the ack
			t.FirstOpen = d.EventID
		}
		t.ack()
		out.Acked, out.Dead = t.Acked, t.Dead
		return out, nil
	}
	if len(t.Deliveries) > 0 {
		m := NextNeeds(n)
		m.Due = dueAfterDead
		return store.DueDelivery{}, &m
	}
	t.ack()
	return store.DueDelivery{Outcome: store.DueIdle, Acked: t.Acked, Dead: t.Dead}, nil
}

// ClockStep is how far back the wall clock must have been set for a stored time to mean
// nothing any more.
const ClockStep = time.Second

// tried reports whether a send was begun, or put off because its channel was down, or may
// have been in an earlier generation (see adopt). A first try is always made: that much time
// has passed may be an error of the clock.
func (d *Delivery) tried() bool {
	return d.State == store.DeliverySending || d.Attempts > 0 || d.Channel != "" || d.Error != "" || d.MaybeDuplicate
}

// age is how long a message has waited. The wall clock may have been set meanwhile: one
// that came in this generation is not older than the generation is.
func (t *Thread) age(d *Delivery, n store.NextDelivery) time.Duration {
	age := t.Now.Sub(d.CreatedAt)
	if n.Elapsed > 0 && !d.CreatedAt.Before(n.Since) {
		age = min(age, n.Elapsed)
	}
	return age
}

// due looks at one event; false when it is dead now.
func due(t *Thread, d *Delivery, n store.NextDelivery, out *store.DueDelivery) bool {
	if d.Foreign {
		t.adopt(d, n)
	}
	// A send may have left when the row says so, and also when the last state of the row
	// may have been lost: D1 is not on disk before the send.
	crashed := d.State == store.DeliverySending
	duplicate := d.MaybeDuplicate || crashed || (d.BootID != "" && d.BootID != n.BootID)
	switch {
	case !crashed && n.MaxAttempts > 0 && d.Attempts >= n.MaxAttempts: // the limit was lowered
		giveUp(t, d, d.Error)
		return false
	case n.MaxAge > 0 && d.tried() && t.age(d, n) > n.MaxAge:
		giveUp(t, d, "not delivered within "+n.MaxAge.String())
		return false
	case d.Crashes >= maxSendCrashes:
		giveUp(t, d, "the process died each time this was sent")
		return false
	case d.State == store.DeliveryPending && d.NotBefore > t.Now.UnixMilli() && d.UpdatedAt.Sub(t.Now) < ClockStep:
		out.Outcome, out.Wait = store.DueWait, time.Duration(d.NotBefore-t.Now.UnixMilli())*time.Millisecond
		return true
	}
	*out = store.DueDelivery{
		Outcome: store.DueSend, Event: d.Event, Key: d.Key, Attempt: d.Attempts + 1, MaybeDuplicate: duplicate, Parts: d.Parts, Reach: d.Reach,
		Tried: d.tried(),
	}
	if crashed {
		out.Attempt = max(d.Attempts, 1) // the same try again: a crash spends none
	}
	if n.Peek {
		d.Change = Unchanged // what another program wrote gets its row when it is begun
		return true
	}
	if n.WithRun {
		out.Run = d.Run
	}
	if crashed {
		d.Crashes++
	}
	d.State, d.Attempts, d.BootID, d.MaybeDuplicate = store.DeliverySending, out.Attempt, n.BootID, duplicate
	t.save(d)
	return true
}

// ReportKey is the deduplication key of the event that reports the end of a delivery.
func ReportKey(delivery string) string { return "delivery:" + delivery + ":err" }

// DecisionKey is the deduplication key of the record of what hooks decided about the message of a delivery.
func DecisionKey(delivery string) string { return "delivery:" + delivery + ":hook" }

// giveUp makes a delivery a dead letter (D4) and reports it in the thread, once.
func giveUp(t *Thread, d *Delivery, why string) {
	d.State, d.Error, d.NotBefore, d.Resolved = store.DeliveryDead, why, 0, ""
	t.save(d)
	if d.ErrorID == 0 {
		d.ErrorID = t.record(ReportKey(d.Key), thread.SubtypeError, thread.Failure{Error: why, Context: "delivery " + d.Key}.Content())
	}
}

// SentNeeds are the rows of the end of a send, and of a dead letter to resolve.
func SentNeeds(eventID int64) Needs {
	return Needs{Delivery: eventID, FirstOpen: true, Dead: true, Except: eventID}
}

// Sent records what became of a send (D3, D4); a send that was recorded stays as it is.
// store.ErrNoDelivery.
func Sent(t *Thread, fin store.FinishDelivery) (store.Delivery, error) {
	if len(t.Deliveries) == 0 {
		return store.Delivery{}, store.ErrNoDelivery
	}
	d := &t.Deliveries[0]
	if d.State == store.DeliverySending {
		settleSend(t, d, fin)
	}
	return report(t, d), nil
}

func settleSend(t *Thread, d *Delivery, fin store.FinishDelivery) {
	if fin.Outcome == store.OutcomePart { // progress: what failed before is not what is left
		if fin.Parts <= d.Parts {
			return // the answer was lost, not the part
		}
		d.ProviderID = sentAs(d, fin)
		d.Attempts, d.Crashes, d.Parts, d.Reach = 1, 0, fin.Parts, fin.Reach
		d.Channel, d.Error = fin.Channel, ""
		t.save(d)
		return
	}
	d.ProviderID = sentAs(d, fin)
	d.Channel, d.Error, d.NotBefore = fin.Channel, fin.Error, 0
	d.MaybeDuplicate = d.MaybeDuplicate || fin.InDoubt // the next send carries the flag
	wait := func(w time.Duration) {
		d.State = store.DeliveryPending
		if w > 0 {
			d.NotBefore = t.Now.Add(w).UnixMilli()
		}
	}
	switch {
	case fin.Outcome == store.OutcomeSent:
		d.State = store.DeliverySent
	case fin.Outcome == store.OutcomeSkipped:
		d.State = store.DeliverySkipped
	case fin.Outcome == store.OutcomeUnavailable: // the channel is down: no attempt is spent
		d.Attempts = max(d.Attempts-1, 0)
		wait(fin.RetryAfter)
	case fin.Outcome == store.OutcomeFailed && d.Attempts < fin.MaxAttempts:
		waits := fin.Waits
		if len(waits) == 0 {
			waits = store.DeliveryWaits
		}
		wait(max(waits[min(d.Attempts, len(waits))-1], fin.RetryAfter))
	default:
		giveUp(t, d, fin.Error)
		return
	}
	t.save(d)
}

// maxSentAs bounds the ids of the parts of a message that are kept, in bytes.
const maxSentAs = 512

// sentAs is what the platform calls a message after a send: of one in parts the ids of all that were sent, the first ones
// as far as they are kept.
func sentAs(d *Delivery, fin store.FinishDelivery) string {
	switch {
	case d.Parts == 0:
		return fin.ProviderID
	case fin.Outcome != store.OutcomeSent && fin.Outcome != store.OutcomePart || fin.ProviderID == "" || len(d.ProviderID)+len(fin.ProviderID) > maxSentAs:
		return d.ProviderID
	case d.ProviderID == "":
		return fin.ProviderID
	}
	return d.ProviderID + ", " + fin.ProviderID
}

// Resolve retries a dead delivery ("retried") or takes it off the dead letters ("dropped"),
// after which it is none any more;
// store.ErrNoDelivery, ErrNotDead.
func Resolve(t *Thread, how string) (store.Delivery, error) {
	if len(t.Deliveries) == 0 {
		return store.Delivery{}, store.ErrNoDelivery
	}
	d := &t.Deliveries[0]
	if d.State != store.DeliveryDead || d.Resolved != "" {
		return store.Delivery{}, store.ErrNotDead
	}
	if how == "retried" {
		d.State, d.Attempts, d.Crashes, d.NotBefore, d.Resolved = store.DeliveryPending, 0, 0, 0, ""
		d.CreatedAt = store.FromMillis(t.Now.UnixMilli())
	} else {
		d.Resolved = how
	}
	t.save(d)
	return report(t, d), nil
}

// report answers a row and how the deliveries of the thread stand with it. FirstOpen and
// Dead were loaded without it.
func report(t *Thread, d *Delivery) store.Delivery {
	if d.open() && d.EventID > t.Acked && (t.FirstOpen == 0 || d.EventID < t.FirstOpen) {
		t.FirstOpen = d.EventID
	}
	if d.State == store.DeliveryDead && d.Resolved == "" {
		t.Dead++
	}
	t.ack()
	out := d.Delivery
	out.Acked, out.Dead = t.Acked, t.Dead
	return out
}
