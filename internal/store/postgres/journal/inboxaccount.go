package journal

import (
	"context"
	"math"
	"strconv"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/machine"
	"github.com/theclaw/agents/internal/store/postgres/unit"
	"github.com/theclaw/agents/internal/thread"
)

// EventStep answers one inbox event and its key; store.ErrNoTurn.
type EventStep struct {
	id    int64
	found bool
	Out   thread.Event
	Key   string
}

// Event is a view.
func Event(id int64) *EventStep { return &EventStep{id: id} }

// Load reads it.
func (s *EventStep) Load(tx *unit.Tx) {
	e := &s.Out
	tx.One("SELECT "+unit.Columns+", COALESCE(erased_key, '') FROM event WHERE agent_id = $1 AND thread_id = $2 AND id = $3", []any{s.id}, &s.found,
		&e.ID, &e.CreatedAt, &e.Source, &e.Type, &e.Subtype, &e.Content, &s.Key)
}

// Decide names it; one that was erased keeps the key that was made of its content.
func (s *EventStep) Decide(_ context.Context, tx *unit.Tx) error {
	if !s.found {
		return store.ErrNoTurn
	}
	if s.Key == "" {
		s.Key = s.Out.Key(tx.UUID)
	}
	return nil
}

// fateRow is the fate of an event; its InboxID is 0 when there is none.
type fateRow struct {
	machine.Fate
	resolved string
}

func (f *fateRow) load(tx *unit.Tx, id int64) {
	tx.Read("SELECT inbox_id, thread, fate, at, error, resolved FROM fate WHERE agent_id = $1 AND thread_id = $2 AND inbox_id = $3", []any{id}, func(scan func(...any) error) error {
		var fate string
		err := scan(&f.InboxID, &f.Thread, &fate, &f.At, &f.Error, &f.resolved)
		f.Fate.Fate = store.Fate(fate)
		return err
	})
}

// TurnStep answers what the inbox knows of an event. Its thread is the one that its fate
// or its origin names, or where it will go; empty when none of these is known.
type TurnStep struct {
	event *EventStep
	q     store.TurnQuery
	fate  fateRow
	in    machine.Inbox
	Out   store.Turn
}

// Turn is a view.
func Turn(q store.TurnQuery) *TurnStep { return &TurnStep{event: Event(q.InboxID), q: q} }

// Load reads it.
func (s *TurnStep) Load(tx *unit.Tx) {
	s.event.Load(tx)
	s.fate.load(tx, s.q.InboxID)
	loadOrigin(tx, s.q.InboxID, &s.Out.Origin)
	loadRoutes(tx, &s.in.Routes)
}

// Decide puts it together.
func (s *TurnStep) Decide(ctx context.Context, tx *unit.Tx) error {
	t := &s.Out
	*t = store.Turn{Agent: tx.Agent, InboxID: s.q.InboxID, State: store.TurnQueued, Origin: t.Origin}
	if err := s.event.Decide(ctx, tx); err != nil {
		return err
	}
	ev, key := s.event.Out, s.event.Key
	if s.q.Key != "" && s.q.Key != key {
		return store.ErrNoTurn
	}
	t.Key, t.Source, t.QueuedAt = key, ev.Source, thread.ParseStamp(ev.CreatedAt)
	if s.fate.InboxID != 0 {
		machine.SettleAccount(t, s.fate.Fate, s.fate.resolved)
		return nil
	}
	mode := s.in.ModeAt(ev.ID)
	switch {
	case ev.Type != thread.TypeMessage:
		return nil
	case t.Origin != nil:
		t.Thread = t.Origin.Thread
		return nil
	case mode == "":
		return nil
	}
	if id, err := s.q.Route(ev, mode); err == nil { // else it is dead when a batch opens
		t.Thread = id
	}
	return nil
}

// TurnsStep answers events with their fates, newest first.
type TurnsStep struct {
	q   store.ListTurns
	Out []store.Turn
}

