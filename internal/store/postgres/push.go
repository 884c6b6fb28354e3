package postgres

import (
	"context"
	"fmt"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/home"
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
	newest int64 // state of the bindings
	held   bool  // the lease of the reader
	out    store.Appended
}

func (s *pushStep) Load(tx *unit.Tx) {
	if s.o.Key != "" {
		tx.Deduped(firstOf+s.o.Key, &s.first)
	}
	if s.o.Reader != nil {
		tx.Held(*s.o.Reader, &s.held)
	}
	if s.o.Revision != 0 {
		tx.ReadRaw(home.HoldRevision, nil, func(func(...any) error) error { return nil })
		tx.ReadRaw(home.NewestRevision, nil, func(scan func(...any) error) error { return scan(&s.newest) })
	}
}

func (s *pushStep) Decide(ctx context.Context, tx *unit.Tx) error {
	if s.o.Reader != nil && !s.held {
		return unit.Lost(*s.o.Reader)
	}
	if s.first != 0 {
		return s.repeated(ctx, tx)
	}
	if s.newest > s.o.Revision {
		return fmt.Errorf("push to %s by state %d of the bindings, the newest is %d: %w", tx.Ref, s.o.Revision, s.newest, store.ErrRevision)
	}
	if err := s.checkDepth(ctx, tx); err != nil {
		return err
	}
	for _, n := range s.events {
		e := journal.Stored{Event: tx.Insert(n)}
		if s.inbox {
			e.Key = e.Event.Key(tx.UUID)
			if n.Origin != nil {
				e.Origin = journal.SaveOrigin(tx, e.ID, *n.Origin)
			}
		}
		add(&s.out, e, s.inbox)
	}
	if s.o.Key == "" {
		return nil
	}
	tx.Dedupe(firstOf+s.o.Key, s.out.IDs[0], 0)
	for _, key := range s.o.PartKeys {
		tx.DedupeNew(firstOf+key, s.out.IDs[0])
	}
	if len(s.events) > 1 {
		tx.Dedupe(lastOf+s.o.Key, s.out.IDs[len(s.events)-1], 0)
	}
	return nil
}

// repeated answers what the first push under a key did, whatever the bindings are now. A push
// under the same key that says something else is a mistake of the caller: it is refused. Where
// a repeat would go is no such mistake, the first stands.
func (s *pushStep) repeated(ctx context.Context, tx *unit.Tx) error {
	old := &pushedStep{key: s.o.Key}
	if err := tx.Again(ctx, func() { old.Load(tx) }); err != nil {
		return err
	}
	if len(old.events) != len(s.events) {
		return store.ErrKeyReused
	}
	for i, n := range s.events {
		if !same(old.events[i].Event, n) {
			return store.ErrKeyReused
		}
	}
	if err := old.Decide(ctx, tx); err != nil {
		return err
	}
	s.out = old.out
	return nil
}

// Pushed answers what the push under a key did, as a repeat of it would.
func (e *Engine) Pushed(ctx context.Context, r store.Ref, key string) (store.Appended, bool, error) {
	if key == "" {
		return store.Appended{}, false, nil
	}
	s := &pushedStep{key: key}
	if err := e.view(ctx, r, s); err != nil {
		if absent(err) {
			err = nil
		}
		return store.Appended{}, false, err
	}
	return s.out, len(s.events) > 0, nil
}

// pushedStep answers what the push under a key did.
type pushedStep struct {
	key    string
	events []journal.Stored
	out    store.Appended
}

// Load reads the events: one transaction gave them consecutive ids.
func (s *pushedStep) Load(tx *unit.Tx) {
	const first = "(SELECT event_id FROM dedupe WHERE agent_id = $1 AND thread_id = $2 AND key = $3)"
	const last = "COALESCE((SELECT event_id FROM dedupe WHERE agent_id = $1 AND thread_id = $2 AND key = $4), " + first + ")"
	journal.LoadStored(tx, first, last, []any{firstOf + s.key, lastOf + s.key}, &s.events)
}

func (s *pushedStep) Decide(_ context.Context, tx *unit.Tx) error {
	s.out.Duplicate = true
	for _, e := range s.events {
		add(&s.out, e, tx.IsInbox())
	}
	return nil
}

// add notes an event that is stored.
func add(out *store.Appended, e journal.Stored, inbox bool) {
	if len(out.IDs) == 0 {
		out.At = thread.ParseStamp(e.CreatedAt)
	}
	out.IDs = append(out.IDs, e.ID)
	if inbox {
		out.Keys, out.Origins = append(out.Keys, e.Key), append(out.Origins, e.Origin)
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
