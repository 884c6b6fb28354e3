package journal

import (
	"context"
	"slices"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/machine"
	"github.com/theclaw/agents/internal/store/postgres/unit"
	"github.com/theclaw/agents/internal/thread"
)

// A row may be absent where an event is looked at; then all is zero.
const deliveryColumns = `COALESCE(d.event_id, 0), COALESCE(d.key, ''), COALESCE(d.state, ''), COALESCE(d.attempts, 0), COALESCE(d.not_before, 0),
	COALESCE(d.channel, ''), COALESCE(d.provider_id, ''), COALESCE(d.boot_id, ''), COALESCE(d.crashes, 0), COALESCE(d.error, ''),
	COALESCE(d.maybe_duplicate, false), COALESCE(d.created_at, 0), COALESCE(d.updated_at, 0), COALESCE(d.resolved, ''),
	COALESCE(d.parts, 0), COALESCE(d.reach, 0), COALESCE(d.run, '')`

const (
	ofDelivery   = "d.agent_id = $1 AND d.thread_id = $2"
	openDelivery = ofDelivery + " AND d.state IN ('pending', 'sending')"
	deadDelivery = ofDelivery + " AND d.state = 'dead' AND d.resolved = ''"
	openHead     = "COALESCE((SELECT MAX(d.event_id) FROM delivery d WHERE " + openDelivery + "), 0)"

	// reported is the event committed under machine.ReportKey.
	reported = `COALESCE((SELECT k.event_id FROM dedupe k WHERE k.agent_id = $1 AND k.thread_id = $2 AND k.key = 'delivery:' || d.key || ':err'), 0)`

	// firstOpen are the events after the ack, but for $3, that are neither sent nor given
	// up, whichever program wrote them. What another program wrote counts where there is an
	// outbound consumer: a thread without one sends nothing. The state is read event by
	// event: joined, the server would take the ack for any third of the thread and read it
	// all.
	firstOpen = `SELECT e.id FROM event e WHERE e.agent_id = $1 AND e.thread_id = $2 AND e.id <> $3 AND e.type = 'message' AND e.source = '` + thread.SourceSelf + `'
		AND e.id > (SELECT t.acked FROM thread t WHERE t.agent_id = $1 AND t.thread_id = $2)
		AND COALESCE((SELECT d.state IN ('pending', 'sending') FROM delivery d WHERE ` + ofDelivery + ` AND d.event_id = e.id),
			EXISTS (SELECT 1 FROM subscription s WHERE s.agent_id = $1 AND s.thread_id = $2 AND s.consumer = '` + thread.Outbound + `')) ORDER BY e.id LIMIT `

	// due are the first $4 events to look at, and the first open one after the ack; below
	// the ack there may be dead letters that were made pending again.
	due = "SELECT e.id, e.created_at, e.source, e.type, e.subtype, e.content, " + deliveryColumns + ", " + reported + `, x.first FROM (
		SELECT u.id, MAX(u.first) AS first FROM (
			(SELECT d.event_id AS id, 0 AS first FROM delivery d WHERE ` + openDelivery + ` ORDER BY d.event_id LIMIT $4) UNION ALL
			(SELECT o.id, o.id FROM (` + firstOpen + `$4) o)) u GROUP BY u.id) x
	JOIN event e ON e.agent_id = $1 AND e.thread_id = $2 AND e.id = x.id
	LEFT JOIN delivery d ON ` + ofDelivery + ` AND d.event_id = e.id ORDER BY e.id`
)

// loadDeliveries queues the reads of what n names of the deliveries, in one statement
// where it can.
func loadDeliveries(tx *unit.Tx, n machine.Needs, t *machine.Thread) {
	switch {
	case n.Due > 0:
		tx.Read(due, []any{n.Except, n.Due}, func(scan func(...any) error) error {
			var d machine.Delivery
			var first int64
			e := &d.Event
			err := scanDelivery(scan, &d, []any{&e.ID, &e.CreatedAt, &e.Source, &e.Type, &e.Subtype, &e.Content}, &d.ErrorID, &first)
			if d.Foreign = d.Key == ""; t.FirstOpen == 0 {
				t.FirstOpen = first
			}
			if len(t.Deliveries) < n.Due { // of two orders merged, only so many are without a gap
				t.Deliveries = append(t.Deliveries, d)
			}
			return err
		})
		tx.One("SELECT COUNT(*) FROM delivery d WHERE "+deadDelivery, nil, nil, &t.Dead)
	case n.Delivery != 0:
		tx.Read("SELECT "+deliveryColumns+", "+reported+", COALESCE(c.first, 0), c.dead FROM (SELECT ("+firstOpen+"1) AS first, (SELECT COUNT(*) FROM delivery d WHERE "+deadDelivery+` AND d.event_id <> $3) AS dead) c
			LEFT JOIN delivery d ON `+ofDelivery+" AND d.event_id = $3", []any{n.Delivery}, func(scan func(...any) error) error {
			var d machine.Delivery
			err := scanDelivery(scan, &d, nil, &d.ErrorID, &t.FirstOpen, &t.Dead)
			if d.Key != "" {
				t.Deliveries = append(t.Deliveries, d)
			}
			return err
		})
	case n.OpenHead && n.FirstOpen:
		tx.One("SELECT "+openHead+", COALESCE(("+firstOpen+"1), 0)", []any{n.Except}, nil, &t.OpenHead, &t.FirstOpen)
	case n.OpenHead:
		tx.One("SELECT "+openHead, nil, nil, &t.OpenHead)
	case n.FirstOpen:
		tx.One("SELECT COALESCE(("+firstOpen+"1), 0)", []any{n.Except}, nil, &t.FirstOpen)
	}
}

