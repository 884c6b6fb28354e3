// Package oracle answers what a storage engine must answer about one inbox and one
// conversation thread. It is a second opinion on the state machine: written from
// sections 2, 4 and 5 of docs/spec/reliability.md, in a longer form than today's, and from
// the comments of package store, from no engine.
//
// A [Model] keeps rows in maps and slices and has one function per transition. What
// those texts leave open was observed at the engines; such a line carries the comment
// "not in RELIABILITY". Durability, concurrency, the chain and the limits of pushes are
// not modeled. Every token from 1 is live; the seal alone refuses a lower one.
package oracle

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// Engine is the part of a storage engine that the state machine decides.
type Engine interface {
	Ensure(ctx context.Context, r store.Ref, tuple string) (created bool, err error)
	Append(ctx context.Context, r store.Ref, events []store.NewEvent, o store.AppendOptions) (store.Appended, error)
	Read(ctx context.Context, r store.Ref, q store.Query) (store.Page, error)
	Info(ctx context.Context, r store.Ref) (store.Info, error)
	Pushed(ctx context.Context, r store.Ref, key string) (store.Appended, bool, error)

	State(ctx context.Context, agent string) (store.InboxState, error)
	InboxEvent(ctx context.Context, agent string, id int64) (thread.Event, string, error)
	Origin(ctx context.Context, agent string, id int64) (*store.Origin, error)
	OpenBatch(ctx context.Context, agent string, f store.Fence, o store.OpenBatch) (store.Batch, error)
	Settle(ctx context.Context, agent string, f store.Fence, s store.Settlement) (acked int64, err error)
	MarkOutbox(ctx context.Context, agent string, m store.OutboxMark) error

	Begin(ctx context.Context, r store.Ref, f store.Fence, b store.Begin) (store.Begun, error)
	Record(ctx context.Context, r store.Ref, f store.Fence, rec store.Record) (errorAttempts int, err error)
	Steer(ctx context.Context, r store.Ref, f store.Fence, s store.Steer) (store.Step, error)
	Finish(ctx context.Context, r store.Ref, f store.Fence, fin store.Finish) (store.Finished, error)
	ResetCrashes(ctx context.Context, r store.Ref, keys []string) error
	Claimed(ctx context.Context, r store.Ref, key string) (bool, error)
	Turn(ctx context.Context, agent string, q store.TurnQuery) (store.Turn, error)
	ListTurns(ctx context.Context, agent string, q store.ListTurns) ([]store.Turn, error)
	ResolveTurn(ctx context.Context, agent string, inboxID int64, how string) (thread.Event, string, error)

	Session(ctx context.Context, r store.Ref) (store.Session, error)
	PatchSession(ctx context.Context, r store.Ref, p store.SessionPatch) (store.Session, error)

	NextDelivery(ctx context.Context, r store.Ref, f store.Fence, n store.NextDelivery) (store.DueDelivery, error)
	FinishDelivery(ctx context.Context, r store.Ref, f store.Fence, fin store.FinishDelivery) (store.Delivery, error)
	ListDeliveries(ctx context.Context, r store.Ref, state string, after int64, limit int) ([]store.Delivery, error)
	ResolveDelivery(ctx context.Context, r store.Ref, eventID int64, how string) (store.Delivery, error)
}

// UUIDs of the databases of a model.
const (
	InboxUUID  = "00000000-0000-7000-8000-000000000001"
	ThreadUUID = "00000000-0000-7000-8000-000000000002"
)

// Model is an inbox and a conversation thread of one agent in memory.
type Model struct {
	agent string
	now   func() time.Time

	inbox, conv database

	// Of the inbox.
	acked   int64
	routes  []route
	fates   map[int64]*fate
	outbox  map[string]*outbox
	origins map[int64]*store.Origin

	// Of the conversation thread.
	turns      map[string]*turn
	deliveries map[int64]*delivery
	progress   int64  // of the outbound consumer
	moved      string // when it moved
	session    *store.Session
}

// New is a model of an agent that has nothing yet. The clock rises with each reading.
func New(agent string, now func() time.Time) *Model {
	return &Model{
		agent: agent, now: now, inbox: database{uuid: InboxUUID}, conv: database{uuid: ThreadUUID},
		origins: map[int64]*store.Origin{}, fates: map[int64]*fate{}, outbox: map[string]*outbox{}, turns: map[string]*turn{}, deliveries: map[int64]*delivery{},
	}
}

// database is what an inbox and a conversation thread have in common.
type database struct {
	exists bool
	uuid   string
	events []thread.Event
	keys   map[string][]int64 // dedupe
	fences map[string]uint64
	subs   []store.Subscription
}

func (m *Model) of(r store.Ref) *database {
	if r.IsInbox() {
		return &m.inbox
	}
	return &m.conv
}

func (d *database) head() int64 { return int64(len(d.events)) }

