package outbox

import (
	"context"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/unit"
	"github.com/theclaw/agents/internal/thread"
)

const (
	// maxCrashes bounds how often a send that kills its process is begun.
	maxCrashes = 10
	// ahead is how many events are looked at when the first one is dead.
	ahead = 16
)

// candidate is an event that may be due, with its row.
type candidate struct {
	ev thread.Event
	d  row
}

// NextStep answers the first undelivered event and counts the attempt (D1).
type NextStep struct {
	n     store.NextDelivery
	list  []candidate
	limit int
	first int64 // first open event after the ack
	dead  int64
	Out   store.DueDelivery
}

// Next makes the step.
func Next(n store.NextDelivery) *NextStep { return &NextStep{n: n} }

// due are the first $4 events to look at, and the first open one after the ack; below
// the ack there may be dead letters that were made pending again.
const due = "SELECT e.id, e.created_at, e.source, e.type, e.subtype, e.content, " + columns + ", " + told + `, x.first FROM (
		SELECT u.id, MAX(u.first) AS first FROM (
			(SELECT d.event_id AS id, 0 AS first FROM delivery d WHERE ` + open + ` ORDER BY d.event_id LIMIT $4) UNION ALL
			(SELECT o.id, o.id FROM (` + firstOpen + `$4) o)) u GROUP BY u.id) x
	JOIN event e ON e.agent_id = $1 AND e.thread_id = $2 AND e.id = x.id
	LEFT JOIN delivery d ON ` + ofThread + ` AND d.event_id = e.id ORDER BY e.id`

// Load queues the reads.
func (s *NextStep) Load(tx *unit.Tx) {
	s.limit = 1
	tx.Read(due, []any{0, s.limit}, s.add)
	tx.One(dead, nil, nil, &s.dead)
}

func (s *NextStep) add(scan func(...any) error) error {
	var c candidate
	var first int64
	err := c.d.read(scan, []any{&c.ev.ID, &c.ev.CreatedAt, &c.ev.Source, &c.ev.Type, &c.ev.Subtype, &c.ev.Content}, &c.d.told, &first)
	if s.first == 0 {
		s.first = first
	}
	if len(s.list) < s.limit { // of two orders merged, only so many are without a gap
		s.list = append(s.list, c)
	}
	return err
}

// Decide queues the writes.
func (s *NextStep) Decide(ctx context.Context, tx *unit.Tx) error {
	for len(s.list) > 0 {
		for i := range s.list {
			if !s.one(tx, &s.list[i]) {
				continue
			}
			// Whatever was before it is done; it may be a dead letter below the ack.
			if id := s.list[i].ev.ID; id > tx.Acked {
				s.first = id
			}
			s.end(tx)
			return nil
		}
		s.list, s.first, s.limit = nil, 0, ahead
		if err := tx.Flush(ctx); err != nil {
			return err
		}
		if err := tx.Now(ctx, due, []any{0, s.limit}, s.add); err != nil {
			return err
		}
	}
	s.Out.Outcome = store.DueIdle
	s.end(tx)
	return nil
}

func (s *NextStep) end(tx *unit.Tx) {
	advance(tx, s.first)
	s.Out.Acked, s.Out.Dead = tx.Acked, s.dead
}

// one looks at one event; false when it is dead now and the next must be looked at.
func (s *NextStep) one(tx *unit.Tx, c *candidate) bool {
	d, n, out, now := &c.d, s.n, &s.Out, tx.Time
	fresh := !d.stored
	if fresh {
		adopt(tx, c, n.BootID)
	}
	// A send may have left when the row says so, and also when a power cut may
	// have taken the row's last state with it.
	crashed := d.State == store.DeliverySending
	duplicate := d.MaybeDuplicate || crashed || (d.bootID != "" && d.bootID != n.BootID)
	switch {
	case !crashed && n.MaxAttempts > 0 && d.Attempts >= n.MaxAttempts: // the limit was lowered
		s.dead++
		giveUp(tx, d, d.Error)
		return false
	case n.MaxAge > 0 && now.Sub(d.CreatedAt) > n.MaxAge:
		s.dead++
		giveUp(tx, d, "not delivered within "+n.MaxAge.String())
		return false
	case d.crashes >= maxCrashes:
		s.dead++
		giveUp(tx, d, "the process died each time this was sent")
		return false
	case d.State == store.DeliveryPending && d.notBefore > now.UnixMilli():
		out.Outcome, out.Wait = store.DueWait, time.Duration(d.notBefore-now.UnixMilli())*time.Millisecond
		return true
	}
	out.Outcome, out.Key, out.Attempt, out.MaybeDuplicate = store.DueSend, d.Key, d.Attempts+1, duplicate
	out.Event, out.Parts, out.Reach = c.ev, d.Parts, d.Reach
	if crashed {
		out.Attempt = max(d.Attempts, 1) // the same try again: a crash spends none
	}
	if !n.Peek {
		if n.WithRun {
			out.Run = d.run
		}
		d.State, d.Attempts, d.bootID, d.MaybeDuplicate = store.DeliverySending, out.Attempt, n.BootID, duplicate
		if crashed {
			d.crashes++
		}
	}
	if fresh || !n.Peek {
		d.save(tx)
	}
	return true
}

