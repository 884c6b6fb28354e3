package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/store/sqlite/schema"
	"github.com/theclaw/agents/internal/thread"
)

// mediaDir is the directory of the media of an agent: media/<2 hex>/<sha256>. A file that is being written is
// media/.media-<digits>; one that a crash has left is removed by a later write.
func (e *Engine) mediaDir(agent string) (string, error) {
	main, err := e.o.Path(store.Ref{Agent: agent, Thread: "threads/main"}) // the inbox may be elsewhere
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(filepath.Dir(main)), "media"), nil
}

func mediaFile(dir, sha256 string) string { return filepath.Join(dir, sha256[:2], sha256) }

const mediaTemp = ".media-"

// PutMedia writes the data completely, gives the file its name, and then writes the row.
func (e *Engine) PutMedia(ctx context.Context, agent string, f *store.Fence, m store.MediaInfo, data []byte) error {
	dir, err := e.mediaDir(agent)
	if err != nil {
		return err
	}
	tmp, err := writeMedia(dir, m.SHA256, data)
	if err != nil {
		return fmt.Errorf("write media: %w", db.FileError(err))
	}
	put := func(tx *db.Tx) error {
		if err := tx.MakeMedia(); err != nil {
			return err
		}
		_, err := tx.Exec("INSERT INTO x_media(sha256, mime, name, size, at) VALUES(?,?,?,?,?) ON CONFLICT(sha256) DO UPDATE SET at = excluded.at",
			m.SHA256, m.MIME, m.Name, m.Size, time.Now().UnixMilli())
		return err
	}
	e.media.RLock() // no removal takes the file for one without a row
	defer e.media.RUnlock()
	to := mediaFile(dir, m.SHA256)
	if err := os.Rename(tmp, to); err != nil {
		return fmt.Errorf("name media: %w", db.FileError(errors.Join(err, os.Remove(tmp))))
	}
	if err := schema.SyncDir(filepath.Dir(to)); err != nil {
		return fmt.Errorf("name media: %w", db.FileError(err))
	}
	if f != nil {
		return e.fenced(ctx, store.Inbox(agent), *f, true, put)
	}
	return e.do(ctx, store.Inbox(agent), true, put)
}

// writeMedia writes the data to a file without a final name, and returns its path. The directory of the agent is not
// made: one that was removed stays removed.
func writeMedia(dir, sha256 string, data []byte) (path string, err error) {
	for _, d := range []string{dir, filepath.Dir(mediaFile(dir, sha256))} {
		if err := os.Mkdir(d, 0o700); errors.Is(err, fs.ErrExist) {
			continue
		} else if err != nil {
			return "", err
		}
		if err := schema.SyncDir(filepath.Dir(d)); err != nil {
			return "", err
		}
	}
	if err := removeOld(dir, time.Now().Add(-store.MediaGrace), func(name string) bool { return strings.HasPrefix(name, mediaTemp) }); err != nil {
		return "", err
	}
	tmp, err := os.CreateTemp(dir, mediaTemp)
	if err != nil {
		return "", err
	}
	_, err = tmp.Write(data)
	if err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return "", errors.Join(err, os.Remove(tmp.Name()))
	}
	return tmp.Name(), nil
}

// removeOld removes the files of a directory that were written before a time and that which selects.
func removeOld(dir string, before time.Time, which func(name string) bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() || !which(entry.Name()) {
			continue
		}
		info, err := entry.Info()
		if err == nil && info.ModTime().Before(before) {
			err = os.Remove(filepath.Join(dir, entry.Name()))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

const mediaColumns = "sha256, mime, name, size, at"

func scanMedia(scan func(...any) error) (m store.MediaInfo, err error) {
	var at int64
	err = scan(&m.SHA256, &m.MIME, &m.Name, &m.Size, &at)
	m.At = store.FromMillis(at)
	return m, err
}

// MediaInfo describes media.
func (e *Engine) MediaInfo(ctx context.Context, agent, sha256 string) (store.MediaInfo, error) {
	return view(ctx, e, store.Inbox(agent), func(tx *db.Tx) (m store.MediaInfo, err error) {
		if !tx.HasMedia() {
			return m, store.ErrNoMedia
		}
		var at int64
		there, err := tx.Row("SELECT "+mediaColumns+" FROM x_media WHERE sha256 = ?", []any{sha256}, &m.SHA256, &m.MIME, &m.Name, &m.Size, &at)
		if m.At = store.FromMillis(at); err == nil && !there {
			err = store.ErrNoMedia
		}
		return m, err
	})
}

// MediaPiece reads a piece of the file.
func (e *Engine) MediaPiece(_ context.Context, agent, sha256 string, n int64) (_ []byte, err error) {
	dir, err := e.mediaDir(agent)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(mediaFile(dir, sha256))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, store.ErrNoMedia
	}
	if err != nil {
		return nil, fmt.Errorf("read media: %w", db.FileError(err))
	}
	defer func() { _ = f.Close() }() // it is only read
	b := make([]byte, store.MediaPiece)
	got, err := f.ReadAt(b, n*store.MediaPiece)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, fmt.Errorf("read media: %w", db.FileError(err))
	case got == 0:
		return nil, store.ErrNoMedia
	}
	return b[:got], nil
}

