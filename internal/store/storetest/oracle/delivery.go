package oracle

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// delivery is a row of x_delivery.
type delivery struct {
	state, boot             string
	attempts, crashes       int
	channel, provider, err  string
	maybe                   bool
	parts                   int
	reach                   int64
	notBefore, made, change time.Time
	resolved                string
}

// sendCrashes is how often one attempt may be begun and not ended: not in RELIABILITY.
const sendCrashes = 10

func (d *delivery) open() bool {
	return d.state == store.DeliveryPending || d.state == store.DeliverySending
}

// deliver makes the row of an event that the agent says.
func (m *Model) deliver(now time.Time, id int64, deliver, console bool, boot string) {
	d := &delivery{state: store.DeliveryPending, boot: boot, made: now, change: now}
	switch {
	case !deliver:
		d.state = store.DeliverySkipped
	case console:
		d.state, d.channel = store.DeliverySent, "console"
	}
	m.deliveries[id] = d
	if !d.open() {
		m.advance(now) // at once: not in RELIABILITY
	}
}

// ids are the events with a row, in order.
func (m *Model) ids() []int64 { return slices.Sorted(maps.Keys(m.deliveries)) }

// row is a delivery as answered.
func (m *Model) row(id int64, d *delivery) store.Delivery {
	out := store.Delivery{
		EventID: id, Key: m.conv.events[id-1].DeliveryKey(m.conv.uuid), State: d.state, Attempts: d.attempts, Channel: d.channel, ProviderID: d.provider,
		Error: d.err, MaybeDuplicate: d.maybe, Parts: d.parts, Reach: d.reach, CreatedAt: d.made, UpdatedAt: d.change, Resolved: d.resolved,
	}
	if d.state == store.DeliveryPending {
		out.NextAt = d.notBefore
	}
	return out
}

// tried reports whether a first try was made or may have been: until then nothing is too
// old.
func (d *delivery) tried() bool {
	return d.state == store.DeliverySending || d.attempts > 0 || d.channel != "" || d.err != "" || d.maybe
}

func (m *Model) dead() (n int64) {
	for _, d := range m.deliveries {
		if d.state == store.DeliveryDead && d.resolved == "" {
			n++
		}
	}
	return n
}

// foreign is what another program said for the agent and has no row yet: where there is
// an outbound consumer, it is to be delivered.
func (m *Model) foreign(e thread.Event) bool {
	return m.conv.sub(thread.Outbound) != nil && e.ID > m.progress && m.deliveries[e.ID] == nil && e.Type == thread.TypeMessage && e.Source == thread.SourceSelf
}

// advance moves the outbound progress to before the first event that is still to send.
func (m *Model) advance(now time.Time) {
	next := m.conv.head() + 1
	for _, e := range m.conv.events {
		if d := m.deliveries[e.ID]; e.ID > m.progress && (d != nil && d.open() || m.foreign(e)) {
			next = min(next, e.ID)
		}
	}
	if next-1 <= m.progress {
		return
	}
	m.progress, m.moved = next-1, thread.Stamp(now)
	if s := m.conv.sub(thread.Outbound); s != nil {
		s.Acked, s.UpdatedAt = m.progress, m.moved
	}
}

// kill is D4.
func (m *Model) kill(now time.Time, id int64, d *delivery, why string) {
	d.state, d.err, d.change, d.notBefore = store.DeliveryDead, why, now, time.Time{}
	key := m.row(id, d).Key
	m.conv.put(now, key+":err", self(thread.TypeRecord, thread.SubtypeError, fmt.Sprintf(`{"error":%q,"context":"delivery %s"}`, why, key)))
}

// NextDelivery is D1.
func (m *Model) NextDelivery(_ context.Context, _ store.Ref, f store.Fence, n store.NextDelivery) (store.DueDelivery, error) {
	if !m.conv.exists {
		return store.DueDelivery{}, store.ErrNotFound
	}
	if err := m.conv.fence(f); err != nil {
		return store.DueDelivery{}, err
	}
	now := m.now()
	m.conv.seal(f)
	out := store.DueDelivery{Outcome: store.DueIdle}
	for _, e := range slices.Clone(m.conv.events) {
		id, d := e.ID, m.deliveries[e.ID]
		if m.foreign(e) {
			made := thread.ParseStamp(e.CreatedAt).Local()
			d = &delivery{state: store.DeliveryPending, boot: n.BootID, maybe: made.Before(n.Since), made: made, change: now}
			if !n.Peek {
				m.deliveries[id] = d
			}
		}
		if d == nil || !d.open() {
			continue
		}
		switch {
		case n.MaxAttempts > 0 && d.state == store.DeliveryPending && d.attempts >= n.MaxAttempts:
			m.kill(now, id, d, d.err)
			continue
		case n.MaxAge > 0 && d.tried() && now.Sub(d.made) > n.MaxAge:
			m.deliveries[id] = d
			m.kill(now, id, d, fmt.Sprint("not delivered within ", n.MaxAge))
			continue
		case d.crashes >= sendCrashes: // also when the last one has failed: not in RELIABILITY
			m.kill(now, id, d, "the process died each time this was sent")
			continue
		}
		if d.state == store.DeliveryPending && now.Before(d.notBefore) {
			out.Outcome, out.Wait = store.DueWait, d.notBefore.Sub(now)
			break
		}
		out.Outcome, out.Event, out.Key = store.DueSend, e, e.DeliveryKey(m.conv.uuid)
		maybe, attempts := d.maybe || d.state == store.DeliverySending || d.boot != n.BootID, d.attempts
		if d.state == store.DeliveryPending {
			attempts++
		}
		out.MaybeDuplicate, out.Attempt, out.Parts, out.Reach, out.Tried = maybe, attempts, d.parts, d.reach, d.tried()
		if n.Peek {
			break
		}
		if d.state == store.DeliverySending {
			d.crashes++
		}
		d.state, d.attempts, d.maybe, d.boot, d.change = store.DeliverySending, attempts, maybe, n.BootID, now
		if n.WithRun {
			out.Run = m.run(id)
		}
		break
	}
	m.advance(now)
	out.Acked, out.Dead = m.progress, m.dead()
	return out, nil
}

