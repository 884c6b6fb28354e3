package agentdir

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// cacheBytes bounds the content that is kept of all files, in bytes.
	cacheBytes = 2 << 20
	// FileTick is more than the resolution of the times of files: of two writes that are
	// closer than this the second need not show in them.
	FileTick = 20 * time.Millisecond
)

// fileCache keeps the content of files that the prompt of each message has in it. Before
// it is used the file is looked at: any other inode, size, time of change or time of
// modification makes it read again.
type fileCache struct {
	mu    sync.Mutex
	bytes int
	files map[string]cachedFile
}

type cachedFile struct {
	stamp fileStamp
	data  []byte
}

// fileStamp tells states of a file apart.
type fileStamp struct {
	device, inode     uint64
	size              int64
	modified, changed int64 // in nanoseconds
}

// stampOf looks at a file, not at what a link points to. settled is false for what is no
// file, and within a tick of its last write, since a second one would not show.
func stampOf(path string) (s fileStamp, settled bool, err error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return s, false, err
	}
	s = fileStamp{device: uint64(st.Dev), inode: st.Ino, size: st.Size, modified: st.Mtim.Nano(), changed: st.Ctim.Nano()} //nolint:unconvert // another type on darwin
	ago := time.Since(time.Unix(0, max(s.modified, s.changed)))
	return s, st.Mode&unix.S_IFMT == unix.S_IFREG && (ago > FileTick || ago < -FileTick), nil
}

func (c *fileCache) get(path string, s fileStamp) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, ok := c.files[path]
	return f.data, ok && f.stamp == s
}

// put keeps what was read after the file had the stamp. All is forgotten when it is too
// much: what is in use comes back with the next messages.
func (c *fileCache) put(path string, s fileStamp, data []byte) {
	const entry = 512 // of a file in the map, with its path
	size := len(data) + entry
	if size > cacheBytes/16 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.files[path]; ok {
		c.bytes -= len(old.data) + entry
	}
	if c.files == nil || c.bytes+size > cacheBytes {
		c.files, c.bytes = map[string]cachedFile{}, 0
	}
	c.files[path] = cachedFile{s, data}
	c.bytes += size
}
