package mcp

import (
	"bytes"
	"errors"
	"io"
	"sync"

	"github.com/theclaw/agents/internal/sandbox"
)

const (
	// maxMessage bounds a message of a server, in bytes.
	maxMessage = 4 << 20
	// maxUnread bounds what a process has printed and is not read yet, in bytes.
	maxUnread = 2 * maxMessage
	// maxErrors is how much of the end of stderr is kept, in bytes.
	maxErrors = 2 << 10
)

var errFlood = errors.New("it prints faster than it is read")

// stream is what a process prints, from the sandbox, which must not wait, to a reader. It implements
// [io.ReadCloser].
type stream struct {
	mu      sync.Mutex
	more    *sync.Cond
	buf     bytes.Buffer
	end     error  // after buf
	flooded func() // called once, when there is too much
}

func newStream(flooded func()) *stream {
	s := &stream{flooded: sync.OnceFunc(flooded)}
	s.more = sync.NewCond(&s.mu)
	return s
}

// add takes a piece of the output.
func (s *stream) add(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.end != nil:
		return
	case s.buf.Len()+len(b) > maxUnread:
		s.end = errFlood
		s.flooded()
	default:
		s.buf.Write(b)
	}
	s.more.Signal()
}

// Read implements [io.Reader]; it waits for the output.
func (s *stream) Read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.buf.Len() == 0 && s.end == nil {
		s.more.Wait()
	}
	if s.buf.Len() > 0 {
		return s.buf.Read(b)
	}
	return 0, s.end
}

// Close implements [io.Closer]: what was printed can be read, and then the end.
func (s *stream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end == nil {
		s.end = io.EOF
	}
	s.more.Signal()
	return nil
}

// tail is the end of an output.
type tail struct {
	mu  sync.Mutex
	buf []byte
	cut bool // something was before it
}

func (t *tail) add(b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cut = t.cut || len(t.buf)+len(b) > maxErrors
	t.buf = append(t.buf, b[max(0, len(b)-maxErrors):]...)
	t.buf = t.buf[max(0, len(t.buf)-maxErrors):]
}

// text is what people and models may read of it.
func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.buf
	if n := bytes.IndexByte(b, '\n'); t.cut && n >= 0 {
		b = b[n+1:] // not a part of a line, which may be a part of a secret
	}
	return clean(sandbox.Text(b))
}
