package mirror

import (
	"bytes"
	"os"
	"path/filepath"
)

// Last returns the id in the last complete line of the events.jsonl in dir; 0 when there is
// none. It reads the end of the file only: a last line of more than 16 MiB is none of ours.
func Last(dir string) int64 {
	f, err := os.Open(filepath.Join(dir, "events.jsonl"))
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0
	}
	const (
		piece   = 64 << 10
		longest = 16 << 20 // an event of 1 MiB, each byte escaped, and more
	)
	var tail []byte
	for at := info.Size(); at > 0 && len(tail) < longest; {
		n := min(at, piece)
		at -= n
		b := make([]byte, n, int(n)+len(tail))
		if _, err := f.ReadAt(b, at); err != nil {
			return 0
		}
		tail = append(b, tail...)
		end := bytes.LastIndexByte(tail, '\n') // what follows is not complete
		if end < 0 {
			continue
		}
		if begin := bytes.LastIndexByte(tail[:end], '\n'); begin >= 0 || at == 0 {
			return idOf(tail[begin+1 : end])
		}
	}
	return 0
}
