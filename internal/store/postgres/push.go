package postgres

import (
	"context"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/journal"
	"github.com/theclaw/agents/internal/store/postgres/unit"
	"github.com/theclaw/agents/internal/thread"
)

// Append commits events (T0).
func (e *Engine) Append(ctx context.Context, r store.Ref, events []store.NewEvent, o store.AppendOptions) (store.Appended, error) {
	if len(events) == 0 {
		return store.Appended{}, nil
	}
	s := &pushStep{events: events, o: o, inbox: r.IsInbox()}
	if err := e.unit.Do(ctx, r, o.Fence, s); err != nil {
		return store.Appended{}, err
	}
	return s.out, nil
}

// A push is remembered by its first event, and by its last when it has several.
const (
	firstOf = "push:"
	lastOf  = "push-end:"
)

type pushStep struct {
	events []store.NewEvent
	o      store.AppendOptions
	inbox  bool
	first  int64 // of the push that had the key before
	out    store.Appended
}

func (s *pushStep) Load(tx *unit.Tx) {
	if s.o.Key != "" {
		tx.Deduped(firstOf+s.o.Key, &s.first)
	}
}

func (s *pushStep) Decide(ctx context.Context, tx *unit.Tx) error {
	if s.first != 0 {
		return s.repeated(ctx, tx)
	}
	if err := s.checkDepth(ctx, tx); err != nil {
		return err
	}
	for _, n := range s.events {
		s.add(tx, tx.Insert(n))
	}
	if s.o.Key == "" {
		return nil
	}
	tx.Dedupe(firstOf+s.o.Key, s.out.IDs[0], 0)
	if len(s.events) > 1 {
		tx.Dedupe(lastOf+s.o.Key, s.out.IDs[len(s.events)-1], 0)
	}
	return nil
}

// repeated answers the ids of the first push under a key. A push under the same key
// that says something else is a mistake of the caller, told and not stored.
func (s *pushStep) repeated(ctx context.Context, tx *unit.Tx) error {
	last := s.first
	if err := tx.Now(ctx, unit.Deduped, []any{lastOf + s.o.Key}, func(scan func(...any) error) error { return scan(&last) }); err != nil {
		return err
	}
	if last-s.first+1 != int64(len(s.events)) { // one transaction gives consecutive ids
		return store.ErrKeyReused
	}
	s.out.Duplicate = true
	var old []thread.Event
	if err := tx.Now(ctx, "SELECT "+unit.Columns+" FROM event WHERE agent_id = $1 AND thread_id = $2 AND id >= $3 ORDER BY id LIMIT $4",
		[]any{s.first, len(s.events)}, func(scan func(...any) error) error {
			ev, err := unit.Scan(scan)
			old = append(old, ev)
			return err
		}); err != nil {
		return err
	}
	for i, n := range s.events {
		if i >= len(old) || !same(old[i], n) {
			return store.ErrKeyReused
		}
		s.add(tx, old[i])
	}
	return nil
}

// add notes an event that is stored.
func (s *pushStep) add(tx *unit.Tx, e thread.Event) {
	if len(s.out.IDs) == 0 {
		s.out.At = thread.ParseStamp(e.CreatedAt)
	}
	s.out.IDs = append(s.out.IDs, e.ID)
	if s.inbox {
		s.out.Keys = append(s.out.Keys, e.Key(tx.UUID))
	}
}

func same(ev thread.Event, n store.NewEvent) bool {
	return ev.Source == n.Source && ev.Type == n.Type && ev.Content == n.Content &&
		(ev.Subtype == nil) == (n.Subtype == nil) && (n.Subtype == nil || *n.Subtype == *ev.Subtype)
}

// checkDepth refuses a push to a full inbox. Counting is only needed when the bound is
// near: no more events wait than there are ids after the ack.
func (s *pushStep) checkDepth(ctx context.Context, tx *unit.Tx) error {
	for _, bound := range []struct {
		most   int64
		source string
		over   error
	}{{s.o.MaxPending, "", store.ErrInboxFull}, {s.o.MaxPerPeer, s.events[0].Source, store.ErrPeerFull}} {
		if bound.most <= 0 || tx.Head-tx.Acked < bound.most {
			continue
		}
		full, err := journal.Full(ctx, tx, bound.source, bound.most)
		if err != nil {
			return err
		}
		if full {
			return bound.over
		}
	}
	return nil
}