// ListMedia lists rows.
func (e *Engine) ListMedia(ctx context.Context, agent string, before time.Time, after string, limit int) ([]store.MediaInfo, error) {
	return view(ctx, e, store.Inbox(agent), func(tx *db.Tx) (out []store.MediaInfo, err error) {
		if !tx.HasMedia() {
			return nil, nil
		}
		err = tx.Each("SELECT "+mediaColumns+" FROM x_media WHERE at < ? AND sha256 > ? ORDER BY sha256 LIMIT ?", []any{before.UnixMilli(), after, limit}, func(scan func(...any) error) error {
			m, err := scanMedia(scan)
			out = append(out, m)
			return err
		})
		return out, err
	})
}

// MediaRefs reads the journal and the events of a thread.
func (e *Engine) MediaRefs(ctx context.Context, r store.Ref, since time.Time, found func(sha256 string)) error {
	from := ""
	if !since.IsZero() {
		from = thread.Stamp(since)
	}
	wanted := "e.created_at >= ?"
	if r.IsInbox() {
		wanted = "(" + wanted + " OR NOT EXISTS (SELECT 1 FROM x_fate f WHERE f.inbox_id = e.id) OR EXISTS (SELECT 1 FROM x_dead d WHERE d.inbox_id = e.id AND d.resolved = ''))"
	}
	_, err := view(ctx, e, r, func(tx *db.Tx) (struct{}, error) {
		mark := []byte(store.MediaRefMark)
		each := func(scan func(...any) error) error {
			var text []byte
			err := scan(&text)
			store.FindMediaRefs(text, found)
			return err
		}
		err := tx.Each("SELECT result FROM x_step WHERE instr(result, ?) > 0", []any{mark}, each)
		if err == nil {
			err = tx.Each("SELECT CAST(e.content AS BLOB) FROM events e WHERE "+wanted+" AND instr(CAST(e.content AS BLOB), ?) > 0", []any{from, mark}, each)
		}
		return struct{}{}, err
	})
	return err
}

// RemoveMedia removes the rows before the files: what a crash leaves is a file without a row.
func (e *Engine) RemoveMedia(ctx context.Context, agent string, sha256 []string, before time.Time) (out store.Share, err error) {
	dir, err := e.mediaDir(agent)
	if err != nil {
		return out, err
	}
	e.media.Lock()
	defer e.media.Unlock()
	var gone []string
	if len(sha256) > 0 {
		if err := e.do(ctx, store.Inbox(agent), true, func(tx *db.Tx) (err error) {
			gone, out, err = removeMedia(tx, sha256, before)
			return err
		}); err != nil {
			return out, err
		}
	}
	for _, sum := range gone {
		if err := os.Remove(mediaFile(dir, sum)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return out, fmt.Errorf("remove media: %w", db.FileError(err))
		}
	}
	dirs, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	for _, d := range dirs {
		if err == nil && d.IsDir() {
			err = removeOld(filepath.Join(dir, d.Name()), before, func(name string) bool {
				_, err := e.MediaInfo(ctx, agent, name)
				return errors.Is(err, store.ErrNoMedia)
			})
		}
	}
	if err != nil {
		err = fmt.Errorf("remove media: %w", db.FileError(err))
	}
	return out, err
}

// removeMedia removes rows, and returns the hashes of those that were there.
func removeMedia(tx *db.Tx, sha256 []string, before time.Time) (gone []string, out store.Share, err error) {
	if !tx.HasMedia() {
		return nil, out, nil
	}
	for _, sum := range sha256 {
		var size int64
		there, err := tx.Row("SELECT size FROM x_media WHERE sha256 = ? AND at < ?", []any{sum, before.UnixMilli()}, &size)
		if err == nil && there {
			gone, out.Gone, out.Bytes = append(gone, sum), out.Gone+1, out.Bytes+size
			_, err = tx.Exec("DELETE FROM x_media WHERE sha256 = ?", sum)
		}
		if err != nil {
			return nil, out, err
		}
	}
	return gone, out, nil
}
