// Package outbox owns the journal of what leaves a conversation thread: one row of
// delivery for each event of the agent, and how far all of them are done.
//
//	         Next                 Finish
//	pending --------> sending ------------> sent | dead | skipped
//	   ^                  |
//	   +------------------+  failed: wait until not_before
//
// Events leave in the order of their ids: a waiting one holds back those behind
// it until it is sent or dead. One that is sent in parts stays sending from the first part to
// the last, and goes on behind what was sent. A row found sending was left by a process that
// died: it is sent again under the same key, flagged, and spends no attempt.
//
// A row is read, changed in Go and written once, so each step takes two trips. Next
// takes two more for every sixteen events that it finds too old or given up.
// The steps run under a fence that the transaction has checked.
package outbox

import (
	"context"
	"slices"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/unit"
	"github.com/theclaw/agents/internal/thread"
)

// row is a delivery as it stands, or as it shall be when it is saved.
type row struct {
	store.Delivery
	bootID    string
	run       string // key of the turn whose reply it is
	notBefore int64
	crashes   int
	stored    bool  // there is a row
	told      int64 // the event that tells of its end
}

// A row may be absent where an event is looked at; then all is zero.
const columns = `COALESCE(d.event_id, 0), COALESCE(d.key, ''), COALESCE(d.state, ''), COALESCE(d.attempts, 0), COALESCE(d.not_before, 0),
	COALESCE(d.channel, ''), COALESCE(d.provider_id, ''), COALESCE(d.boot_id, ''), COALESCE(d.crashes, 0), COALESCE(d.error, ''),
	COALESCE(d.maybe_duplicate, false), COALESCE(d.created_at, 0), COALESCE(d.updated_at, 0), COALESCE(d.resolved, ''),
	COALESCE(d.parts, 0), COALESCE(d.reach, 0), COALESCE(d.run, '')`

// told is the event by which the thread was told that a delivery is dead.
const told = `COALESCE((SELECT k.event_id FROM dedupe k WHERE k.agent_id = $1 AND k.thread_id = $2 AND k.key = 'delivery:' || d.key || ':err'), 0)`

const (
	ofThread = "d.agent_id = $1 AND d.thread_id = $2"
	open     = ofThread + " AND d.state IN ('pending', 'sending')"
	dead     = "SELECT COUNT(*) FROM delivery d WHERE " + ofThread + " AND d.state = 'dead' AND d.resolved = ''"
)

// firstOpen are the events after the ack, but for $3, that are neither sent nor given
// up, whoever wrote them. What another program wrote counts where there is an outbound
// consumer: a thread without one talks to nobody. The state is asked for event by event:
// joined, the server would take the ack for any third of the thread and read it all.
const firstOpen = `SELECT e.id FROM event e WHERE e.agent_id = $1 AND e.thread_id = $2 AND e.id <> $3 AND e.type = 'message' AND e.source = '` + thread.SourceSelf + `'
		AND e.id > (SELECT t.acked FROM thread t WHERE t.agent_id = $1 AND t.thread_id = $2)
		AND COALESCE((SELECT d.state IN ('pending', 'sending') FROM delivery d WHERE ` + ofThread + ` AND d.event_id = e.id),
			EXISTS (SELECT 1 FROM subscription s WHERE s.agent_id = $1 AND s.thread_id = $2 AND s.consumer = '` + thread.Outbound + `')) ORDER BY e.id LIMIT `

// read scans columns, between what stands before and after them.
func (d *row) read(scan func(...any) error, before []any, after ...any) error {
	var created, updated int64
	err := scan(slices.Concat(before, []any{
		&d.EventID, &d.Key, &d.State, &d.Attempts, &d.notBefore, &d.Channel, &d.ProviderID, &d.bootID, &d.crashes, &d.Error,
		&d.MaybeDuplicate, &created, &updated, &d.Resolved, &d.Parts, &d.Reach, &d.run,
	}, after)...)
	d.CreatedAt, d.UpdatedAt, d.stored = store.FromMillis(created), store.FromMillis(updated), d.Key != ""
	d.wait()
	return err
}

