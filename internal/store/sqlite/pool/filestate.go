package pool

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/conn"
)

// fileState is what a database holds and what its file looks like once it is closed, so
// that the owner can later check, without opening it, that nobody has written since:
//
//	checkpoint --> unique modification time --> read the head --> close --> holds?
//
// The checkpoint moves the log into the file, as closing would do anyway. The file gets a
// modification time that no write has: two writes in one tick of the file system's clock
// have the same time, and another program's write may be in the tick of ours. A program
// that writes after the head was read leaves a log next to the file, or the time of its
// write on it, because the time is set before the reading. holds is never true by mistake.
type fileState struct {
	store.AtRest

	path string
	ino  uint64
}

// markClosed marks the database at path and returns its state. No other operation uses the
// connection, and the caller closes it next. It writes only what the log holds.
// store.ErrBusy when another program reads and so keeps the log.
func markClosed(c conn.Conn, path string) (s fileState, err error) {
	var busy, inLog, moved int
	if err := scanRow(c, "PRAGMA wal_checkpoint(PASSIVE)", &busy, &inLog, &moved); err != nil {
		return s, err
	}
	if busy != 0 || inLog != moved {
		return s, store.ErrBusy
	}
	s.Written = time.Now().Round(0)
	if err := os.Chtimes(path, time.Time{}, s.Written); err != nil {
		return s, err
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return s, err
	}
	s.path, s.ino, s.Size = path, st.Ino, st.Size
	return s, scanRow(c, "SELECT COALESCE(MAX(id),0), COALESCE((SELECT created_at FROM events ORDER BY id DESC LIMIT 1),'') FROM events", &s.Head, &s.LastAt)
}

// holds reports whether the database, closed since, is as it was marked.
func (s fileState) holds() bool {
	var st unix.Stat_t
	return unix.Stat(s.path, &st) == nil && st.Ino == s.ino && st.Size == s.Size && time.Unix(st.Mtim.Unix()).Equal(s.Written) &&
		errors.Is(unix.Access(s.path+"-wal", unix.F_OK), unix.ENOENT)
}

func scanRow(c conn.Conn, q string, dest ...any) error {
	s, err := c.Prepare(q)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // repeats the error of the statement
	_, err = s.Row(nil, dest)
	return err
}
