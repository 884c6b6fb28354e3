package db

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/theclaw/agents/internal/store"
)

// Rest is a database that was closed with all of it in one file, and what that looks
// like from outside: while the file has this time and size and there is no log beside
// it, nobody has written since.
type Rest struct {
	Head    int64
	LastAt  string // when the newest event came; empty when there is none
	Written time.Time
	Size    int64
}

// Rest is Close for who wants to know later whether another program has written; ok is
// false when that cannot be told. The time of the file is set to one of its own, because
// that of another program's write may be the same tick as that of ours. Whoever writes
// after the head was read leaves a log, or another time.
func (d *DB) Rest() (r Rest, ok bool, err error) {
	if s := d.Stats(); s.Durable+s.Lazy > 0 && !d.opts.Guest { // else the file is as it was
		ok = d.submit(context.Background(), &op{alone: func() error { return d.mark(&r) }}) == nil
	}
	if err := d.Close(); err != nil || !ok {
		return r, false, err
	}
	var st unix.Stat_t
	ok = unix.Stat(d.name, &st) == nil && time.Unix(st.Mtim.Unix()).Equal(r.Written) &&
		st.Ino == d.file.Ino && errors.Is(unix.Access(d.name+"-wal", unix.F_OK), unix.ENOENT)
	r.Size = st.Size
	return r, ok, nil
}

// mark brings all that is in the log into the file, which closing would do too, gives
// it a time, and reads the head.
func (d *DB) mark(r *Rest) error {
	var busy, inLog, moved int
	if _, err := d.ask("PRAGMA wal_checkpoint(PASSIVE)", nil, &busy, &inLog, &moved); err != nil {
		return err
	}
	if busy != 0 || inLog != moved {
		return store.ErrBusy // who reads needs the log
	}
	r.Written = time.Now().Round(0)
	if err := os.Chtimes(d.name, time.Time{}, r.Written); err != nil {
		return err
	}
	_, err := d.ask("SELECT COALESCE(MAX(id),0), COALESCE((SELECT created_at FROM events ORDER BY id DESC LIMIT 1),'') FROM events", nil, &r.Head, &r.LastAt)
	return err
}
