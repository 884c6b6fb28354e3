package sqlite

import (
	"context"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/store/sqlite/journal"
)

// Origin answers that of an inbox event; nil: it has none.
func (e *Engine) Origin(ctx context.Context, agent string, id int64) (*store.Origin, error) {
	return view(ctx, e, store.Inbox(agent), func(tx *db.Tx) (*store.Origin, error) { return journal.Origin(tx, id) })
}

// Session answers that of a conversation.
func (e *Engine) Session(ctx context.Context, r store.Ref) (store.Session, error) {
	if r.IsInbox() {
		return store.Session{}, store.ErrNoSession
	}
	s, err := view(ctx, e, r, journal.Session)
	if err != nil {
		return store.Session{}, err
	}
	if s == nil {
		return store.Session{}, store.ErrNoSession
	}
	return *s, nil
}

// PatchSession changes a session, or makes one, durably.
func (e *Engine) PatchSession(ctx context.Context, r store.Ref, p store.SessionPatch) (s store.Session, err error) {
	if r.IsInbox() {
		return s, store.ErrNotFound
	}
	err = e.do(ctx, r, true, func(tx *db.Tx) error {
		s, err = journal.PatchSession(tx, p)
		return err
	})
	return s, err
}

// NoteSession keeps a session in the list of its agent, durably.
func (e *Engine) NoteSession(ctx context.Context, r store.Ref, s store.Session) error {
	return e.do(ctx, store.Inbox(r.Agent), true, func(tx *db.Tx) error { return journal.NoteSession(tx, r.Thread, s) })
}

// ListSessions answers sessions of an agent.
func (e *Engine) ListSessions(ctx context.Context, agent string, q store.ListSessions) ([]store.SessionEntry, error) {
	return view(ctx, e, store.Inbox(agent), func(tx *db.Tx) ([]store.SessionEntry, error) { return journal.Sessions(tx, q) })
}
