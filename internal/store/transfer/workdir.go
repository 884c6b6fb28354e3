package transfer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/theclaw/agents/internal/store/postgres/unit"
	"github.com/theclaw/agents/internal/workdir"
)

// together is the most bytes that are read at once.
const workdirChunk = 4 << 20

// importWorkdir copies the working directory into the database as a snapshot (package
// workdir), in the transaction of the move, and returns its size. One that is larger than
// the agent's settings allow is left out; left is the reason. Working directories decide
// nothing of a message, so they are not in the digest of a move; the hash of a piece
// identifies its content.
func importWorkdir(ctx context.Context, tx pgx.Tx, agent, dir string, l workdir.Limits) (size int64, left string, err error) {
	tree, _, err := workdir.Scan(ctx, dir, l, workdir.Seen{})
	if large := (*workdir.TooLarge)(nil); errors.As(err, &large) {
		return 0, large.What, nil
	}
	if err != nil || len(tree.Entries) == 0 {
		return 0, "", err
	}
	manifest, hash, err := tree.Encode()
	if err != nil {
		return 0, err.Error(), nil
	}
	if err := tree.Each(ctx, dir, nil, func(hash string, data []byte) error {
		_, err := tx.Exec(ctx, "INSERT INTO workdir_piece(agent_id, hash, data) VALUES($1, $2, $3) ON CONFLICT DO NOTHING", agent, hash, data)
		return unit.Problem(err)
	}); err != nil {
		return 0, "", fmt.Errorf("copy working directory: %w", err)
	}
	var there int
	if err := tx.QueryRow(ctx, "SELECT count(*) FROM workdir_piece WHERE agent_id = $1", agent).Scan(&there); err != nil {
		return 0, "", unit.Problem(err)
	}
	if there < len(tree.Pieces()) {
		return 0, "", errors.New("copy working directory: it changes meanwhile; end what writes to it")
	}
	_, err = tx.Exec(ctx, "INSERT INTO workdir(agent_id, hash, manifest) VALUES($1, $2, $3) ON CONFLICT (agent_id) DO UPDATE SET hash = excluded.hash, manifest = excluded.manifest", agent, hash, manifest)
	return tree.Size(), "", unit.Problem(err)
}

// exportWorkdir writes the snapshot of the database into an agent's directory and keeps
// the other files there.
func exportWorkdir(ctx context.Context, tx pgx.Tx, agent, agentDir string) (size int64, err error) {
	var manifest []byte
	err = tx.QueryRow(ctx, "SELECT manifest FROM workdir WHERE agent_id = $1", agent).Scan(&manifest)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, unit.Problem(err)
	}
	tree, err := workdir.Decode(manifest)
	if err != nil {
		return 0, err
	}
	err = workdir.Lay(ctx, filepath.Join(agentDir, "workdir"), workdir.Tree{}, tree, nil, func(ctx context.Context, hashes []string, found func(string, []byte) error) error {
		for part := range slices.Chunk(hashes, workdirChunk/workdir.Piece) {
			rows, err := tx.Query(ctx, "SELECT hash, data FROM workdir_piece WHERE agent_id = $1 AND hash = ANY($2)", agent, part)
			if err != nil {
				return unit.Problem(err)
			}
			got := map[string][]byte{}
			var hash string
			var data []byte
			if _, err := pgx.ForEachRow(rows, []any{&hash, &data}, func() error {
				got[hash] = slices.Clone(data)
				return nil
			}); err != nil {
				return unit.Problem(err)
			}
			for _, hash := range slices.Sorted(maps.Keys(got)) {
				if err := found(hash, got[hash]); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("copy working directory: %w", err)
	}
	return tree.Size(), nil
}
