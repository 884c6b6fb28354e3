package postgres

import (
	"context"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/journal"
)

// Origin answers that of an inbox event.
func (e *Engine) Origin(ctx context.Context, agent string, id int64) (*store.Origin, error) {
	s := journal.Origin(id)
	err := e.view(ctx, store.Inbox(agent), s)
	return s.Out, err
}

// Session answers that of a conversation.
func (e *Engine) Session(ctx context.Context, r store.Ref) (store.Session, error) {
	if r.IsInbox() {
		return store.Session{}, store.ErrNoSession
	}
	s := journal.Session()
	err := e.view(ctx, r, s)
	return s.Out, err
}

// PatchSession changes a session.
func (e *Engine) PatchSession(ctx context.Context, r store.Ref, p store.SessionPatch) (store.Session, error) {
	if r.IsInbox() {
		return store.Session{}, store.ErrNotFound
	}
	s := journal.PatchSession(p)
	if err := e.do(ctx, r, s); err != nil {
		return store.Session{}, err
	}
	return s.Out, nil
}

// NoteSession has nothing to do: the list is read from the sessions themselves.
func (e *Engine) NoteSession(context.Context, store.Ref, store.Session) error { return nil }

// ListSessions answers sessions of an agent.
func (e *Engine) ListSessions(ctx context.Context, agent string, q store.ListSessions) ([]store.SessionEntry, error) {
	s := journal.Sessions(q)
	err := e.view(ctx, store.Inbox(agent), s)
	return s.Out, err
}