// wait tells when a pending delivery is tried.
func (d *row) wait() {
	d.NextAt = time.Time{}
	if d.State == store.DeliveryPending {
		d.NextAt = store.FromMillis(d.notBefore)
	}
}

// save writes the row as it is now.
func (d *row) save(tx *unit.Tx) {
	d.UpdatedAt = store.FromMillis(tx.Time.UnixMilli())
	d.wait()
	if !d.stored {
		d.stored = true
		tx.Exec(`INSERT INTO delivery(agent_id, thread_id, event_id, key, state, attempts, crashes, not_before, channel, provider_id, boot_id,
			error, maybe_duplicate, created_at, updated_at, resolved, parts, reach, run) VALUES($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16,$17,$18,$19)`,
			d.EventID, d.Key, d.State, d.Attempts, d.crashes, d.notBefore, d.Channel, d.ProviderID, d.bootID,
			d.Error, d.MaybeDuplicate, store.Millis(d.CreatedAt), store.Millis(d.UpdatedAt), d.Resolved, d.Parts, d.Reach, d.run)
		return
	}
	tx.Exec(`UPDATE delivery SET state = $4, attempts = $5, crashes = $6, not_before = $7, channel = $8, provider_id = $9, boot_id = $10,
		error = $11, maybe_duplicate = $12, created_at = $13, updated_at = $14, resolved = $15, parts = $16, reach = $17
		WHERE agent_id = $1 AND thread_id = $2 AND event_id = $3`,
		d.EventID, d.State, d.Attempts, d.crashes, d.notBefore, d.Channel, d.ProviderID, d.bootID,
		d.Error, d.MaybeDuplicate, store.Millis(d.CreatedAt), store.Millis(d.UpdatedAt), d.Resolved, d.Parts, d.Reach)
}

func (d *row) isOpen() bool {
	return d.State == store.DeliveryPending || d.State == store.DeliverySending
}

// Front is where the deliveries of a thread stand while another room's step says
// something in it.
type Front struct {
	first int64 // first open event after the ack; 0: none
	head  int64
}

// Load queues the read; acks tells that something may be said that moves the ack, as
// what needs no delivery does.
func (f *Front) Load(tx *unit.Tx, acks bool) {
	const head = "COALESCE((SELECT MAX(d.event_id) FROM delivery d WHERE " + open + "), 0)"
	if acks {
		tx.One("SELECT "+head+", COALESCE(("+firstOpen+"1), 0)", []any{0}, nil, &f.head, &f.first)
	} else {
		tx.One("SELECT "+head, nil, nil, &f.head)
	}
}

// Head is the newest event that waits for delivery; 0 when none does.
func (f *Front) Head() int64 { return f.head }

// Way is how what is said in a thread leaves it: not at all, by a client that
// watches, or by a delivery that follows.
type Way struct {
	Deliver, Console bool
	BootID           string
	Run              string // key of the turn whose reply it is
}

// Put makes the row of an event that the agent said just now. A thread without
// a channel skips it, so that a channel configured later does not send what was
// said before it.
func (f *Front) Put(tx *unit.Tx, ev thread.Event, w Way) {
	state, channel := store.DeliveryPending, ""
	switch {
	case !w.Deliver:
		state = store.DeliverySkipped
	case w.Console:
		state, channel = store.DeliverySent, "console"
	}
	tx.Exec("INSERT INTO delivery(agent_id, thread_id, event_id, key, state, channel, boot_id, run, created_at, updated_at) VALUES($1,$2,$3,$4,$5,$6,$7,$8,$9,$9)",
		ev.ID, ev.DeliveryKey(tx.UUID), state, channel, w.BootID, w.Run, store.Millis(tx.Time))
	if state != store.DeliveryPending {
		advance(tx, f.first)
		return
	}
	f.head = ev.ID
	if f.first == 0 {
		f.first = ev.ID
	}
}