// scanDelivery scans deliveryColumns, between what stands before and after them.
func scanDelivery(scan func(...any) error, d *machine.Delivery, before []any, after ...any) error {
	var created, updated int64
	err := scan(slices.Concat(before, []any{
		&d.EventID, &d.Key, &d.State, &d.Attempts, &d.NotBefore, &d.Channel, &d.ProviderID, &d.BootID, &d.Crashes, &d.Error,
		&d.MaybeDuplicate, &created, &updated, &d.Resolved, &d.Parts, &d.Reach, &d.Run,
	}, after)...)
	d.CreatedAt, d.UpdatedAt = store.FromMillis(created), store.FromMillis(updated)
	d.SetNextAt()
	return err
}

func saveDelivery(tx *unit.Tx, d *machine.Delivery) {
	switch d.Change {
	case machine.Inserted:
		tx.Exec(`INSERT INTO delivery(agent_id, thread_id, event_id, key, state, attempts, crashes, not_before, channel, provider_id, boot_id,
			error, maybe_duplicate, created_at, updated_at, resolved, parts, reach, run) VALUES($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16,$17,$18,$19)`,
			d.EventID, d.Key, d.State, d.Attempts, d.Crashes, d.NotBefore, d.Channel, d.ProviderID, d.BootID,
			d.Error, d.MaybeDuplicate, store.Millis(d.CreatedAt), store.Millis(d.UpdatedAt), d.Resolved, d.Parts, d.Reach, d.Run)
	case machine.Updated:
		tx.Exec(`UPDATE delivery SET state = $4, attempts = $5, crashes = $6, not_before = $7, channel = $8, provider_id = $9, boot_id = $10,
			error = $11, maybe_duplicate = $12, created_at = $13, updated_at = $14, resolved = $15, parts = $16, reach = $17
			WHERE agent_id = $1 AND thread_id = $2 AND event_id = $3`,
			d.EventID, d.State, d.Attempts, d.Crashes, d.NotBefore, d.Channel, d.ProviderID, d.BootID,
			d.Error, d.MaybeDuplicate, store.Millis(d.CreatedAt), store.Millis(d.UpdatedAt), d.Resolved, d.Parts, d.Reach)
	}
}

// NextStep answers the first undelivered event and counts the attempt (D1).
type NextStep struct {
	n    store.NextDelivery
	rows machine.Thread
	Out  store.DueDelivery
}

// Next makes the step.
func Next(n store.NextDelivery) *NextStep { return &NextStep{n: n} }

// Load queues the reads.
func (s *NextStep) Load(tx *unit.Tx) {
	s.rows = machine.Thread{}
	load(tx, machine.NextNeeds(s.n), &s.rows)
}

// Decide queues the writes.
func (s *NextStep) Decide(ctx context.Context, tx *unit.Tx) error {
	for {
		begin(tx, &s.rows)
		out, more := machine.Next(&s.rows, s.n)
		save(tx, &s.rows)
		if more == nil {
			s.Out = out
			return nil
		}
		if err := tx.Flush(ctx); err != nil {
			return err
		}
		s.rows = machine.Thread{}
		if err := tx.Again(ctx, func() { load(tx, *more, &s.rows) }); err != nil {
			return err
		}
	}
}

// Sent records what became of a send (D3, D4); store.ErrNoDelivery.
func Sent(fin store.FinishDelivery) *Step[store.Delivery] {
	return step(machine.SentNeeds(fin.EventID), func(t *machine.Thread) (store.Delivery, error) { return machine.Sent(t, fin) })
}

// ResolveDelivery retries or drops a dead delivery; store.ErrNoDelivery, ErrNotDead.
func ResolveDelivery(eventID int64, how string) *Step[store.Delivery] {
	return step(machine.SentNeeds(eventID), func(t *machine.Thread) (store.Delivery, error) { return machine.Resolve(t, how) })
}

// DeliveriesStep answers rows after an event id, oldest first; of one state without the
// dead letters that were resolved.
type DeliveriesStep struct {
	state string
	after int64
	limit int
	Out   []store.Delivery
}

// Deliveries makes the step.
func Deliveries(state string, after int64, limit int) *DeliveriesStep {
	return &DeliveriesStep{state: state, after: after, limit: limit}
}

// Load queues the reads.
func (s *DeliveriesStep) Load(tx *unit.Tx) {
	tx.Read("SELECT "+deliveryColumns+" FROM delivery d WHERE "+ofDelivery+` AND d.event_id > $3 AND ($4 = '' OR d.state = $4 AND d.resolved = '')
		ORDER BY d.event_id LIMIT $5`, []any{s.after, s.state, s.limit}, func(scan func(...any) error) error {
		var d machine.Delivery
		err := scanDelivery(scan, &d, nil)
		d.Thread = tx.Ref.Thread
		s.Out = append(s.Out, d.Delivery)
		return err
	})
}

// Decide has nothing to decide.
func (s *DeliveriesStep) Decide(context.Context, *unit.Tx) error { return nil }