// put appends an event, once per key when there is one.
func (d *database) put(now time.Time, key string, e store.NewEvent) (id int64, fresh bool) {
	if ids, ok := d.keys[key]; ok && key != "" {
		return ids[0], false
	}
	id = d.head() + 1
	d.events = append(d.events, thread.Event{ID: id, CreatedAt: thread.Stamp(now), Source: e.Source, Type: e.Type, Subtype: e.Subtype, Content: e.Content})
	if key != "" {
		d.keys[key] = []int64{id}
	}
	return id, true
}

// fence is RELIABILITY 3: a lower token than the greatest seen is refused.
func (d *database) fence(f store.Fence) error {
	if f.Token < d.fences[f.Resource] {
		return store.ErrLeaseLost
	}
	return nil
}

// seal remembers the token of a call that is not refused.
func (d *database) seal(f store.Fence) { d.fences[f.Resource] = f.Token }

func (d *database) sub(consumer string) *store.Subscription {
	for i := range d.subs {
		if d.subs[i].Consumer == consumer {
			return &d.subs[i]
		}
	}
	return nil
}

// Ensure makes the database of r.
func (m *Model) Ensure(_ context.Context, r store.Ref, _ string) (bool, error) {
	d := m.of(r)
	if d.exists {
		return false, nil
	}
	d.exists, d.keys, d.fences = true, map[string][]int64{}, map[string]uint64{}
	return true, nil
}

// Append is T0 in an inbox; in a conversation thread it is what another program writes.
func (m *Model) Append(_ context.Context, r store.Ref, events []store.NewEvent, o store.AppendOptions) (store.Appended, error) {
	d := m.of(r)
	if !d.exists {
		return store.Appended{}, store.ErrNotFound
	}
	if ids, ok := d.keys[o.Key]; ok && o.Key != "" {
		if len(ids) != len(events) {
			return store.Appended{}, store.ErrKeyReused
		}
		for i, id := range ids {
			if e := d.events[id-1]; e.Content != events[i].Content || e.Source != events[i].Source || e.Type != events[i].Type {
				return store.Appended{}, store.ErrKeyReused
			}
		}
		return m.appended(r, ids, true), nil
	}
	now, ids := m.now(), []int64(nil)
	for _, e := range events {
		id, _ := d.put(now, "", e)
		if ids = append(ids, id); e.Origin != nil && r.IsInbox() {
			o := *e.Origin
			o.SentAt = store.FromMillis(store.Millis(o.SentAt))
			m.origins[id] = &o
		}
	}
	if o.Key != "" {
		d.keys[o.Key] = ids
	}
	for _, key := range o.PartKeys {
		if _, used := d.keys[key]; !used {
			d.keys[key] = ids
		}
	}
	return m.appended(r, ids, false), nil
}

func (m *Model) appended(r store.Ref, ids []int64, duplicate bool) store.Appended {
	out := store.Appended{IDs: ids, At: thread.ParseStamp(m.of(r).events[ids[0]-1].CreatedAt), Duplicate: duplicate}
	if r.IsInbox() {
		for _, id := range ids {
			out.Keys, out.Origins = append(out.Keys, m.key(id)), append(out.Origins, m.origins[id])
		}
	}
	return out
}

// Pushed answers what a repeat of the push under a key would.
func (m *Model) Pushed(_ context.Context, r store.Ref, key string) (store.Appended, bool, error) {
	ids, ok := m.of(r).keys[key]
	if !ok {
		return store.Appended{}, false, nil
	}
	return m.appended(r, ids, true), true, nil
}

// Origin answers what was decided about an event when it was pushed.
func (m *Model) Origin(_ context.Context, _ string, id int64) (*store.Origin, error) {
	return m.origins[id], nil
}

// Read answers every event; it pages and filters nothing.
func (m *Model) Read(_ context.Context, r store.Ref, _ store.Query) (store.Page, error) {
	d := m.of(r)
	if !d.exists {
		return store.Page{}, store.ErrNotFound
	}
	return store.Page{Events: slices.Clone(d.events), Head: d.head()}, nil
}

// Info answers counts and consumers.
func (m *Model) Info(_ context.Context, r store.Ref) (store.Info, error) {
	d := m.of(r)
	if !d.exists {
		return store.Info{}, store.ErrNotFound
	}
	out := store.Info{UUID: d.uuid, Count: d.head(), Head: d.head(), Subscriptions: slices.Clone(d.subs)}
	if out.Head > 0 {
		out.LastAt = d.events[out.Head-1].CreatedAt
	}
	return out, nil
}

func (m *Model) key(id int64) string { return m.inbox.events[id-1].Key(m.inbox.uuid) }

// self is an event that the agent itself writes.
func self(typ, subtype, content string) store.NewEvent {
	e := store.NewEvent{Source: thread.SourceSelf, Type: typ, Content: content}
	if subtype != "" {
		e.Subtype = &subtype
	}
	return e
}

// unknown is a programming error in a script.
func unknown(what string, v any) string { return fmt.Sprintf("oracle: unknown %s %v", what, v) }