// Turns is a view.
func Turns(q store.ListTurns) *TurnsStep { return &TurnsStep{q: q} }

// Load reads them. An event with a fate is named by the key it was settled under, so
// that its content stays where it is.
func (s *TurnsStep) Load(tx *unit.Tx) {
	if s.q.Before <= 0 {
		s.q.Before = math.MaxInt64
	}
	join, where, args := "LEFT JOIN", "", []any{s.q.Before}
	if s.q.Fate == store.FateDead { // few rows among many: they have an index
		join, where = "JOIN", " AND f.fate = 'dead'"
	} else if s.q.Fate != store.FateNone {
		join, where, args = "JOIN", " AND f.fate = $4", append(args, string(s.q.Fate))
	}
	if s.q.Unresolved {
		where += " AND COALESCE(f.resolved, '') = ''"
	}
	sql := `SELECT e.id, e.created_at, e.source, e.type, e.subtype, CASE WHEN f.inbox_id IS NULL THEN e.content ELSE '' END,
		COALESCE(f.key, ''), COALESCE(f.thread, ''), COALESCE(f.fate, ''), COALESCE(f.at, 0), COALESCE(f.error, ''), COALESCE(f.resolved, ''),
		CASE WHEN f.inbox_id IS NULL AND e.type = '` + thread.TypeMessage + `' THEN COALESCE((SELECT o.thread FROM origin o WHERE o.agent_id = $1 AND o.inbox_id = e.id), '') ELSE '' END
		FROM event e ` + join + ` fate f ON f.agent_id = $1 AND f.thread_id = $2 AND f.inbox_id = e.id
		WHERE e.agent_id = $1 AND e.thread_id = $2 AND e.id < $3` + where + " ORDER BY e.id DESC LIMIT $" + strconv.Itoa(len(args)+3)
	tx.Read(sql, append(args, s.q.Limit), func(scan func(...any) error) error {
		t := store.Turn{Agent: tx.Agent, State: store.TurnQueued}
		var ev thread.Event
		var f machine.Fate
		var fate, resolved string
		if err := scan(&ev.ID, &ev.CreatedAt, &ev.Source, &ev.Type, &ev.Subtype, &ev.Content, &t.Key, &f.Thread, &fate, &f.At, &f.Error, &resolved, &t.Thread); err != nil {
			return err
		}
		t.InboxID, t.Source, t.QueuedAt = ev.ID, ev.Source, thread.ParseStamp(ev.CreatedAt)
		if f.Fate = store.Fate(fate); f.Fate != store.FateNone {
			machine.SettleAccount(&t, f, resolved)
		} else {
			t.Key = ev.Key(tx.UUID) // the thread's row was read before
		}
		s.Out = append(s.Out, t)
		return nil
	})
}

// Decide has nothing left to do.
func (s *TurnsStep) Decide(context.Context, *unit.Tx) error { return nil }

// ResolveStep takes a dead turn off the dead letters; repeated, it answers the same.
type ResolveStep struct {
	EventStep
	how  string
	fate fateRow
}

// Resolve is a step; store.ErrNoTurn, ErrNotDead.
func Resolve(id int64, how string) *ResolveStep {
	return &ResolveStep{EventStep: EventStep{id: id}, how: how}
}

// Load reads the event and its fate.
func (s *ResolveStep) Load(tx *unit.Tx) {
	s.EventStep.Load(tx)
	s.fate.load(tx, s.id)
}

// Decide resolves it.
func (s *ResolveStep) Decide(ctx context.Context, tx *unit.Tx) error {
	if err := s.EventStep.Decide(ctx, tx); err != nil {
		return err
	}
	if s.fate.Fate.Fate != store.FateDead || (s.fate.resolved != "" && s.fate.resolved != s.how) {
		return store.ErrNotDead
	}
	tx.Exec("UPDATE fate SET resolved = $4 WHERE agent_id = $1 AND thread_id = $2 AND inbox_id = $3", s.id, s.how)
	return nil
}
