package transfer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/unit"
)

// Media that have lost their data have lost them afterwards too: they end no move, and fsck names them on both sides.

// importMedia copies the data of an agent's media into the database, whose rows are there.
func importMedia(ctx context.Context, tx pgx.Tx, agent, agentDir string) error {
	sums, err := mediaOf(ctx, tx, agent)
	if err != nil {
		return err
	}
	for _, sum := range sums {
		data, err := readMedia(filepath.Join(agentDir, "media", sum[:2], sum))
		if err != nil {
			return fmt.Errorf("copy media: %w", err)
		}
		if got := sha256.Sum256(data); hex.EncodeToString(got[:]) != sum {
			continue
		}
		n := int64(0)
		for piece := range slices.Chunk(data, store.MediaPiece) {
			if _, err := tx.Exec(ctx, "INSERT INTO media_piece(agent_id, sha256, n, data) VALUES($1, $2, $3, $4) ON CONFLICT DO NOTHING", agent, sum, n, piece); err != nil {
				return unit.Problem(err)
			}
			n++
		}
	}
	return nil
}

// readMedia returns a file, or nothing when there is none; what is larger than media can be is cut.
func readMedia(path string) (data []byte, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it is only read
	return io.ReadAll(io.LimitReader(f, store.MaxMedia+1))
}

// exportMedia writes the data of an agent's media into its directory.
func exportMedia(ctx context.Context, tx pgx.Tx, agent, agentDir string) error {
	sums, err := mediaOf(ctx, tx, agent)
	if err != nil {
		return err
	}
	for _, sum := range sums {
		var data []byte
		err := tx.QueryRow(ctx, "SELECT COALESCE(string_agg(data, ''::bytea ORDER BY n), '') FROM media_piece WHERE agent_id = $1 AND sha256 = $2", agent, sum).Scan(&data)
		if err != nil {
			return unit.Problem(err)
		}
		if got := sha256.Sum256(data); hex.EncodeToString(got[:]) != sum {
			continue
		}
		if err := layMedia(filepath.Join(agentDir, "media"), sum, data); err != nil {
			return fmt.Errorf("copy media: %w", err)
		}
	}
	return nil
}

// layMedia writes a file, on disk with its directories. The directory of the agent is not in use yet.
func layMedia(dir, sum string, data []byte) error {
	to := filepath.Join(dir, sum[:2])
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(to, sum), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close(), syncDir(to), syncDir(dir), syncDir(filepath.Dir(dir)))
}

// mediaOf lists the media of an agent.
func mediaOf(ctx context.Context, tx pgx.Tx, agent string) ([]string, error) {
	rows, err := tx.Query(ctx, "SELECT sha256 FROM media WHERE agent_id = $1 ORDER BY sha256", agent)
	if err != nil {
		return nil, unit.Problem(err)
	}
	sums, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return sums, unit.Problem(err)
}
