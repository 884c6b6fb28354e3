package inbox

import (
	"context"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/unit"
	"github.com/theclaw/agents/internal/thread"
)

// encoding is the version of the thread id encoding, kept with each route.
const encoding = 1

// MaxAhead is how many open events beyond the ack may have been begun.
const MaxAhead = 1024

// routes are the routing modes of an inbox, by the first event each holds for.
type routes []struct {
	from int64
	mode string
}

func (r *routes) load(tx *unit.Tx) {
	tx.Read("SELECT from_id, mode FROM route WHERE agent_id = $1 AND thread_id = $2 ORDER BY from_id", nil, func(scan func(...any) error) error {
		var one struct {
			from int64
			mode string
		}
		err := scan(&one.from, &one.mode)
		*r = append(*r, one)
		return err
	})
}

// at is the mode of an event: the newest written for an id up to it.
func (r routes) at(id int64) string {
	mode := ""
	for _, one := range r {
		if one.from <= id {
			mode = one.mode
		}
	}
	return mode
}

func (r routes) newest() string {
	if len(r) == 0 {
		return ""
	}
	return r[len(r)-1].mode
}

// change makes mode hold from an event on, and forgets what was to hold from there.
func (r *routes) change(tx *unit.Tx, from int64, mode string) {
	kept := routes{}
	for _, one := range *r {
		if one.from < from {
			kept = append(kept, one)
		}
	}
	*r = append(kept, struct {
		from int64
		mode string
	}{from, mode})
	tx.Exec("DELETE FROM route WHERE agent_id = $1 AND thread_id = $2 AND from_id >= $3", from)
	tx.Exec("INSERT INTO route(agent_id, thread_id, from_id, mode, encoding) VALUES($1,$2,$3,$4,$5)", from, mode, encoding)
}

// Begun is what OpenStep must know when the routing mode has changed: the event after
// the last that was begun under an earlier mode, as found while Mode was the newest.
type Begun struct {
	Mode string
	From int64
}

// OpenStep answers events that have no fate, with their routes; events that can have no
// turn get their fate here.
type OpenStep struct {
	o      store.OpenBatch
	begun  *Begun
	routes routes
	events []thread.Event
	more   bool
	Out    store.Batch
	// Ask is the mode under which open events may have been begun; it must be known
	// which before the batch can be opened under another. Empty: it is open.
	Ask string
}

// Open is a step. With no begun it may ask for it; then only the seal is written.
func Open(o store.OpenBatch, begun *Begun) *OpenStep { return &OpenStep{o: o, begun: begun} }

// Load reads the modes and the events.
func (s *OpenStep) Load(tx *unit.Tx) {
	s.routes.load(tx)
	tx.Page(unit.Page{Where: "id > GREATEST($3, " + behind + ") AND " + open, Args: []any{s.o.After}, Limit: s.o.Limit, Budget: thread.MaxAnswer}, &s.events, &s.more)
}

// Decide routes them.
func (s *OpenStep) Decide(ctx context.Context, tx *unit.Tx) error {
	b := &s.Out
	b.Head, b.Scanned, b.More, b.Acked = tx.Head, tx.Head, s.more, tx.Acked
	if s.o.IfStarted && tx.Desired != unit.Started {
		b.Scanned, b.More = s.o.After, false // what waits now is read after its start
		return nil
	}
	switch now := s.routes.newest(); {
	case len(s.routes) == 0:
		s.routes.change(tx, 1, s.o.Mode)
	case now == s.o.Mode:
	case s.begun == nil || s.begun.Mode != now:
		s.Ask = now
		return nil
	default:
		s.routes.change(tx, max(s.begun.From, tx.Acked+1), s.o.Mode)
	}
	var settled []int64
	for _, ev := range s.events {
		if s.more {
			b.Scanned = ev.ID
		}
		key := ev.Key(tx.UUID)
		id, fate, why := "", store.FateNotAMessage, ""
		if ev.Type == thread.TypeMessage {
			var problem error
			if id, problem = s.o.Route(ev, s.routes.at(ev.ID)); problem == nil {
				b.Events = append(b.Events, store.Pending{Event: ev, Key: key, Thread: id})
				continue
			}
			id, fate, why = "", store.FateDead, problem.Error()
		}
		settled = append(settled, ev.ID)
		put(tx, store.Settlement{InboxID: ev.ID, Key: key, Thread: id, Fate: fate, Error: why})
	}
	if b.Settled = len(settled); b.Settled == 0 {
		return nil
	}
	err := firstOpen(ctx, tx, settled)
	b.Acked = tx.Acked
	return err
}

