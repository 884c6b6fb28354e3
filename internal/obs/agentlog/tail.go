package agentlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxTail is how much of a file Tail reads, from its end.
const maxTail = 4 << 20

// Tail returns the newest lines in dir, at most n, in their order: those of agent.log,
// and before them of the rotated files as long as there are too few. Lines that wait to
// be written are not among them. No directory is no lines.
func Tail(dir string, n int) ([]string, error) {
	old, err := filepath.Glob(filepath.Join(dir, "agent-*.log"))
	if err != nil {
		return nil, err
	}
	slices.Sort(old)
	slices.Reverse(old)
	var out []string
	for _, path := range append([]string{filepath.Join(dir, "agent.log")}, old...) {
		if len(out) >= n {
			break
		}
		lines, err := tail(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read agent log: %w", err)
		}
		out = append(lines, out...)
	}
	return out[max(0, len(out)-n):], nil
}

// tail returns the complete lines at the end of a file.
func tail(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // it was only read
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	from := max(0, st.Size()-maxTail)
	b := make([]byte, st.Size()-from)
	read, err := f.ReadAt(b, from)
	if err != nil && read < len(b) {
		return nil, err
	}
	text := strings.ToValidUTF8(string(b[:read]), "?")
	if from > 0 { // begins inside of a line
		_, text, _ = strings.Cut(text, "\n")
	}
	end := strings.LastIndexByte(text, '\n')
	if end < 0 {
		return nil, nil
	}
	return strings.Split(text[:end], "\n"), nil
}
