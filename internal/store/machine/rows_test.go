package machine_test

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/machine"
	"github.com/theclaw/agents/internal/store/storetest/oracle"
	"github.com/theclaw/agents/internal/thread"
)

// rows is an engine in memory: it loads the rows that package machine names and saves
// those that it changed. What is not decided there it answers as simply as it can.
type rows struct {
	agent string
	now   func() time.Time

	inbox, conv log

	inboxAcked int64
	routes     []machine.Route
	fates      map[int64]machine.Fate
	resolved   map[int64]string
	outbox     map[string]store.OutboxMark
	heads      map[string]int64
	origins    map[int64]*store.Origin

	turns      map[string]machine.Turn
	steps      []machine.Step
	deliveries map[int64]machine.Delivery
	acked      int64
	moved      string
	session    *store.Session
}

// log is an inbox or a conversation thread.
type log struct {
	exists bool
	uuid   string
	events []thread.Event
	pushes map[string][]int64
	keys   map[string]int64
	fences map[string]uint64
	subs   []store.Subscription
}

func newRows(agent string, now func() time.Time) *rows {
	return &rows{
		agent: agent, now: now, inbox: log{uuid: oracle.InboxUUID}, conv: log{uuid: oracle.ThreadUUID}, fates: map[int64]machine.Fate{}, resolved: map[int64]string{},
		outbox: map[string]store.OutboxMark{}, heads: map[string]int64{}, origins: map[int64]*store.Origin{}, turns: map[string]machine.Turn{}, deliveries: map[int64]machine.Delivery{},
	}
}

func (m *rows) of(r store.Ref) *log {
	if r.IsInbox() {
		return &m.inbox
	}
	return &m.conv
}

func (l *log) head() int64 { return int64(len(l.events)) }

func (l *log) fence(f store.Fence) error {
	if !l.exists {
		return store.ErrNotFound
	}
	if f.Token < l.fences[f.Resource] {
		return store.ErrLeaseLost
	}
	return nil
}

func (m *rows) Ensure(_ context.Context, r store.Ref, _ string) (bool, error) {
	l := m.of(r)
	if l.exists {
		return false, nil
	}
	l.exists, l.pushes, l.keys, l.fences = true, map[string][]int64{}, map[string]int64{}, map[string]uint64{}
	return true, nil
}

func (m *rows) Append(_ context.Context, r store.Ref, events []store.NewEvent, o store.AppendOptions) (store.Appended, error) {
	l := m.of(r)
	if !l.exists {
		return store.Appended{}, store.ErrNotFound
	}
	if ids := l.pushes[o.Key]; o.Key != "" && ids != nil {
		if len(ids) != len(events) {
			return store.Appended{}, store.ErrKeyReused
		}
		for i, id := range ids {
			if l.events[id-1].Content != events[i].Content {
				return store.Appended{}, store.ErrKeyReused
			}
		}
		out := m.appended(r, ids)
		out.Duplicate = true
		return out, nil
	}
	var ids []int64
	for _, n := range events {
		e := thread.Event{ID: l.head() + 1, CreatedAt: thread.Stamp(m.now()), Source: n.Source, Type: n.Type, Subtype: n.Subtype, Content: n.Content}
		l.events, ids = append(l.events, e), append(ids, e.ID)
		if n.Origin != nil && r.IsInbox() {
			m.origins[e.ID] = n.Origin
		}
	}
	if o.Key != "" {
		l.pushes[o.Key] = ids
	}
	return m.appended(r, ids), nil
}

func (m *rows) appended(r store.Ref, ids []int64) store.Appended {
	l := m.of(r)
	out := store.Appended{IDs: ids, At: thread.ParseStamp(l.events[ids[0]-1].CreatedAt)}
	if r.IsInbox() {
		for _, id := range ids {
			out.Keys, out.Origins = append(out.Keys, l.events[id-1].Key(l.uuid)), append(out.Origins, m.origins[id])
		}
	}
	return out
}

func (m *rows) Pushed(_ context.Context, r store.Ref, key string) (store.Appended, bool, error) {
	ids, ok := m.of(r).pushes[key]
	if !ok {
		return store.Appended{}, false, nil
	}
	out := m.appended(r, ids)
	out.Duplicate = true
	return out, true, nil
}

func (m *rows) Origin(_ context.Context, _ string, id int64) (*store.Origin, error) {
	return m.origins[id], nil
}

