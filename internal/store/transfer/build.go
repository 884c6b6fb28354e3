package transfer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/store/transfer/rows"
	"github.com/theclaw/agents/internal/thread"
)

// put writes a row, soon.
func (d *directory) put(ctx context.Context, r rows.Row) error {
	switch r.Table {
	case rows.File:
		return writeText(d.path, r.Values[0].(string), r.Values[1].([]byte))
	case rows.Thread:
		if err := d.next(ctx, r.Thread); err != nil {
			return err
		}
	}
	if r.Table == rows.Session {
		d.sessions = append(d.sessions, r)
	}
	d.queued = append(d.queued, r)
	for _, v := range r.Values {
		switch v := v.(type) {
		case string:
			d.size += len(v)
		case []byte:
			d.size += len(v)
		}
	}
	if len(d.queued) < maxRows && d.size < maxBytes {
		return nil
	}
	return d.flush(ctx)
}

// next ends the thread that is written and begins one.
func (d *directory) next(ctx context.Context, th string) error {
	if err := errors.Join(d.flush(ctx), d.close()); err != nil {
		return err
	}
	if th != thread.Inbox && (!strings.HasPrefix(th, "threads/") || !filepath.IsLocal(filepath.FromSlash(th))) {
		return fault.New(codes.DataLoss, fault.DatabaseCorrupt, fmt.Sprintf("%.80q is not a thread", th), "run 'agentctl fsck' on the source")
	}
	at := d.dir(th)
	if err := os.MkdirAll(at, 0o700); err != nil {
		return fmt.Errorf("make thread: %w", err)
	}
	if _, err := db.Create(at); err != nil {
		return err
	}
	var err error
	d.open, err = db.Open(ctx, at, db.Options{})
	return err
}

func (d *directory) flush(ctx context.Context) error {
	if len(d.queued) == 0 {
		return nil
	}
	list := d.queued
	d.queued, d.size = nil, 0
	return d.open.Do(ctx, true, func(tx *db.Tx) error {
		for _, r := range list {
			if err := writeThreadRow(tx, r); err != nil {
				return fmt.Errorf("write %s of %s: %w", r.Table.Name, r.Thread, err)
			}
		}
		return nil
	})
}

// finished writes the list of sessions, and reads every row of what was written.
func (d *directory) finished(ctx context.Context, emit func(rows.Row) error) error {
	if err := errors.Join(d.flush(ctx), d.close()); err != nil {
		return err
	}
	if err := d.list(ctx); err != nil {
		return fmt.Errorf("write the list of sessions: %w", err)
	}
	d.bare = true
	return d.read(ctx, emit)
}

// list writes the sessions of the conversations into the inbox.
func (d *directory) list(ctx context.Context) (err error) {
	if len(d.sessions) == 0 {
		return nil
	}
	c, err := db.Open(ctx, d.inbox, db.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	return c.Do(ctx, true, func(tx *db.Tx) error { return writeSessions(tx, d.sessions) })
}

func (d *directory) close() error {
	if d.open == nil {
		return nil
	}
	err := d.open.Close()
	d.open = nil
	return err
}
