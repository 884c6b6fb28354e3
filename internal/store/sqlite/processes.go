package sqlite

import (
	"context"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/store/sqlite/journal"
)

// RecordProcess stores how far a process got. Its end is durable, as every push is; what a power
// cut loses of a process that runs is a process that ended with it.
func (e *Engine) RecordProcess(ctx context.Context, agent string, f store.Fence, p store.Process) (out store.RecordedProcess, err error) {
	err = e.fenced(ctx, store.Inbox(agent), f, p.State.Ended(), func(tx *db.Tx) error {
		out, err = journal.RecordProcess(tx, agent, f.Token, p)
		return err
	})
	return out, err
}

// Processes answers those of a conversation, newest first.
func (e *Engine) Processes(ctx context.Context, agent, threadID, id string) ([]store.Process, error) {
	return view(ctx, e, store.Inbox(agent), func(tx *db.Tx) ([]store.Process, error) { return journal.Processes(tx, threadID, id) })
}