func (m *rows) Session(context.Context, store.Ref) (store.Session, error) {
	switch {
	case !m.conv.exists:
		return store.Session{}, store.ErrNotFound
	case m.session == nil:
		return store.Session{}, store.ErrNoSession
	}
	return *m.session, nil
}

func (m *rows) PatchSession(_ context.Context, _ store.Ref, p store.SessionPatch) (store.Session, error) {
	if !m.conv.exists {
		return store.Session{}, store.ErrNotFound
	}
	s := store.Session{Key: p.Key}
	if m.session != nil {
		s = *m.session
	}
	s = p.Apply(s)
	m.session = &s
	return s, nil
}

func (m *rows) Read(_ context.Context, r store.Ref, _ store.Query) (store.Page, error) {
	l := m.of(r)
	if !l.exists {
		return store.Page{}, store.ErrNotFound
	}
	return store.Page{Events: l.events, Head: l.head()}, nil
}

func (m *rows) Info(_ context.Context, r store.Ref) (store.Info, error) {
	l := m.of(r)
	if !l.exists {
		return store.Info{}, store.ErrNotFound
	}
	out := store.Info{UUID: l.uuid, Count: l.head(), Head: l.head(), Subscriptions: l.subs}
	if out.Head > 0 {
		out.LastAt = l.events[out.Head-1].CreatedAt
	}
	return out, nil
}

func (m *rows) State(context.Context, string) (store.InboxState, error) {
	out := store.InboxState{Undecided: true, UUID: m.inbox.uuid, Head: m.inbox.head(), Acked: m.inboxAcked, Fences: m.inbox.fences}
	for _, e := range m.inbox.events {
		out.LastAt = e.CreatedAt
		if f, ok := m.fates[e.ID]; !ok {
			out.Pending++
		} else if f.Fate == store.FateDead && m.resolved[e.ID] == "" {
			out.Dead++
		}
	}
	for _, id := range slices.Sorted(maps.Keys(m.heads)) {
		o := m.outbox[id]
		out.Dead += o.Dead
		if m.heads[id] > o.Acked || o.Reopen {
			out.Outbox = append(out.Outbox, id)
		}
	}
	return out, nil
}

func (m *rows) InboxEvent(_ context.Context, _ string, id int64) (thread.Event, string, error) {
	if id < 1 || id > m.inbox.head() {
		return thread.Event{}, "", store.ErrNoTurn
	}
	e := m.inbox.events[id-1]
	return e, e.Key(m.inbox.uuid), nil
}

func (m *rows) MarkOutbox(_ context.Context, _ string, o store.OutboxMark) error {
	old := m.outbox[o.Thread]
	if o.Acked < old.Acked {
		o.Acked, o.Reopen = old.Acked, old.Reopen || o.Reopen
	}
	m.outbox[o.Thread] = o
	if _, known := m.heads[o.Thread]; !known {
		m.heads[o.Thread] = 0 // a thread without events is one of the threads, too
	}
	return nil
}

func (m *rows) loadInbox() machine.Inbox {
	return machine.Inbox{UUID: m.inbox.uuid, Head: m.inbox.head(), Acked: m.inboxAcked, Now: m.now(), Routes: slices.Clone(m.routes)}
}

func (m *rows) saveInbox(in *machine.Inbox) int64 {
	for _, f := range in.Fates {
		if _, ok := m.fates[f.InboxID]; !ok {
			m.fates[f.InboxID] = f
		}
	}
	if in.OutboxHead > 0 {
		m.heads[in.OutboxThread] = max(m.heads[in.OutboxThread], in.OutboxHead)
	}
	for _, e := range slices.Backward(m.inbox.events) {
		if _, ok := m.fates[e.ID]; !ok && e.ID > in.Acked {
			in.FirstOpen = e.ID
		}
	}
	acked := machine.Advance(in)
	if in.AckMoved {
		m.inboxAcked = acked
	}
	return acked
}

