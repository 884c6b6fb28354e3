package sqlite

import (
	"context"
	"errors"

	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/machine"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/store/sqlite/journal"
	"github.com/theclaw/agents/internal/store/sqlite/memory"
)

// agentLayer is the one row of an inbox that is not a thread's.
const agentLayer = "memory/" + route.MemoryAgentFile

// Memory answers marks; a thread that does not exist has digested nothing.
func (e *Engine) Memory(ctx context.Context, r store.Ref, layers ...string) ([]store.MemoryMark, error) {
	out, err := view(ctx, e, r, func(tx *db.Tx) ([]store.MemoryMark, error) { return memory.Marks(tx, layers) })
	if errors.Is(err, store.ErrNotFound) {
		for _, l := range layers {
			out = append(out, store.MemoryMark{Layer: l})
		}
		return out, nil
	}
	return out, err
}

// Compact moves a mark, with its decision. It is durable: what
// it holds was paid for.
func (e *Engine) Compact(ctx context.Context, r store.Ref, f store.Fence, c store.Compaction) (m store.MemoryMark, err error) {
	err = e.fenced(ctx, r, f, true, func(tx *db.Tx) error {
		var fresh bool
		if m, fresh, err = memory.Move(tx, c); err != nil || !fresh {
			return err
		}
		if c.Decision.Content != "" {
			if err := decide(tx, f, c.Decision); err != nil {
				return err
			}
		}
		return memory.See(tx, c.Threads)
	})
	return m, err
}

// CountCompaction notes in the inbox how many digests a thread has.
func (e *Engine) CountCompaction(ctx context.Context, agent string, f store.Fence, thread string, n int64) error {
	return e.fenced(ctx, store.Inbox(agent), f, false, func(tx *db.Tx) error { return memory.Count(tx, thread, n) })
}

// UnseenThreads answers the threads the agent's layer has to catch up with.
func (e *Engine) UnseenThreads(ctx context.Context, agent string, limit int) (out []store.MemoryMark, total int64, err error) {
	err = e.pool.View(ctx, store.Inbox(agent), func(tx *db.Tx) error {
		out, total, err = memory.Unseen(tx, agentLayer, limit)
		return err
	})
	return out, total, err
}

// Decide records a decision once.
func (e *Engine) Decide(ctx context.Context, r store.Ref, f store.Fence, d store.Decision) error {
	return e.fenced(ctx, r, f, false, func(tx *db.Tx) error { return decide(tx, f, d) })
}

func decide(tx *db.Tx, f store.Fence, d store.Decision) error {
	return journal.Run(tx, f.Token, machine.DecideNeeds(d), func(t *machine.Thread) error { return machine.Decide(t, d) })
}

// MemoryWritten forgets a text that its file holds.
func (e *Engine) MemoryWritten(ctx context.Context, r store.Ref, layer string, n int64) error {
	return e.do(ctx, r, false, func(tx *db.Tx) error { return memory.Written(tx, layer, n) })
}

// Tuple answers whom a thread was made for.
func (e *Engine) Tuple(ctx context.Context, r store.Ref) (string, error) {
	return view(ctx, e, r, func(tx *db.Tx) (tuple string, err error) {
		_, err = tx.Row("SELECT tuple FROM x_meta", nil, &tuple)
		return tuple, err
	})
}