// adopt makes the row of an event that another program wrote as the agent. Its age
// counts from when it was said, not from when we saw it.
func adopt(tx *unit.Tx, c *candidate, bootID string) {
	said := tx.Time.UnixMilli()
	if at := thread.ParseStamp(c.ev.CreatedAt); !at.IsZero() {
		said = min(said, at.UnixMilli())
	}
	c.d.EventID, c.d.Key, c.d.State, c.d.bootID = c.ev.ID, c.ev.DeliveryKey(tx.UUID), store.DeliveryPending, bootID
	c.d.CreatedAt = store.FromMillis(said)
}

// giveUp makes a delivery a dead letter (D4) and tells the thread, once.
func giveUp(tx *unit.Tx, d *row, why string) {
	d.State, d.Error, d.notBefore, d.Resolved = store.DeliveryDead, why, 0, ""
	d.save(tx)
	if d.told != 0 {
		return
	}
	content := append([]byte(`{"error":`), thread.AppendString(nil, why)...)
	content = append(append(content, `,"context":`...), thread.AppendString(nil, "delivery "+d.Key)...)
	sub := thread.SubtypeError
	ev := tx.Insert(store.NewEvent{Source: thread.SourceSelf, Type: thread.TypeRecord, Subtype: &sub, Content: string(append(content, '}'))})
	tx.Dedupe("delivery:"+d.Key+":err", ev.ID, tx.Fence.Token)
}

// FinishStep records what became of a send (D3, D4); a send that was recorded stays
// as it is.
type FinishStep struct {
	step
	fin store.FinishDelivery
}

// Finish makes the step.
func Finish(fin store.FinishDelivery) *FinishStep {
	return &FinishStep{step: step{id: fin.EventID}, fin: fin}
}

// Decide queues the writes; store.ErrNoDelivery.
func (s *FinishStep) Decide(_ context.Context, tx *unit.Tx) error {
	if !s.d.stored {
		return store.ErrNoDelivery
	}
	if s.d.State == store.DeliverySending {
		s.settle(tx)
	}
	s.report(tx)
	return nil
}

func (s *FinishStep) settle(tx *unit.Tx) {
	d, fin := &s.d, s.fin
	if fin.Outcome == store.OutcomePart { // progress: what failed before is not what is left
		if fin.Parts > d.Parts { // else the answer was lost, not the part
			d.Attempts, d.crashes, d.Parts, d.Reach = 1, 0, fin.Parts, fin.Reach
			d.Channel, d.ProviderID, d.Error = fin.Channel, fin.ProviderID, ""
			d.save(tx)
		}
		return
	}
	d.Channel, d.ProviderID, d.Error, d.notBefore = fin.Channel, fin.ProviderID, fin.Error, 0
	wait := func(w time.Duration) {
		d.State = store.DeliveryPending
		if w > 0 {
			d.notBefore = tx.Time.Add(w).UnixMilli()
		}
	}
	switch {
	case fin.Outcome == store.OutcomeSent:
		d.State = store.DeliverySent
	case fin.Outcome == store.OutcomeSkipped:
		d.State = store.DeliverySkipped
	case fin.Outcome == store.OutcomeUnavailable: // the channel is down: nobody's attempt
		d.Attempts = max(d.Attempts-1, 0)
		wait(fin.RetryAfter)
	case fin.Outcome == store.OutcomeFailed && d.Attempts < fin.MaxAttempts:
		waits := fin.Waits
		if len(waits) == 0 {
			waits = store.DeliveryWaits
		}
		wait(max(waits[min(d.Attempts, len(waits))-1], fin.RetryAfter))
	default:
		giveUp(tx, d, fin.Error)
		return
	}
	d.save(tx)
}