func (m *rows) OpenBatch(ctx context.Context, _ string, f store.Fence, o store.OpenBatch) (store.Batch, error) {
	if err := m.inbox.fence(f); err != nil {
		return store.Batch{}, err
	}
	in, from := m.loadInbox(), int64(0)
	for _, e := range m.inbox.events {
		if _, ok := m.fates[e.ID]; ok || e.ID <= max(o.After, in.Acked) {
			continue
		}
		if in.More = len(in.Open) == o.Limit; in.More {
			break
		}
		in.Open = append(in.Open, e)
	}
	in.Origins = m.origins
	b, ask := machine.Open(&in, o, nil)
	if ask != "" {
		for _, e := range m.inbox.events[in.Acked:] {
			if _, ok := m.fates[e.ID]; ok || m.origins[e.ID] != nil {
				continue
			}
			begun, err := o.Claimed(ctx, e, e.Key(in.UUID), in.ModeAt(e.ID))
			if err != nil {
				return store.Batch{}, err
			}
			if begun {
				from = e.ID + 1
			}
		}
		b, _ = machine.Open(&in, o, &machine.Begun{Mode: ask, From: from})
	}
	m.inbox.fences[f.Resource] = f.Token
	if r := in.Changed; r != nil {
		m.routes = append(slices.DeleteFunc(m.routes, func(old machine.Route) bool { return old.From >= r.From }), *r)
	}
	if len(in.Fates) > 0 {
		b.Acked = m.saveInbox(&in)
	}
	return b, nil
}

func (m *rows) Settle(_ context.Context, _ string, f store.Fence, s store.Settlement) (int64, error) {
	if err := m.inbox.fence(f); err != nil {
		return 0, err
	}
	m.inbox.fences[f.Resource] = f.Token
	in := m.loadInbox()
	machine.Settle(&in, s)
	return m.saveInbox(&in), nil
}

func (m *rows) ResolveTurn(_ context.Context, _ string, id int64, how string) (thread.Event, string, error) {
	e, key, err := m.InboxEvent(context.Background(), "", id)
	if err != nil {
		return e, key, err
	}
	if f, ok := m.fates[id]; !ok || f.Fate != store.FateDead || m.resolved[id] != "" && m.resolved[id] != how {
		return thread.Event{}, "", store.ErrNotDead
	}
	m.resolved[id] = how
	return e, key, nil
}

// load reads the rows that n names, and no others.
func (m *rows) load(n machine.Needs, t *machine.Thread) {
	t.UUID, t.Head, t.NextID = m.conv.uuid, m.conv.head(), m.conv.head()+1
	turn := func(key string) {
		if r, ok := m.turns[key]; ok && !slices.ContainsFunc(t.Turns, func(o machine.Turn) bool { return o.Key == key }) {
			t.Turns = append(t.Turns, r)
		}
	}
	for _, key := range n.Turns {
		turn(key)
	}
	for _, s := range m.steps {
		if s.Turn == n.Turn && (n.AllSteps || slices.Contains(n.Steps, s.Key) || n.Steers && s.Kind == store.StepSteer) {
			if !n.AllSteps {
				s.Step = store.Step{Seq: s.Seq, Kind: s.Kind, Key: s.Key, State: s.State, RecordedAt: s.RecordedAt, Result: s.Result}
			}
			t.Steps = append(t.Steps, s)
		}
	}
	if n.Leader != "" {
		for _, key := range slices.Sorted(maps.Keys(m.turns)) {
			if m.turns[key].Leader == n.Leader {
				turn(key)
			}
		}
	}
	for _, key := range n.Keys {
		if id := m.conv.keys[key]; id != 0 {
			t.Use(key, id)
		}
	}
	if n.Session {
		t.Session = m.session
		for _, e := range m.conv.events {
			if e.Subtype == nil || *e.Subtype != thread.SubtypeContext {
				t.LastAt = thread.ParseStamp(e.CreatedAt)
			}
		}
	}
	m.loadDeliveries(n, t)
}

// open are the events that are neither sent nor given up.
func (m *rows) open() (out []machine.Delivery) {
	for _, e := range m.conv.events {
		d, ok := m.deliveries[e.ID]
		d.Event = e
		foreign := !ok && len(m.conv.subs) > 0 && e.ID > m.acked && e.Type == thread.TypeMessage && e.Source == thread.SourceSelf
		if d.Foreign = foreign; foreign || ok && (d.State == store.DeliveryPending || d.State == store.DeliverySending) {
			out = append(out, d)
		}
	}
	return out
}

func (m *rows) loadDeliveries(n machine.Needs, t *machine.Thread) {
	open := m.open()
	t.Acked = m.acked
	for _, d := range open {
		if !d.Foreign && n.OpenHead {
			t.OpenHead = d.Event.ID
		}
		if n.FirstOpen && d.Event.ID > m.acked && d.Event.ID != n.Except && t.FirstOpen == 0 {
			t.FirstOpen = d.Event.ID
		}
		if len(t.Deliveries) < n.Due {
			if d.Run = ""; n.Runs {
				for key, r := range m.turns {
					if r.ReplyID == d.Event.ID {
						d.Run = key
					}
				}
			}
			t.Deliveries = append(t.Deliveries, d)
		}
	}
	if d, ok := m.deliveries[n.Delivery]; ok {
		t.Deliveries = append(t.Deliveries, d)
	}
	for id, d := range m.deliveries {
		if n.Dead && d.State == store.DeliveryDead && d.Resolved == "" && id != n.Except {
			t.Dead++
		}
	}
}

