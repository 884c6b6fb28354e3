package postgres

import (
	"context"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/journal"
)

// RecordProcess stores how far a process got.
func (e *Engine) RecordProcess(ctx context.Context, agent string, f store.Fence, p store.Process) (store.RecordedProcess, error) {
	s := journal.Process(p)
	err := e.fenced(ctx, store.Inbox(agent), f, s)
	return s.Out, err
}

// Processes answers those of a conversation, newest first.
func (e *Engine) Processes(ctx context.Context, agent, threadID, id string) ([]store.Process, error) {
	s := journal.Processes(threadID, id)
	err := e.view(ctx, store.Inbox(agent), s)
	return s.Out, err
}
