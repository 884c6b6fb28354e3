package sqlite

import (
	"context"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/store/sqlite/erase"
)

// Share answers what of a thread is a peer's.
func (e *Engine) Share(ctx context.Context, r store.Ref, q store.PeerQuery) (store.PeerShare, error) {
	return view(ctx, e, r, func(tx *db.Tx) (store.PeerShare, error) { return erase.Share(tx, r.IsInbox(), q) })
}

// Erase replaces contents and then removes their bytes from the files.
func (e *Engine) Erase(ctx context.Context, r store.Ref, s store.PeerShare) error {
	if err := e.do(ctx, r, true, func(tx *db.Tx) error { return erase.Contents(tx, s) }); err != nil {
		return err
	}
	return e.pool.Scrub(ctx, r)
}
