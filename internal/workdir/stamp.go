package workdir

import (
	"io/fs"
	"syscall"
	"time"
)

// stamp changes whenever a file is written, if it is settled.
type stamp struct {
	size, modified, changed int64
	inode                   uint64
}

// tick is more than the resolution of modification times.
const tick = 20 * time.Millisecond

// settled reports that a file was not written within a tick of now: a second write in it
// would not change the stamp.
func (s stamp) settled(now time.Time) bool {
	ago := now.UnixNano() - max(s.modified, s.changed)
	return ago >= int64(tick) || ago <= -int64(tick)
}

func stampOf(info fs.FileInfo) stamp {
	s := stamp{size: info.Size(), modified: info.ModTime().UnixNano()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.changed, s.inode = changed(st), st.Ino
	}
	return s
}
