package sqlite

import (
	"context"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/store/sqlite/prune"
)

// Prune counts what is old, and removes it when asked to.
func (e *Engine) Prune(ctx context.Context, r store.Ref, p store.Prune) (store.Pruned, error) {
	before := p.Before.UnixMilli()
	out, err := view(ctx, e, r, func(tx *db.Tx) (store.Pruned, error) { return prune.Count(tx, r.IsInbox(), before) })
	if err != nil || !p.Apply {
		return out, err
	}
	for left := out.Results.Gone + out.Keys.Gone; left > 0; {
		var n int64
		if err := e.do(ctx, r, false, func(tx *db.Tx) (err error) {
			n, err = prune.Some(tx, r.IsInbox(), before)
			return err
		}); err != nil {
			return out, err
		}
		if n == 0 {
			break
		}
		left -= n
	}
	return out, nil
}
