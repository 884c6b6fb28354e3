package homedb

import (
	"context"
	"errors"

	"github.com/theclaw/agents/internal/store"
)

var errLater = errors.New("not stored yet")

// PutRevision adds a state of the bindings.
func (d *DB) PutRevision(context.Context, int64, []byte, int) (store.Revision, error) {
	return store.Revision{}, errLater
}

// Revisions answers the newest states of the bindings.
func (d *DB) Revisions(context.Context, int) ([]store.Revision, error) { return nil, errLater }