// AheadStep answers the open events that may have been begun, with their modes.
type AheadStep struct {
	after  int64
	limit  int
	routes routes
	events []thread.Event
	Out    []Claim
	More   bool // there are events behind them
}

// Claim is an open event and the mode it would have been begun under.
type Claim struct {
	Event     thread.Event
	Key, Mode string
}

// Ahead is a view of some after an id, or after the ack when that is greater.
func Ahead(after int64, limit int) *AheadStep { return &AheadStep{after: after, limit: limit} }

// Load reads them, as many as fit one answer.
func (s *AheadStep) Load(tx *unit.Tx) {
	s.routes.load(tx)
	tx.Page(unit.Page{Where: "id > GREATEST($3, " + behind + ") AND " + open, Args: []any{s.after}, Limit: s.limit, Budget: thread.MaxAnswer}, &s.events, &s.More)
}

// Decide puts them together.
func (s *AheadStep) Decide(_ context.Context, tx *unit.Tx) error {
	for _, ev := range s.events {
		s.Out = append(s.Out, Claim{ev, ev.Key(tx.UUID), s.routes.at(ev.ID)})
	}
	return nil
}

// SettleStep gives an inbox event its fate and moves the ack (T8).
type SettleStep struct {
	s      store.Settlement
	first  int64 // event without a fate, the settled ones left out; 0: none
	merged int   // how many others were known to be settled when it was read
	Out    int64 // the ack
}

// Settle is a step.
func Settle(s store.Settlement) *SettleStep { return &SettleStep{s: s} }

// As says how the event is settled when that is not known before Load; the event itself
// must be.
func (s *SettleStep) As(how store.Settlement) { s.s = how }

// ids are the events that are settled.
func (s *SettleStep) ids() []int64 {
	out := []int64{s.s.InboxID}
	for _, m := range s.s.Merged {
		out = append(out, m.InboxID)
	}
	return out
}

// Lazy says that it waits for no disk: a turn that has its end and no fate here is settled again.
func (s *SettleStep) Lazy() bool { return true }

// firstOpenSQL finds the first event after the ack without a fate, but for those that
// get theirs in this transaction.
const firstOpenSQL = "SELECT id FROM event e WHERE agent_id = $1 AND thread_id = $2 AND id > " + behind + " AND id <> ALL($3::bigint[]) AND " + open + " ORDER BY id LIMIT 1"

// Load reads how far all would have a fate.
func (s *SettleStep) Load(tx *unit.Tx) {
	s.merged = len(s.s.Merged)
	tx.One(firstOpenSQL, []any{s.ids()}, nil, &s.first)
}

// Decide writes the fates.
func (s *SettleStep) Decide(ctx context.Context, tx *unit.Tx) error {
	put(tx, s.s)
	for _, m := range s.s.Merged {
		put(tx, store.Settlement{InboxID: m.InboxID, Key: m.Key, Thread: s.s.Thread, Fate: store.FateMerged})
	}
	if s.s.OutboxHead > 0 {
		tx.Exec(`INSERT INTO outbox AS o (agent_id, thread_id, thread, head) VALUES($1,$2,$3,$4)
			ON CONFLICT (agent_id, thread_id, thread) DO UPDATE SET head = GREATEST(o.head, excluded.head)`, s.s.Thread, s.s.OutboxHead)
	}
	if len(s.s.Merged) == s.merged {
		advance(tx, s.first)
	} else if err := firstOpen(ctx, tx, s.ids()); err != nil {
		return err
	}
	s.Out = tx.Acked
	return nil
}

// put queues a fate; the first one stays.
func put(tx *unit.Tx, s store.Settlement) {
	why := ""
	if s.Fate == store.FateDead {
		why = s.Error
	}
	tx.Exec(`INSERT INTO fate(agent_id, thread_id, inbox_id, key, thread, fate, at, error) VALUES($1,$2,$3,$4,$5,$6,$7,$8)
		ON CONFLICT (agent_id, thread_id, inbox_id) DO NOTHING`, s.InboxID, s.Key, s.Thread, string(s.Fate), store.Millis(tx.Time), why)
}

func firstOpen(ctx context.Context, tx *unit.Tx, settled []int64) error {
	var first int64
	err := tx.Now(ctx, firstOpenSQL, []any{settled}, func(scan func(...any) error) error { return scan(&first) })
	if err == nil {
		advance(tx, first)
	}
	return err
}

// advance moves the ack to the end of the contiguous done prefix: before the first open
// event, or to the head when there is none.
func advance(tx *unit.Tx, first int64) {
	to := tx.Head
	if first > 0 {
		to = first - 1
	}
	tx.Acked = max(tx.Acked, to)
}
