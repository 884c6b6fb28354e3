package journal

import (
	"context"
	"slices"
	"strconv"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/machine"
	"github.com/theclaw/agents/internal/store/postgres/consumer"
	"github.com/theclaw/agents/internal/store/postgres/memory"
	"github.com/theclaw/agents/internal/store/postgres/unit"
	"github.com/theclaw/agents/internal/thread"
)

// BeginStep claims an event (T1), records it (T2), and answers what its turn is made
// from.
type BeginStep struct {
	b       store.Begin
	rows    machine.Thread
	keep    *consumer.KeepStep
	marks   *memory.MarksStep
	desired string // of the agent
	earlier int64  // id of the inbound event when an earlier claim recorded it
	inbound thread.Event
	tail    []thread.Event // messages up to the event
	files   map[string][]byte
	Out     store.Begun
}

// Begin makes the step.
func Begin(b store.Begin) *BeginStep {
	filter := thread.OutboundFilter
	return &BeginStep{b: b, marks: memory.Marks(b.Layers), keep: consumer.Keep(thread.Outbound, b.Handler, &filter)}
}

// Lazy says that it waits for no disk: what is made under a claim and seen by others
// waits for the disk, and so keeps it.
func (s *BeginStep) Lazy() bool { return true }

// maxTail are the bytes of context that a claim answers at most.
const maxTail = thread.MaxAnswer / 2

// Load queues the reads of a first claim: what an earlier one left is found with few.
func (s *BeginStep) Load(tx *unit.Tx) {
	s.rows = machine.Thread{}
	n := machine.BeginNeeds(s.b)
	// The key of the inbound event, the first, goes with the state of the agent. That is
	// behind the fence: a stop of the agent waits for the lease.
	tx.One("SELECT COALESCE((SELECT desired FROM thread WHERE agent_id = $1 AND thread_id = '"+thread.Inbox+"'), ''), COALESCE(("+unit.Deduped+"), 0)",
		[]any{n.Keys[0]}, nil, &s.desired, &s.earlier)
	n.Keys = n.Keys[1:]
	load(tx, n, &s.rows)
	if s.b.Subscribe {
		s.keep.Load(tx)
	}
	s.marks.Load(tx)
	if len(s.b.Files) > 0 {
		s.files = map[string][]byte{}
		tx.Read("SELECT name, content FROM unnest($3::text[]) AS wanted CROSS JOIN LATERAL (SELECT name, content FROM agent_file WHERE agent_id = $1 AND $2 <> '' AND name = wanted OFFSET 0) AS found", []any{s.b.Files}, func(scan func(...any) error) error {
			var name string
			var content []byte
			err := scan(&name, &content)
			s.files[name] = content
			return err
		})
	}
	s.loadTail(tx, 0)
}

// loadTail queues the read of the context before the event that the claim appends, or of an earlier one with it.
func (s *BeginStep) loadTail(tx *unit.Tx, earlier int64) {
	p := unit.Page{Where: thread.ShownFilter, Desc: true, Limit: s.b.Tail, Budget: maxTail}
	before := ""
	if earlier > 0 {
		p.Where, p.Args, before = p.Where+" AND id <= $3", []any{earlier}, " AND id < $3"
	}
	if s.b.Turns > 0 {
		p.Args = append(p.Args, s.b.Turns-1)
		p.Where += " AND id >= COALESCE((SELECT id FROM event WHERE agent_id = $1 AND thread_id = $2 AND " + thread.AskedFilter + before +
			" ORDER BY id DESC LIMIT 1 OFFSET $" + strconv.Itoa(len(p.Args)+2) + "), 0)"
	}
	var more bool
	s.tail = nil
	tx.Page(p, &s.tail, &more)
}

// Decide queues the writes; store.ErrStopped.
func (s *BeginStep) Decide(ctx context.Context, tx *unit.Tx) (err error) {
	t, b, out := &s.rows, s.b, &s.Out
	begin(tx, t)
	t.Stopped = s.desired != unit.Started
	if b.IfStarted && t.Stopped {
		return store.ErrStopped
	}
	if s.earlier != 0 {
		t.Use(machine.InboundKey(b.Key), s.earlier)
	}
	if n, again := machine.ReclaimNeeds(t, b); again {
		if err := tx.Again(ctx, func() { s.loadLeft(tx, n) }); err != nil {
			return err
		}
	}
	if *out, err = machine.Begin(t, b); err != nil {
		return err
	}
	if b.Subscribe && machine.Recorded(out.Outcome) {
		if err := s.keep.Decide(ctx, tx); err != nil {
			return err
		}
	}
	save(tx, t)
	if out.Outcome != store.BeginGo {
		return nil
	}
	if e := appended(t, t.Used(machine.InboundKey(b.Key))); e != nil {
		s.inbound = e.Event
		if e.Shown() && b.Tail > 0 {
			s.tail = append(s.tail[max(len(s.tail)-b.Tail+1, 0):], e.Event)
		}
	}
	if out.Session != nil { // its epoch may have begun after the tail was read
		s.tail = slices.DeleteFunc(s.tail, func(e thread.Event) bool { return e.ID <= out.Session.EpochFrom })
	}
	out.Inbound, out.Memory, out.Files, out.Tail = s.inbound, s.marks.Out, s.files, s.context()
	return nil
}

// loadLeft queues the reads of what an earlier claim has left.
func (s *BeginStep) loadLeft(tx *unit.Tx, n machine.Needs) {
	load(tx, n, &s.rows)
	if s.earlier != 0 {
		tx.Event(s.earlier, &s.inbound, nil)
		s.loadTail(tx, s.earlier)
	}
}

// context is the end of the tail, as much as an answer may hold.
func (s *BeginStep) context() []thread.Event {
	budget, from := maxTail, len(s.tail)
	for from > 0 && (from == len(s.tail) || s.tail[from-1].Size() <= budget) {
		from--
		budget -= s.tail[from].Size()
	}
	return s.tail[from:]
}

// CompactStep moves a mark of memory, with the decision that reports it.
type CompactStep struct {
	move   *memory.MoveStep
	decide *Step[struct{}] // nil: nothing is reported
	Out    store.MemoryMark
}

// Compact makes the step.
func Compact(c store.Compaction) *CompactStep {
	s := &CompactStep{move: memory.Move(c)}
	if c.Decision.Content != "" {
		s.decide = Decide(c.Decision)
	}
	return s
}

// Load queues the reads.
func (s *CompactStep) Load(tx *unit.Tx) {
	s.move.Load(tx)
	if s.decide != nil {
		s.decide.Load(tx)
	}
}

// Decide queues the writes; store.ErrMemoryMoved, ErrNoTurn.
func (s *CompactStep) Decide(ctx context.Context, tx *unit.Tx) error {
	err := s.move.Decide(ctx, tx)
	s.Out = s.move.Out
	if err != nil || !s.move.Fresh || s.decide == nil {
		return err
	}
	return s.decide.Decide(ctx, tx)
}
