package oracle

import (
	"context"
	"slices"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// route is a row of x_route.
type route struct {
	from int64
	mode string
}

// fate is a row of x_fate, with that of x_dead when it is dead.
type fate struct {
	fate     store.Fate
	key      string
	thread   string
	err      string
	at       time.Time
	resolved string
}

// outbox is how far a thread's deliveries are known to the inbox.
type outbox struct {
	head, acked, dead int64
	reopened          bool
}

// mode is that of the route with the greatest from <= id (RELIABILITY 2, x_route).
func (m *Model) mode(id int64) string {
	mode := ""
	for _, r := range m.routes {
		if r.from <= id {
			mode = r.mode
		}
	}
	return mode
}

// settled gives an event its fate, once, and moves the ack to the end of the done prefix.
func (m *Model) settled(id int64, f fate) {
	if m.fates[id] != nil {
		return
	}
	if f.fate != store.FateDead {
		f.err = ""
	}
	f.at = m.now()
	m.fates[id] = &f
	for m.fates[m.acked+1] != nil {
		m.acked++
	}
	if s := m.inbox.sub(thread.Inbox); s != nil {
		s.Acked = m.acked // the mirror
	}
}

// OpenBatch answers the events without a fate after the ack, and settles those that can
// have no turn.
func (m *Model) OpenBatch(ctx context.Context, _ string, f store.Fence, o store.OpenBatch) (store.Batch, error) {
	if err := m.inbox.fence(f); err != nil {
		return store.Batch{}, err
	}
	if err := m.changeMode(ctx, o); err != nil {
		return store.Batch{}, err
	}
	m.inbox.seal(f)
	var list []thread.Event
	for _, e := range m.inbox.events {
		if e.ID > max(o.After, m.acked) && m.fates[e.ID] == nil {
			list = append(list, e)
		}
	}
	out := store.Batch{Scanned: max(m.inbox.head(), o.After)}
	if len(list) > o.Limit {
		list = list[:o.Limit]
		out.More, out.Scanned = true, list[o.Limit-1].ID
	}
	for _, e := range list {
		if e.Type != thread.TypeMessage {
			m.settled(e.ID, fate{fate: store.FateNotAMessage, key: m.key(e.ID)})
			out.Settled++
			continue
		}
		if origin := m.origins[e.ID]; origin != nil { // the route is fixed with the push
			out.Events = append(out.Events, store.Pending{Event: e, Key: m.key(e.ID), Thread: origin.Thread, Origin: origin})
			continue
		}
		id, problem := o.Route(e, m.mode(e.ID))
		if problem != nil {
			m.settled(e.ID, fate{fate: store.FateDead, key: m.key(e.ID), err: problem.Error()})
			out.Settled++
			continue
		}
		out.Events = append(out.Events, store.Pending{Event: e, Key: m.key(e.ID), Thread: id})
	}
	out.Head, out.Acked = m.inbox.head(), m.acked
	return out, nil
}

// changeMode writes a new mode with the first id it applies to: behind the last event that
// has a turn under an earlier mode.
func (m *Model) changeMode(ctx context.Context, o store.OpenBatch) error {
	if len(m.routes) > 0 && m.routes[len(m.routes)-1].mode == o.Mode {
		return nil
	}
	from := m.acked + 1
	for id := from; id <= m.inbox.head() && len(m.routes) > 0; id++ {
		if m.fates[id] != nil || m.origins[id] != nil {
			continue
		}
		claimed, err := o.Claimed(ctx, m.inbox.events[id-1], m.key(id), m.mode(id))
		if err != nil {
			return err
		}
		if claimed {
			from = id + 1
		}
	}
	m.routes = slices.DeleteFunc(m.routes, func(r route) bool { return r.from >= from })
	if m.mode(from) != o.Mode {
		m.routes = append(m.routes, route{from, o.Mode})
	}
	return nil
}

// Settle is T8.
func (m *Model) Settle(_ context.Context, _ string, f store.Fence, s store.Settlement) (int64, error) {
	if err := m.inbox.fence(f); err != nil {
		return 0, err
	}
	m.inbox.seal(f)
	m.settled(s.InboxID, fate{fate: s.Fate, key: s.Key, thread: s.Thread, err: s.Error})
	for _, o := range s.Merged {
		m.settled(o.InboxID, fate{fate: store.FateMerged, key: o.Key, thread: s.Thread})
	}
	if s.OutboxHead > 0 {
		k := m.mark(s.Thread)
		k.head = max(k.head, s.OutboxHead)
	}
	return m.acked, nil
}

func (m *Model) mark(id string) *outbox {
	if m.outbox[id] == nil {
		m.outbox[id] = &outbox{}
	}
	return m.outbox[id]
}

// MarkOutbox notes how far the deliveries of a thread are.
func (m *Model) MarkOutbox(_ context.Context, _ string, o store.OutboxMark) error {
	k := m.mark(o.Thread)
	if k.dead = o.Dead; o.Acked >= k.acked { // late news closes nothing: not in RELIABILITY
		k.acked, k.reopened = o.Acked, false
	}
	k.reopened = k.reopened || o.Reopen
	return nil
}

// State answers what dispatch must know.
func (m *Model) State(context.Context, string) (store.InboxState, error) {
	out := store.InboxState{
		Undecided: true, // no call of the matrix starts or stops the agent
		UUID:      m.inbox.uuid, Head: m.inbox.head(), Acked: m.acked, Subscribed: m.inbox.sub(thread.Inbox) != nil, Fences: m.inbox.fences,
	}
	for _, e := range m.inbox.events {
		out.LastAt = e.CreatedAt
		if m.fates[e.ID] == nil {
			out.Pending++
		}
	}
	for _, f := range m.fates {
		if f.fate == store.FateDead && f.resolved == "" {
			out.Dead++
		}
	}
	for id, k := range m.outbox {
		out.Dead += k.dead
		if k.head > k.acked || k.reopened {
			out.Outbox = append(out.Outbox, id)
		}
	}
	slices.Sort(out.Outbox)
	return out, nil
}

// InboxEvent answers an event and its key.
func (m *Model) InboxEvent(_ context.Context, _ string, id int64) (thread.Event, string, error) {
	if id < 1 || id > m.inbox.head() {
		return thread.Event{}, "", store.ErrNoTurn
	}
	return m.inbox.events[id-1], m.key(id), nil
}

// ResolveTurn takes a dead event off the dead letters. A repeat with the same answer
// changes nothing.
func (m *Model) ResolveTurn(_ context.Context, _ string, id int64, how string) (thread.Event, string, error) {
	if id < 1 || id > m.inbox.head() {
		return thread.Event{}, "", store.ErrNoTurn
	}
	f := m.fates[id]
	if f == nil || f.fate != store.FateDead || f.resolved != "" && f.resolved != how {
		return thread.Event{}, "", store.ErrNotDead
	}
	f.resolved = how
	return m.inbox.events[id-1], m.key(id), nil
}
