// Package memory stores the progress of each layer of an agent's memory, and a digest that
// its file may not hold yet.
//
// A row is keyed by the layer, the name of its file. In a conversation thread
// these are the thread's and its peers' layers, in an inbox the agent's; there the
// rows keyed by a thread id count the digests of that thread and those that the
// agent's layer has seen.
//
// A mark moves by one digest at a time and never back, and a digest made twice is committed
// once. The package writes no files and no decision event for a digest: journal commits the
// event and the digest together.
package memory

import (
	"context"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/unit"
)

const (
	columns  = "layer, n, digested, seen, base, text, thread, event"
	ofThread = "agent_id = $1 AND thread_id = $2"
)

func scanMark(scan func(...any) error) (m store.MemoryMark, err error) {
	err = scan(&m.Layer, &m.N, &m.Digested, &m.Seen, &m.Base, &m.Text, &m.Thread, &m.Event)
	return m, err
}

// MarksStep answers the marks of layers in their order; one that was never digested
// is all zero but for its name.
type MarksStep struct{ Out []store.MemoryMark }

// Marks makes the step.
func Marks(layers []string) *MarksStep {
	s := &MarksStep{Out: make([]store.MemoryMark, len(layers))}
	for i, l := range layers {
		s.Out[i].Layer = l
	}
	return s
}

// Load queues the read.
func (s *MarksStep) Load(tx *unit.Tx) {
	if len(s.Out) == 0 {
		return
	}
	layers := make([]string, len(s.Out))
	for i, m := range s.Out {
		layers[i] = m.Layer
	}
	tx.Read("SELECT "+columns+" FROM memory WHERE "+ofThread+" AND layer = ANY($3)", []any{layers}, func(scan func(...any) error) error {
		m, err := scanMark(scan)
		for i := range s.Out {
			if s.Out[i].Layer == m.Layer {
				s.Out[i] = m
			}
		}
		return err
	})
}

// Decide has nothing to decide.
func (s *MarksStep) Decide(context.Context, *unit.Tx) error { return nil }

// MoveStep commits a digest: Out is the mark that stands, Fresh reports that it moved.
type MoveStep struct {
	c     store.Compaction
	now   *MarksStep
	Out   store.MemoryMark
	Fresh bool
}

// Move makes the step.
func Move(c store.Compaction) *MoveStep {
	return &MoveStep{c: c, now: Marks([]string{c.Mark.Layer})}
}

// Load queues the read.
func (s *MoveStep) Load(tx *unit.Tx) { s.now.Load(tx) }

// Decide queues the writes; store.ErrMemoryMoved.
func (s *MoveStep) Decide(_ context.Context, tx *unit.Tx) error {
	old, m := s.now.Out[0], s.c.Mark
	m.N = s.c.After + 1
	s.Out = old
	switch {
	case old.N == m.N && old.Digested == m.Digested && old.Base == m.Base:
		return nil // the answer was lost, not the digest
	case old.N != s.c.After || old.Digested > m.Digested:
		return store.ErrMemoryMoved
	}
	s.Out, s.Fresh = m, true
	tx.Exec(`INSERT INTO memory(agent_id, thread_id, `+columns+`) VALUES($1,$2,$3,$4,$5,$6,$7,$8,$9,$10)
		ON CONFLICT (agent_id, thread_id, layer) DO UPDATE SET n = excluded.n, digested = excluded.digested, seen = excluded.seen,
			base = excluded.base, text = excluded.text, thread = excluded.thread, event = excluded.event`,
		m.Layer, m.N, m.Digested, m.Seen, m.Base, m.Text, m.Thread, m.Event)
	// The agent's layer has seen digests of threads, and how far it read in each.
	for _, t := range s.c.Threads {
		tx.Exec("UPDATE memory SET seen = GREATEST(seen, LEAST(n, $4)), digested = GREATEST(digested, $5) WHERE "+ofThread+" AND layer = $3",
			t.Layer, t.N, t.Digested)
	}
	return nil
}

// WrittenStep forgets the text of the nth digest, which its file holds now.
type WrittenStep struct {
	layer string
	n     int64
}

// Written makes the step.
func Written(layer string, n int64) *WrittenStep { return &WrittenStep{layer, n} }

// Load reads nothing.
func (s *WrittenStep) Load(*unit.Tx) {}

// Decide queues the write.
func (s *WrittenStep) Decide(_ context.Context, tx *unit.Tx) error {
	tx.Exec("UPDATE memory SET text = '', thread = '', event = '' WHERE "+ofThread+" AND layer = $3 AND n = $4", s.layer, s.n)
	return nil
}

// CountStep notes how many digests a thread has.
type CountStep struct {
	thread string
	n      int64
}

// Count makes the step.
func Count(thread string, n int64) *CountStep { return &CountStep{thread, n} }

// Load reads nothing.
func (s *CountStep) Load(*unit.Tx) {}

// Decide queues the write.
func (s *CountStep) Decide(_ context.Context, tx *unit.Tx) error {
	tx.Exec(`INSERT INTO memory(agent_id, thread_id, layer, n) VALUES($1,$2,$3,$4)
		ON CONFLICT (agent_id, thread_id, layer) DO UPDATE SET n = GREATEST(memory.n, excluded.n)`, s.thread, s.n)
	return nil
}

// UnseenStep answers threads with digests that the agent's layer has not seen, and
// the number of such digests in all.
type UnseenStep struct {
	agent string
	limit int
	Out   []store.MemoryMark
	Total int64
}

// Unseen makes the step; agent is the agent's own layer.
func Unseen(agent string, limit int) *UnseenStep { return &UnseenStep{agent: agent, limit: limit} }

// Load queues the reads.
func (s *UnseenStep) Load(tx *unit.Tx) {
	const unseen = " FROM memory WHERE " + ofThread + " AND layer <> $3 AND n > seen"
	tx.One("SELECT COALESCE(SUM(n - seen), 0)::bigint"+unseen, []any{s.agent}, nil, &s.Total)
	tx.Read("SELECT "+columns+unseen+" ORDER BY layer LIMIT $4", []any{s.agent, s.limit}, func(scan func(...any) error) error {
		m, err := scanMark(scan)
		s.Out = append(s.Out, m)
		return err
	})
}

// Decide has nothing to decide.
func (s *UnseenStep) Decide(context.Context, *unit.Tx) error { return nil }
