package journal

import (
	"context"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/machine"
	"github.com/theclaw/agents/internal/store/postgres/unit"
	"github.com/theclaw/agents/internal/thread"
)

// encoding is the version of the thread id encoding, kept with each route.
const encoding = 1

// loadRoutes reads the routing modes of an inbox.
func loadRoutes(tx *unit.Tx, out *[]machine.Route) {
	tx.Read("SELECT from_id, mode FROM route WHERE agent_id = $1 AND thread_id = $2 ORDER BY from_id", nil, func(scan func(...any) error) error {
		var r machine.Route
		err := scan(&r.From, &r.Mode)
		*out = append(*out, r)
		return err
	})
}

// loadOpen reads events after an id, or after the ack when that is greater, that have no
// fate and for which where holds, as many as fit one answer.
func loadOpen(tx *unit.Tx, in *machine.Inbox, where string, after int64, limit int) {
	in.Origins = map[int64]*store.Origin{}
	tx.Page(unit.Page{
		Where: "id > GREATEST($3, " + behind + ") AND " + open + where, Args: []any{after}, Limit: limit, Budget: thread.MaxAnswer,
		With: withOrigins(in.Origins),
	}, &in.Open, &in.More)
}

// beginInbox enters what the transaction holds of the inbox.
func beginInbox(tx *unit.Tx, in *machine.Inbox) {
	in.UUID, in.Head, in.Acked, in.Now, in.Stopped = tx.UUID, tx.Head, tx.Acked, tx.Time, tx.Desired != unit.Started
}

// OpenStep answers events that have no fate, with their routes; events that can have no
// turn get their fate here.
type OpenStep struct {
	o     store.OpenBatch
	begun *machine.Begun
	lost  []store.Process
	in    machine.Inbox
	Out   store.Batch
	// Ask is the mode under which open events may have been begun; it must be known
	// which before the batch can be opened under another. Empty: it is open.
	Ask string
}

// Open is a step. With no begun it may ask for it; then only the seal is written.
func Open(o store.OpenBatch, begun *machine.Begun) *OpenStep { return &OpenStep{o: o, begun: begun} }

// Load reads the modes and the events.
func (s *OpenStep) Load(tx *unit.Tx) {
	s.in = machine.Inbox{}
	s.lost = nil
	loadLost(tx, &s.lost)
	loadRunning(tx, &s.in.Running)
	loadRoutes(tx, &s.in.Routes)
	loadOpen(tx, &s.in, "", s.o.After, s.o.Limit)
}

// Decide gives up the processes of older leases and routes the events; those at the end of these
// processes are read next.
func (s *OpenStep) Decide(ctx context.Context, tx *unit.Tx) error {
	in := &s.in
	beginInbox(tx, in) // with the head before these events
	if len(s.lost) > 0 {
		in.More = true
		in.Running = false // one lease is older than the next: none of them runs
		lose(tx, s.lost)
	}
	s.Out, s.Ask = machine.Open(in, s.o, s.begun)
	if r := in.Changed; r != nil {
		tx.Exec("DELETE FROM route WHERE agent_id = $1 AND thread_id = $2 AND from_id >= $3", r.From)
		tx.Exec("INSERT INTO route(agent_id, thread_id, from_id, mode, encoding) VALUES($1,$2,$3,$4,$5)", r.From, r.Mode, encoding)
	}
	if len(in.Fates) == 0 && len(s.lost) == 0 && !in.Caught(s.o) {
		return nil
	}
	if err := readFirstOpen(ctx, tx, in); err != nil {
		return err
	}
	s.Out.Acked = saveInbox(tx, in)
	return nil
}

// AheadStep answers the open events that may have been begun under another mode, with their
// modes: those without an origin.
type AheadStep struct {
	after int64
	limit int
	in    machine.Inbox
	Out   []Claim
	More  bool // there are events behind them
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
	loadRoutes(tx, &s.in.Routes)
	loadOpen(tx, &s.in, " AND NOT "+hasOrigin, s.after, s.limit)
}

// Decide puts them together.
func (s *AheadStep) Decide(_ context.Context, tx *unit.Tx) error {
	s.More = s.in.More
	for _, e := range s.in.Open {
		s.Out = append(s.Out, Claim{e, e.Key(tx.UUID), s.in.ModeAt(e.ID)})
	}
	return nil
}

// SettleStep gives an inbox event its fate and moves the ack (T8).
type SettleStep struct {
	s     store.Settlement
	in    machine.Inbox
	known int   // how many events were known to be settled when FirstOpen was read
	Out   int64 // the ack
}

// Settle is a step.
func Settle(s store.Settlement) *SettleStep { return &SettleStep{s: s} }

// As says how the event is settled when that is not known before Load; the event itself
// must be.
func (s *SettleStep) As(how store.Settlement) { s.s = how }

// Lazy says that it waits for no disk: a turn that has its end and no fate here is settled again.
func (s *SettleStep) Lazy() bool { return true }

// firstWithout finds the first event after the ack without a fate, but for those that
// get theirs in this transaction.
const firstWithout = "SELECT id FROM event e WHERE agent_id = $1 AND thread_id = $2 AND id > " + behind + " AND id <> ALL($3::bigint[]) AND " + open + " ORDER BY id LIMIT 1"

// Load reads how far all would have a fate.
func (s *SettleStep) Load(tx *unit.Tx) {
	s.in = machine.Inbox{}
	ids := []int64{s.s.InboxID}
	for _, m := range s.s.Merged {
		ids = append(ids, m.InboxID)
	}
	s.known = len(ids)
	loadRunning(tx, &s.in.Running)
	tx.One(firstWithout, []any{ids}, nil, &s.in.FirstOpen)
}

// Decide writes the fates.
func (s *SettleStep) Decide(ctx context.Context, tx *unit.Tx) error {
	beginInbox(tx, &s.in)
	machine.Settle(&s.in, s.s)
	if len(s.in.Fates) != s.known {
		if err := readFirstOpen(ctx, tx, &s.in); err != nil {
			return err
		}
	}
	s.Out = saveInbox(tx, &s.in)
	return nil
}

// readFirstOpen reads it at once, in a trip of its own.
func readFirstOpen(ctx context.Context, tx *unit.Tx, in *machine.Inbox) error {
	in.FirstOpen = 0
	return tx.Now(ctx, firstWithout, []any{in.Settled()}, func(scan func(...any) error) error { return scan(&in.FirstOpen) })
}

// saveInbox queues the fates and moves the ack.
func saveInbox(tx *unit.Tx, in *machine.Inbox) (acked int64) {
	for _, f := range in.Fates {
		tx.Exec(`INSERT INTO fate(agent_id, thread_id, inbox_id, key, thread, fate, at, error) VALUES($1,$2,$3,$4,$5,$6,$7,$8)
			ON CONFLICT (agent_id, thread_id, inbox_id) DO NOTHING`, f.InboxID, f.Key, f.Thread, string(f.Fate), f.At, f.Error)
	}
	if in.OutboxHead > 0 {
		tx.Exec(`INSERT INTO outbox AS o (agent_id, thread_id, thread, head) VALUES($1,$2,$3,$4)
			ON CONFLICT (agent_id, thread_id, thread) DO UPDATE SET head = GREATEST(o.head, excluded.head)`, in.OutboxThread, in.OutboxHead)
	}
	tx.Acked = machine.Advance(in)
	return tx.Acked
}
