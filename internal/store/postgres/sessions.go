package postgres

import (
	"context"
	"errors"

	"github.com/theclaw/agents/internal/store"
)

var errLater = errors.New("not stored yet")

// Pushed answers what a push did.
func (e *Engine) Pushed(context.Context, store.Ref, string) (store.Appended, bool, error) {
	return store.Appended{}, false, errLater
}

// Origin answers that of an inbox event.
func (e *Engine) Origin(context.Context, string, int64) (*store.Origin, error) { return nil, nil }

// Session answers that of a conversation.
func (e *Engine) Session(context.Context, store.Ref) (store.Session, error) {
	return store.Session{}, errLater
}

// PatchSession changes a session.
func (e *Engine) PatchSession(context.Context, store.Ref, store.SessionPatch) (store.Session, error) {
	return store.Session{}, errLater
}

// NoteSession keeps a session in the list.
func (e *Engine) NoteSession(context.Context, store.Ref, store.Session) error { return errLater }

// ListSessions answers sessions of an agent.
func (e *Engine) ListSessions(context.Context, string, store.ListSessions) ([]store.SessionEntry, error) {
	return nil, errLater
}
