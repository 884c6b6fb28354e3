package postgres

import (
	"context"

	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/journal"
	"github.com/theclaw/agents/internal/store/postgres/memory"
)

// agentLayer is the one row of an inbox that is not a thread's.
const agentLayer = "memory/" + route.MemoryAgentFile

// Memory answers marks; a thread that does not exist has digested nothing.
func (e *Engine) Memory(ctx context.Context, r store.Ref, layers ...string) ([]store.MemoryMark, error) {
	s := memory.Marks(layers)
	err := e.view(ctx, r, s)
	if !absent(err) {
		return s.Out, err
	}
	var out []store.MemoryMark
	for _, l := range layers {
		out = append(out, store.MemoryMark{Layer: l})
	}
	return out, nil
}

// Compact moves a mark, with its decision.
func (e *Engine) Compact(ctx context.Context, r store.Ref, f store.Fence, c store.Compaction) (store.MemoryMark, error) {
	s := journal.Compact(c)
	err := e.fenced(ctx, r, f, s)
	return s.Out, err
}

// CountCompaction notes in the inbox how many digests a thread has.
func (e *Engine) CountCompaction(ctx context.Context, agent string, f store.Fence, thread string, n int64) error {
	return e.fenced(ctx, store.Inbox(agent), f, memory.Count(thread, n))
}

// UnseenThreads answers the threads the agent's layer has to catch up with.
func (e *Engine) UnseenThreads(ctx context.Context, agent string, limit int) ([]store.MemoryMark, int64, error) {
	s := memory.Unseen(agentLayer, limit)
	err := e.view(ctx, store.Inbox(agent), s)
	return s.Out, s.Total, err
}

// Decide records a decision once.
func (e *Engine) Decide(ctx context.Context, r store.Ref, f store.Fence, d store.Decision) error {
	return e.fenced(ctx, r, f, journal.Decide(d))
}

// MemoryWritten forgets a text that its file holds.
func (e *Engine) MemoryWritten(ctx context.Context, r store.Ref, layer string, n int64) error {
	return e.do(ctx, r, memory.Written(layer, n))
}
