package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/unit"
	"github.com/theclaw/agents/internal/thread"
)

// PutMedia writes row and data in one transaction.
func (e *Engine) PutMedia(ctx context.Context, agent string, f *store.Fence, m store.MediaInfo, data []byte) error {
	s := &putMedia{m: m, data: data}
	if f != nil {
		return e.fenced(ctx, store.Inbox(agent), *f, s)
	}
	return e.do(ctx, store.Inbox(agent), s)
}

type putMedia struct {
	nothing

	m    store.MediaInfo
	data []byte
}

// Decide queues the writes. Data that are there are those of the hash.
func (s *putMedia) Decide(_ context.Context, tx *unit.Tx) error {
	tx.ExecRaw("INSERT INTO media(agent_id, sha256, mime, name, size, at) VALUES($1,$2,$3,$4,$5,$6) ON CONFLICT (agent_id, sha256) DO UPDATE SET at = excluded.at",
		tx.Agent, s.m.SHA256, s.m.MIME, s.m.Name, s.m.Size, tx.Time.UnixMilli())
	n := int64(0)
	for piece := range slices.Chunk(s.data, store.MediaPiece) {
		tx.ExecRaw("INSERT INTO media_piece(agent_id, sha256, n, data) VALUES($1,$2,$3,$4) ON CONFLICT DO NOTHING", tx.Agent, s.m.SHA256, n, piece)
		n++
	}
	return nil
}

func mediaError(what, agent string, err error) error {
	if err == nil || errors.Is(err, store.ErrNoMedia) {
		return err
	}
	return fmt.Errorf("%s media of %s: %w", what, agent, unit.Problem(err))
}

const mediaColumns = "sha256, mime, name, size, at"

func scanMedia(row pgx.CollectableRow) (m store.MediaInfo, err error) {
	var at int64
	dest := []any{&m.SHA256, &m.MIME, &m.Name, &m.Size, &at}
	if err = row.Scan(dest...); err == nil {
		err = unit.Restore(dest)
	}
	m.At = store.FromMillis(at)
	return m, err
}

// MediaInfo describes media.
func (e *Engine) MediaInfo(ctx context.Context, agent, sha256 string) (m store.MediaInfo, err error) {
	rows, err := e.db.Query(ctx, "SELECT "+mediaColumns+" FROM media WHERE agent_id = $1 AND sha256 = $2", agent, sha256)
	if err == nil {
		if m, err = pgx.CollectExactlyOneRow(rows, scanMedia); errors.Is(err, pgx.ErrNoRows) {
			err = store.ErrNoMedia
		}
	}
	return m, mediaError("read", agent, err)
}

// MediaPiece reads a piece.
func (e *Engine) MediaPiece(ctx context.Context, agent, sha256 string, n int64) (data []byte, err error) {
	err = e.db.QueryRow(ctx, "SELECT data FROM media_piece WHERE agent_id = $1 AND sha256 = $2 AND n = $3", agent, sha256, n).Scan(&data)
	if errors.Is(err, pgx.ErrNoRows) {
		err = store.ErrNoMedia
	}
	return data, mediaError("read", agent, err)
}

// ListMedia lists rows.
func (e *Engine) ListMedia(ctx context.Context, agent string, before time.Time, after string, limit int) (out []store.MediaInfo, err error) {
	rows, err := e.db.Query(ctx, "SELECT "+mediaColumns+" FROM media WHERE agent_id = $1 AND at < $2 AND sha256 > $3 ORDER BY sha256 LIMIT $4", agent, before.UnixMilli(), after, limit)
	if err == nil {
		out, err = pgx.CollectRows(rows, scanMedia)
	}
	return out, mediaError("list", agent, err)
}

// MediaRefs reads the journal and the events of a thread.
func (e *Engine) MediaRefs(ctx context.Context, r store.Ref, since time.Time, found func(sha256 string)) error {
	return e.view(ctx, r, &mediaRefs{since: since, found: found})
}

type mediaRefs struct {
	nothing

	since time.Time
	found func(sha256 string)
}

// Load queues the reads.
func (s *mediaRefs) Load(tx *unit.Tx) {
	from := ""
	if !s.since.IsZero() {
		from = thread.Stamp(s.since)
	}
	tx.Read("SELECT result FROM step WHERE agent_id = $1 AND thread_id = $2 AND position($3::bytea IN result) > 0", []any{[]byte(store.MediaRefMark)}, func(scan func(...any) error) error {
		var result []byte
		err := scan(&result)
		store.FindMediaRefs(result, s.found)
		return err
	})
	tx.Read(`SELECT e.content FROM event e LEFT JOIN fate f ON f.agent_id = $1 AND f.thread_id = $2 AND f.inbox_id = e.id
		WHERE e.agent_id = $1 AND e.thread_id = $2 AND strpos(e.content, $4) > 0
		AND (e.created_at >= $3 OR $2 = 'inbox' AND `+mediaNeeded+`)`, []any{from, store.MediaRefMark}, func(scan func(...any) error) error {
		var content string
		err := scan(&content)
		store.FindMediaRefs([]byte(content), s.found)
		return err
	})
}

// RemoveMedia removes rows; the data go with them.
func (e *Engine) RemoveMedia(ctx context.Context, agent string, sha256 []string, before time.Time) (out store.Share, err error) {
	if len(sha256) == 0 {
		return out, nil
	}
	err = e.db.QueryRow(ctx, `WITH gone AS (DELETE FROM media WHERE agent_id = $1 AND sha256 = ANY($2) AND at < $3 RETURNING size)
		SELECT COUNT(*), COALESCE(SUM(size), 0)::bigint FROM gone`, agent, sha256, before.UnixMilli()).Scan(&out.Gone, &out.Bytes)
	return out, mediaError("remove", agent, err)
}