// save writes the rows that changed.
func (m *rows) save(t *machine.Thread) {
	for _, e := range t.Appended {
		m.conv.events, m.conv.keys[e.Key] = append(m.conv.events, e.Event), e.ID
	}
	for _, r := range t.Turns {
		if old, ok := m.turns[r.Key]; ok {
			r.ReplyContext, r.ClaimedAt = old.ReplyContext, old.ClaimedAt
		}
		if r.Change != machine.Unchanged {
			r.Change = machine.Unchanged
			m.turns[r.Key] = r
		}
	}
	for _, s := range t.Steps {
		i := slices.IndexFunc(m.steps, func(o machine.Step) bool { return o.Turn == s.Turn && o.Key == s.Key })
		switch change := s.Change; change {
		case machine.Inserted:
			s.Change = machine.Unchanged
			m.steps = append(m.steps, s)
		case machine.Updated:
			o := &m.steps[i]
			o.State, o.Result, o.Duration, o.RecordedAt = s.State, s.Result, s.Duration, s.RecordedAt
			o.IsError, o.External = s.IsError, s.External
		case machine.Deleted:
			m.steps = slices.Delete(m.steps, i, i+1)
		}
	}
	slices.SortFunc(m.steps, func(a, b machine.Step) int { return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Key, b.Key)) })
	for _, d := range t.Deliveries {
		if d.Change != machine.Unchanged {
			d.Change = machine.Unchanged
			m.deliveries[d.EventID] = d
		}
	}
	if t.SessionSet {
		m.session = t.Session
	}
	if t.AckMoved && t.Acked > m.acked {
		m.acked, m.moved = t.Acked, thread.Stamp(t.Now)
		for i := range m.conv.subs {
			m.conv.subs[i].Acked, m.conv.subs[i].UpdatedAt = m.acked, m.moved
		}
	}
}

// run is one transition.
func (m *rows) run(f store.Fence, n machine.Needs, decide func(t *machine.Thread) error) error {
	if err := m.conv.fence(f); err != nil {
		return err
	}
	t := machine.Thread{Token: f.Token, Now: m.now()}
	m.load(n, &t)
	if err := decide(&t); err != nil {
		return err
	}
	if f.Resource != "" {
		m.conv.fences[f.Resource] = f.Token
	}
	m.save(&t)
	return nil
}

func (m *rows) Begin(_ context.Context, _ store.Ref, f store.Fence, b store.Begin) (out store.Begun, err error) {
	err = m.run(f, machine.BeginNeeds(b), func(t *machine.Thread) error {
		if more, again := machine.ReclaimNeeds(t, b); again {
			m.load(more, t)
		}
		if out, err = machine.Begin(t, b); err != nil || !machine.Recorded(out.Outcome) || !b.Subscribe || len(m.conv.subs) > 0 {
			return err
		}
		filter := thread.OutboundFilter
		m.conv.subs = []store.Subscription{{Consumer: thread.Outbound, Handler: b.Handler, Filter: &filter, Acked: m.acked, UpdatedAt: m.moved}}
		return nil
	})
	if err != nil || out.Outcome != store.BeginGo {
		return out, err
	}
	out.Inbound = m.conv.events[m.conv.keys[machine.InboundKey(b.Key)]-1]
	for _, e := range m.conv.events[:out.Inbound.ID] {
		if e.Shown() && (out.Session == nil || e.ID > out.Session.EpochFrom) {
			out.Tail = append(out.Tail, e)
		}
	}
	out.Tail = out.Tail[max(0, len(out.Tail)-b.Tail):]
	return out, nil
}

func (m *rows) Record(_ context.Context, _ store.Ref, f store.Fence, rec store.Record) (n int, err error) {
	err = m.run(f, machine.RecordNeeds(rec), func(t *machine.Thread) error { n, err = machine.Record(t, rec); return err })
	return n, err
}

func (m *rows) Steer(_ context.Context, _ store.Ref, f store.Fence, s store.Steer) (out store.Step, err error) {
	err = m.run(f, machine.SteerNeeds(s), func(t *machine.Thread) error { out, err = machine.Steer(t, s); return err })
	return out, err
}

