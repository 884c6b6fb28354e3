// Package rest owns what a database looks like once it is closed, so that its owner can
// tell later, without opening it, that nobody has written since.
//
//	checkpoint --> a time of its own --> head is read --> closed --> Holds?
//
// All that is in the log goes into the file, as closing would do anyway. The file gets a
// time that no write has: two writes in one tick of the file system's clock have the same
// one, and another program's may be in the tick of ours. Whoever writes after the head
// was read leaves a log beside the file, or the time of his write on it; the time is set
// before the reading. It promises no false Holds, and that nothing is written but what
// the log has. It opens and closes nothing.
package rest

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/conn"
)

// Look is what a database holds and looks like.
type Look struct {
	store.AtRest

	path string
	ino  uint64
}

// Mark gives the database at path its look; nothing else uses the connection, and it is
// closed next. store.ErrBusy when another program reads and so keeps the log.
func Mark(c conn.Conn, path string) (l Look, err error) {
	var busy, inLog, moved int
	if err := row(c, "PRAGMA wal_checkpoint(PASSIVE)", &busy, &inLog, &moved); err != nil {
		return l, err
	}
	if busy != 0 || inLog != moved {
		return l, store.ErrBusy
	}
	l.Written = time.Now().Round(0)
	if err := os.Chtimes(path, time.Time{}, l.Written); err != nil {
		return l, err
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return l, err
	}
	l.path, l.ino, l.Size = path, st.Ino, st.Size
	return l, row(c, "SELECT COALESCE(MAX(id),0), COALESCE((SELECT created_at FROM events ORDER BY id DESC LIMIT 1),'') FROM events", &l.Head, &l.LastAt)
}

// Holds tells whether the database, closed since, is as it was marked.
func (l Look) Holds() bool {
	var st unix.Stat_t
	return unix.Stat(l.path, &st) == nil && st.Ino == l.ino && st.Size == l.Size && time.Unix(st.Mtim.Unix()).Equal(l.Written) &&
		errors.Is(unix.Access(l.path+"-wal", unix.F_OK), unix.ENOENT)
}

func row(c conn.Conn, q string, dest ...any) error {
	s, err := c.Prepare(q)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // it says again what the statement said
	_, err = s.Row(nil, dest)
	return err
}
