package shell

import (
	"errors"
	"fmt"
	"io"
	"sync"
)

// maxHeld is how much of the output of a process, and of its unread input, is in memory, in bytes.
const maxHeld = 64 << 10

// recent is the end of an output. Its offsets are those of the complete output.
type recent struct {
	mu    sync.Mutex
	buf   []byte
	total int64
}

func (o *recent) add(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.total += int64(len(b))
	if o.buf = append(o.buf, b...); len(o.buf) > 2*maxHeld { // moved once in a while, not each time
		o.buf = append([]byte(nil), o.buf[len(o.buf)-maxHeld:]...)
	}
}

// from returns at most n bytes from an offset on, and where they begin: later than asked for when
// the output there is not held any more.
func (o *recent) from(offset int64, n int) (b []byte, begin int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	held := o.buf[max(len(o.buf)-maxHeld, 0):]
	begin = min(max(offset, o.total-int64(len(held))), o.total)
	held = held[int64(len(held))-(o.total-begin):]
	return append([]byte(nil), held[:min(n, len(held))]...), begin
}

// last returns the last n bytes.
func (o *recent) last(n int) []byte {
	b, _ := o.from(o.size()-int64(n), n)
	return b
}

func (o *recent) size() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.total
}

var (
	errInputClosed = errors.New("its input is closed")
	errNoInput     = errors.New("it runs in a container, where programs have no input; give it a file")
	errInputFull   = errors.New("it does not read its input, and 64 KiB wait already")
)

// input is what a process reads: what was written, as it comes. It implements [io.ReadCloser].
type input struct {
	mu     sync.Mutex
	more   *sync.Cond
	buf    []byte
	closed bool
}

func newInput() *input {
	in := &input{}
	in.more = sync.NewCond(&in.mu)
	return in
}

// Read implements [io.Reader]; it waits until there is something, or Close.
func (in *input) Read(b []byte) (int, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for len(in.buf) == 0 && !in.closed {
		in.more.Wait()
	}
	if in.closed {
		return 0, io.EOF
	}
	n := copy(b, in.buf)
	in.buf = in.buf[n:]
	return n, nil
}

// Close implements [io.Closer].
func (in *input) Close() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.closed = true
	in.more.Broadcast()
	return nil
}

// write adds all of a text, or nothing. It does not wait.
func (in *input) write(text string) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case in.closed:
		return errInputClosed
	case len(text) > maxHeld:
		return fmt.Errorf("%d bytes are too many for one call, %d may be written at once", len(text), maxHeld)
	case len(in.buf)+len(text) > maxHeld:
		return errInputFull
	}
	in.buf = append(in.buf, text...)
	in.more.Broadcast()
	return nil
}