func (m *rows) Finish(_ context.Context, _ store.Ref, f store.Fence, fin store.Finish) (out store.Finished, err error) {
	err = m.run(f, machine.FinishNeeds(fin), func(t *machine.Thread) error { out, err = machine.Finish(t, fin); return err })
	return out, err
}

func (m *rows) ResetCrashes(_ context.Context, _ store.Ref, keys []string) error {
	return m.run(store.Fence{}, machine.ReleaseNeeds(keys), func(t *machine.Thread) error { machine.Release(t); return nil })
}

func (m *rows) Claimed(_ context.Context, _ store.Ref, key string) (bool, error) {
	_, ok := m.turns[key]
	return ok, nil
}

// listed is what the inbox knows of an event.
func (m *rows) listed(id int64) store.Turn {
	e := m.inbox.events[id-1]
	out := store.Turn{Agent: m.agent, InboxID: id, Key: e.Key(m.inbox.uuid), State: store.TurnQueued, Source: e.Source, QueuedAt: thread.ParseStamp(e.CreatedAt)}
	if f, ok := m.fates[id]; ok {
		machine.SettleAccount(&out, f, m.resolved[id])
	} else if o := m.origins[id]; o != nil && e.Type == thread.TypeMessage {
		out.Thread = o.Thread
	}
	return out
}

func (m *rows) Turn(_ context.Context, _ string, q store.TurnQuery) (store.Turn, error) {
	e, _, err := m.InboxEvent(context.Background(), "", q.InboxID)
	if err != nil {
		return store.Turn{}, err
	}
	out := m.listed(q.InboxID)
	in := machine.Inbox{Routes: m.routes}
	out.Origin = m.origins[e.ID]
	if mode := in.ModeAt(e.ID); out.Origin == nil && out.Fate == store.FateNone && mode != "" && e.Type == thread.TypeMessage {
		if id, err := q.Route(e, mode); err == nil {
			out.Thread = id
		}
	}
	r, ok := m.turns[out.Key]
	if !ok || out.Thread != oracle.ThreadID {
		return out, nil
	}
	var steps []store.Step
	for _, s := range m.steps {
		if s.Turn == r.Key {
			steps = append(steps, s.Step)
		}
	}
	var reply *store.Delivery
	if d, ok := m.deliveries[r.ReplyID]; ok {
		d.Thread, reply = out.Thread, &d.Delivery
	}
	machine.Account(&out, r, steps, reply)
	return out, nil
}

func (m *rows) ListTurns(_ context.Context, _ string, q store.ListTurns) (out []store.Turn, _ error) {
	for id := m.inbox.head(); id > 0 && len(out) < q.Limit; id-- {
		if t := m.listed(id); (q.Fate == "" || q.Fate == t.Fate) && !(q.Unresolved && t.Resolved != "") {
			out = append(out, t)
		}
	}
	return out, nil
}

func (m *rows) NextDelivery(_ context.Context, _ store.Ref, f store.Fence, n store.NextDelivery) (out store.DueDelivery, err error) {
	needs := machine.NextNeeds(n)
	for more := &needs; more != nil && err == nil; {
		err = m.run(f, *more, func(t *machine.Thread) error { out, more = machine.Next(t, n); return nil })
	}
	return out, err
}

func (m *rows) FinishDelivery(_ context.Context, r store.Ref, f store.Fence, fin store.FinishDelivery) (out store.Delivery, err error) {
	err = m.run(f, machine.SentNeeds(fin.EventID), func(t *machine.Thread) error {
		out, err = machine.Sent(t, fin)
		out.Thread = r.Thread
		return err
	})
	return out, err
}

func (m *rows) ListDeliveries(_ context.Context, r store.Ref, state string, after int64, limit int) (out []store.Delivery, _ error) {
	if !m.conv.exists {
		return nil, store.ErrNotFound
	}
	for _, id := range slices.Sorted(maps.Keys(m.deliveries)) {
		d := m.deliveries[id].Delivery
		if id > after && len(out) < limit && (state == "" || state == d.State && d.Resolved == "") {
			d.Thread = r.Thread
			out = append(out, d)
		}
	}
	return out, nil
}

func (m *rows) ResolveDelivery(_ context.Context, r store.Ref, id int64, how string) (out store.Delivery, err error) {
	err = m.run(store.Fence{}, machine.SentNeeds(id), func(t *machine.Thread) error {
		out, err = machine.Resolve(t, how)
		out.Thread = r.Thread
		return err
	})
	return out, err
}
