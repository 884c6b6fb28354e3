package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/unit"
)

// workdirs keeps the working directories of agents: the newest manifest of each, and the
// pieces that it names by their hash. It is safe for concurrent use.
//
//	PutPieces ... PutPieces  PutWorkdir
//	  pieces alone             lease held, base compared, pieces there,
//	                           manifest replaced, other pieces removed: one transaction
//
// A writer that is killed before the last step leaves pieces that nobody names; the next
// snapshot removes them. A reader that loses a race with a new snapshot misses pieces,
// and reads the manifest again. A piece is kept once for an agent, and never shared
// between two: every row belongs to one agent.
type workdirs struct{ pool *pgxpool.Pool }

var _ store.Workdirs = (*workdirs)(nil)

// Workdir implements store.Workdirs.
func (d *workdirs) Workdir(ctx context.Context, agent string) (hash string, manifest []byte, err error) {
	err = d.pool.QueryRow(ctx, "SELECT hash, manifest FROM workdir WHERE agent_id = $1", agent).Scan(&hash, &manifest)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil, nil
	}
	return hash, manifest, workdirError("read", agent, err)
}

// Pieces implements store.Workdirs.
func (d *workdirs) Pieces(ctx context.Context, agent string, hashes []string, found func(hash string, data []byte) error) error {
	rows, err := d.pool.Query(ctx, "SELECT hash, data FROM workdir_piece WHERE agent_id = $1 AND hash = ANY($2)", agent, hashes)
	if err != nil {
		return workdirError("read pieces", agent, err)
	}
	defer rows.Close()
	for rows.Next() {
		var hash string
		var data []byte
		if err := rows.Scan(&hash, &data); err != nil {
			return workdirError("read pieces", agent, err)
		}
		if err := found(hash, data); err != nil {
			return err
		}
	}
	return workdirError("read pieces", agent, rows.Err())
}

// PutPieces implements store.Workdirs.
func (d *workdirs) PutPieces(ctx context.Context, agent string, pieces map[string][]byte) error {
	b := &pgx.Batch{}
	for hash, data := range pieces {
		b.Queue("INSERT INTO workdir_piece(agent_id, hash, data) VALUES($1, $2, $3) ON CONFLICT DO NOTHING", agent, hash, data)
	}
	return workdirError("write pieces", agent, d.pool.SendBatch(ctx, b).Close())
}

// PutWorkdir implements store.Workdirs. The lease's row is locked first, as everywhere:
// who takes it over waits for the commit, and whoever has lost it is refused.
func (d *workdirs) PutWorkdir(ctx context.Context, agent string, f store.Fence, s store.Snapshot) error {
	s.Pieces = append([]string{}, s.Pieces...) // none is an empty list, not NULL
	err := pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		live, base, pieces := false, "", 0
		b := &pgx.Batch{}
		b.Queue("SELECT count(*) > 0 FROM ("+unit.Leased+" FOR SHARE) l",
			agent, f.Resource, int64(f.Token)).QueryRow(func(row pgx.Row) error { return row.Scan(&live) })
		b.Queue("SELECT COALESCE((SELECT hash FROM workdir WHERE agent_id = $1 FOR UPDATE), '')", agent).QueryRow(func(row pgx.Row) error { return row.Scan(&base) })
		b.Queue("SELECT count(*) FROM workdir_piece WHERE agent_id = $1 AND hash = ANY($2)", agent, s.Pieces).QueryRow(func(row pgx.Row) error { return row.Scan(&pieces) })
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		switch {
		case !live:
			return store.ErrLeaseLost
		case base == s.Hash: // a repeat whose answer was lost
			return nil
		case base != s.Base:
			return store.ErrMoved
		case pieces != len(s.Pieces):
			return store.ErrNoPiece
		}
		w := &pgx.Batch{}
		w.Queue(`INSERT INTO workdir(agent_id, hash, manifest) VALUES($1, $2, $3)
			ON CONFLICT (agent_id) DO UPDATE SET hash = excluded.hash, manifest = excluded.manifest, updated_at = now()`, agent, s.Hash, s.Manifest)
		w.Queue("DELETE FROM workdir_piece WHERE agent_id = $1 AND hash <> ALL($2)", agent, s.Pieces)
		return tx.SendBatch(ctx, w).Close()
	})
	return workdirError("write", agent, err)
}

func workdirError(what, agent string, err error) error {
	if err == nil {
		return nil
	}
	for _, known := range []error{store.ErrLeaseLost, store.ErrMoved, store.ErrNoPiece} {
		if errors.Is(err, known) {
			return fmt.Errorf("%s workdir of %s: %w", what, agent, known)
		}
	}
	return fmt.Errorf("%s workdir of %s: %w", what, agent, unit.Problem(err))
}