// advance moves the outbound ack to the end of the done prefix.
func advance(tx *unit.Tx, first int64) {
	to := first - 1
	if first == 0 {
		to = tx.Head
	}
	tx.Acked = max(tx.Acked, to)
}

// ListStep answers rows after an event id, oldest first; of one state without the
// dead letters that were resolved.
type ListStep struct {
	state string
	after int64
	limit int
	Out   []store.Delivery
}

// List makes the step.
func List(state string, after int64, limit int) *ListStep {
	return &ListStep{state: state, after: after, limit: limit}
}

// Load queues the reads.
func (s *ListStep) Load(tx *unit.Tx) {
	tx.Read("SELECT "+columns+" FROM delivery d WHERE "+ofThread+` AND d.event_id > $3 AND ($4 = '' OR d.state = $4 AND d.resolved = '')
		ORDER BY d.event_id LIMIT $5`, []any{s.after, s.state, s.limit}, func(scan func(...any) error) error {
		var d row
		err := d.read(scan, nil)
		d.Thread = tx.Ref.Thread
		s.Out = append(s.Out, d.Delivery)
		return err
	})
}

// Decide has nothing to decide.
func (s *ListStep) Decide(context.Context, *unit.Tx) error { return nil }

// Of queues the read of the delivery of an event that a SQL expression names; *out
// stays nil when it has none.
func Of(tx *unit.Tx, event string, args []any, out **store.Delivery) {
	tx.Read("SELECT "+columns+" FROM delivery d WHERE "+ofThread+" AND d.event_id = "+event, args, func(scan func(...any) error) error {
		var d row
		err := d.read(scan, nil)
		d.Thread, *out = tx.Ref.Thread, &d.Delivery
		return err
	})
}

// step is what Finish and Resolve have in common: one row, and what it leaves.
type step struct {
	id    int64
	d     row
	first int64 // first open event after the ack but for this one
	dead  int64 // without this one
	Out   store.Delivery
}

// Load queues the read.
func (s *step) Load(tx *unit.Tx) {
	tx.Read("SELECT "+columns+", "+told+", COALESCE(c.first, 0), c.dead FROM (SELECT ("+firstOpen+"1) AS first, ("+dead+` AND d.event_id <> $3) AS dead) c
		LEFT JOIN delivery d ON `+ofThread+" AND d.event_id = $3", []any{s.id}, func(scan func(...any) error) error {
		return s.d.read(scan, nil, &s.d.told, &s.first, &s.dead)
	})
}

// report answers the row and how the thread stands with it.
func (s *step) report(tx *unit.Tx) {
	first, deads := s.first, s.dead
	if s.d.isOpen() && s.id > tx.Acked && (first == 0 || s.id < first) {
		first = s.id
	}
	if s.d.State == store.DeliveryDead && s.d.Resolved == "" {
		deads++
	}
	advance(tx, first)
	s.Out = s.d.Delivery
	s.Out.Thread, s.Out.Acked, s.Out.Dead = tx.Ref.Thread, tx.Acked, deads
}

// ResolveStep retries or drops a dead delivery.
type ResolveStep struct {
	step
	how string
}

// Resolve makes the step.
func Resolve(eventID int64, how string) *ResolveStep {
	return &ResolveStep{step: step{id: eventID}, how: how}
}

// Decide queues the writes; store.ErrNoDelivery, ErrNotDead.
func (s *ResolveStep) Decide(_ context.Context, tx *unit.Tx) error {
	switch {
	case !s.d.stored:
		return store.ErrNoDelivery
	case s.d.State != store.DeliveryDead:
		return store.ErrNotDead
	}
	if s.how == "retried" {
		s.d.State, s.d.Attempts, s.d.crashes, s.d.notBefore, s.d.Resolved = store.DeliveryPending, 0, 0, 0, ""
		s.d.CreatedAt = store.FromMillis(tx.Time.UnixMilli())
	} else {
		s.d.Resolved = s.how
	}
	s.d.save(tx)
	s.report(tx)
	return nil
}
