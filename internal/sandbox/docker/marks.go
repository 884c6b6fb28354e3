package docker

import (
	"bytes"
	"strconv"
)

// maxCode bounds what follows the mark in a line of the script.
const maxCode = 8

// marks takes the lines of the script out of stderr.
type marks struct {
	mark []byte
	held []byte // the beginning of a line that may be one of the script

	begin   func()        // called when the program may run; nil: nothing is
	started chan struct{} // closed then
	ended   chan struct{} // closed when its process group has ended; then code is set
	code    int
}

func newMarks(mark string, begin func()) *marks {
	return &marks{mark: []byte("\x01" + mark), begin: begin, started: make(chan struct{}), ended: make(chan struct{})}
}

// filter returns what is not of the script. With end set nothing is kept back.
func (m *marks) filter(b []byte, end bool) (out []byte) {
	m.held = append(m.held, b...)
	for {
		i := bytes.Index(m.held, m.mark)
		if i < 0 {
			break
		}
		rest := m.held[i+len(m.mark):]
		line, after, complete := bytes.Cut(rest, []byte("\n"))
		if !complete && len(rest) <= maxCode && !end {
			out = append(out, m.held[:i]...)
			m.held = bytes.Clone(m.held[i:])
			return out
		}
		out = append(out, m.held[:i]...)
		if m.held = rest; complete && len(line) <= maxCode {
			m.note(string(bytes.TrimSpace(line)))
			m.held = after
		}
	}
	keep := 0
	for n := min(len(m.mark)-1, len(m.held)); n > 0 && keep == 0 && !end; n-- {
		if bytes.HasSuffix(m.held, m.mark[:n]) {
			keep = n
		}
	}
	out = append(out, m.held[:len(m.held)-keep]...)
	m.held = bytes.Clone(m.held[len(m.held)-keep:])
	return out
}

func (m *marks) note(line string) {
	code, err := strconv.Atoi(line)
	switch {
	case line == "" && !closed(m.started):
		close(m.started)
		if m.begin != nil {
			m.begin()
		}
	case err == nil && !closed(m.ended):
		m.code = code
		close(m.ended)
	}
}

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
