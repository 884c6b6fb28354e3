package state

import (
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/theclaw/agents/internal/agentdir"
)

func settingsStamp(home *agentdir.Home, dir agentdir.Dir) string {
	return stamp(dir.Path+"/config.yaml", home.DefaultsFile(), home.JSON5File())
}

// Stamp returns times and sizes of the files of a database; equal stamps mean that nobody
// has written since the first was taken. An empty log counts as none, because a reader
// creates and removes one.
func Stamp(dir string) string { return stamp(dir+"/events.db", dir+"/events.db-wal") }

// stampAt is the stamp of a database without a log, of this time and size.
func stampAt(written time.Time, size int64) string {
	return string(append(appendFile(nil, written.UnixNano(), size), absent...))
}

const (
	absent = "-;" // for a file that is not there
	early  = "!"  // before the number of a stamp that was taken too soon
)

func appendFile(b []byte, at, size int64) []byte {
	b = append(strconv.AppendInt(b, at, 36), '.')
	return append(strconv.AppendInt(b, size, 36), ';')
}

var soon atomic.Uint64 // stamps that were taken too soon

// stamp is called several times per message. A stamp that is taken within a tick of the
// last write equals no other, because a second write in that tick would not show.
func stamp(paths ...string) string {
	var buf [64]byte
	b := buf[:0]
	var newest int64
	for _, path := range paths {
		var st unix.Stat_t
		if unix.Stat(path, &st) != nil || st.Size == 0 && strings.HasSuffix(path, "-wal") {
			b = append(b, absent...)
			continue
		}
		at := time.Unix(st.Mtim.Unix()).UnixNano()
		newest = max(newest, at)
		b = appendFile(b, at, st.Size)
	}
	if ago := time.Now().UnixNano() - newest; ago < int64(agentdir.FileTick) && ago > -int64(agentdir.FileTick) {
		b = strconv.AppendUint(append(b, early...), soon.Add(1), 36)
	}
	return string(b)
}
