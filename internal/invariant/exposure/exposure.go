// Package exposure owns what others may see of a home: the modes of its files
// ([PrivateMode]), and whether a text that must stay secret is in one ([Holds]).
//
// It changes nothing and knows no agent.
package exposure

import (
	"bytes"
	"encoding/json"
	"io"
	"io/fs"
)

// PrivateMode is the mode that a file of a home must have at most; false when
// the mode does not count, as that of a symbolic link.
func PrivateMode(info fs.FileInfo) (fs.FileMode, bool) {
	switch {
	case info.IsDir():
		return 0o700, true
	case info.Mode().IsRegular(), info.Mode()&fs.ModeSocket != 0:
		return 0o600, true
	}
	return 0, false
}

// Holds tells whether a stream holds one of the secrets, as it is or as JSON
// writes it. It reads pieces that overlap by the longest secret.
func Holds(r io.Reader, secrets []string) bool {
	var want [][]byte
	longest := 0
	for _, s := range secrets {
		if s == "" {
			continue
		}
		want = append(want, []byte(s))
		if j, err := json.Marshal(s); err == nil && string(j[1:len(j)-1]) != s {
			want = append(want, j[1:len(j)-1])
		}
	}
	for _, w := range want {
		longest = max(longest, len(w))
	}
	if longest == 0 {
		return false
	}
	buf := make([]byte, 0, 1<<18+longest)
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		for _, w := range want {
			if bytes.Contains(buf, w) {
				return true
			}
		}
		if err != nil {
			return false
		}
		keep := min(len(buf), longest-1)
		buf = append(buf[:0], buf[len(buf)-keep:]...)
	}
}