func (m *Model) run(id int64) string {
	for _, t := range m.turns {
		if t.reply == id {
			return t.key
		}
	}
	return ""
}

// FinishDelivery is D3, or D4, or the wait for the next try.
func (m *Model) FinishDelivery(_ context.Context, r store.Ref, f store.Fence, fin store.FinishDelivery) (store.Delivery, error) {
	if !m.conv.exists {
		return store.Delivery{}, store.ErrNotFound
	}
	if err := m.conv.fence(f); err != nil {
		return store.Delivery{}, err
	}
	now, d := m.now(), m.deliveries[fin.EventID]
	if d == nil {
		return store.Delivery{}, store.ErrNoDelivery
	}
	m.conv.seal(f)
	if d.state == store.DeliverySending {
		m.outcome(now, d, fin)
	}
	m.advance(now)
	out := m.row(fin.EventID, d)
	out.Thread = r.Thread
	out.Acked, out.Dead = m.progress, m.dead()
	return out, nil
}

func (m *Model) outcome(now time.Time, d *delivery, fin store.FinishDelivery) {
	if fin.Outcome == store.OutcomePart && fin.Parts <= d.parts {
		return // late news
	}
	d.change, d.channel, d.err = now, fin.Channel, fin.Error
	switch {
	case d.parts == 0:
		d.provider = fin.ProviderID
	case (fin.Outcome == store.OutcomeSent || fin.Outcome == store.OutcomePart) && fin.ProviderID != "": // of a message in parts all: not in RELIABILITY
		d.provider = strings.TrimPrefix(d.provider+", "+fin.ProviderID, ", ")
	}
	d.maybe = d.maybe || fin.InDoubt
	switch fin.Outcome {
	case store.OutcomeSent:
		d.state = store.DeliverySent
	case store.OutcomeSkipped:
		d.state = store.DeliverySkipped
	case store.OutcomeRejected:
		m.kill(now, fin.EventID, d, fin.Error)
	case store.OutcomeUnavailable:
		d.wait(now, fin.RetryAfter)
		d.attempts--
	case store.OutcomeFailed:
		if d.attempts >= fin.MaxAttempts {
			m.kill(now, fin.EventID, d, fin.Error)
			return
		}
		waits := fin.Waits
		if waits == nil {
			waits = store.DeliveryWaits
		}
		d.wait(now, max(fin.RetryAfter, waits[min(d.attempts, len(waits))-1]))
	case store.OutcomePart:
		d.parts, d.reach, d.attempts, d.crashes = fin.Parts, fin.Reach, 1, 0 // what is left was not tried before
	default:
		panic(unknown("outcome", fin.Outcome))
	}
}

// wait makes a delivery pending; without a wait it is due at once.
func (d *delivery) wait(now time.Time, wait time.Duration) {
	d.state, d.notBefore = store.DeliveryPending, time.Time{}
	if wait > 0 {
		d.notBefore = now.Add(wait)
	}
}

// ListDeliveries answers rows in the order of their events.
func (m *Model) ListDeliveries(_ context.Context, r store.Ref, state string, after int64, limit int) ([]store.Delivery, error) {
	if !m.conv.exists {
		return nil, store.ErrNotFound
	}
	var out []store.Delivery
	for _, id := range m.ids() {
		d := m.deliveries[id]
		if id <= after || len(out) == limit || state != "" && d.state != state || state == store.DeliveryDead && d.resolved != "" {
			continue
		}
		row := m.row(id, d)
		row.Thread = r.Thread
		out = append(out, row)
	}
	return out, nil
}

// ResolveDelivery is what people do with a dead letter.
func (m *Model) ResolveDelivery(_ context.Context, r store.Ref, id int64, how string) (store.Delivery, error) {
	d := m.deliveries[id]
	if d == nil {
		return store.Delivery{}, store.ErrNoDelivery
	}
	if d.state != store.DeliveryDead || d.resolved != "" {
		return store.Delivery{}, store.ErrNotDead
	}
	d.resolved, d.change = how, m.now()
	if how == "retried" {
		d.state, d.attempts, d.crashes, d.notBefore, d.resolved = store.DeliveryPending, 0, 0, time.Time{}, ""
		d.made = d.change // its age counts from now: not in RELIABILITY
	}
	m.advance(d.change)
	out := m.row(id, d)
	out.Thread = r.Thread
	out.Acked, out.Dead = m.progress, m.dead()
	return out, nil
}
