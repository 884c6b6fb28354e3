package pai

import (
	"iter"
	"sync"
)

// maxQueued bounds the output of pai that was not read yet, in bytes.
const maxQueued = 64 << 20

// piece is some output of one stream.
type piece struct {
	err bool
	b   []byte
}

// pipe hands output from those who read it to the one who works with it. Reading
// never waits: what is left in a stream when its program is dead would be lost.
type pipe struct {
	stop func()

	mu     sync.Mutex
	cond   sync.Cond
	queue  []piece
	queued int
	full   bool
	closed bool
}

func newPipe(stop func()) *pipe {
	p := &pipe{stop: stop}
	p.cond.L = &p.mu
	return p
}

func (p *pipe) stdout(b []byte) { p.put(piece{false, b}) }
func (p *pipe) stderr(b []byte) { p.put(piece{true, b}) }

func (p *pipe) put(c piece) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.queued+len(c.b) > maxQueued {
		p.full = true
		p.stop()
		return
	}
	c.b = append([]byte(nil), c.b...)
	p.queue, p.queued = append(p.queue, c), p.queued+len(c.b)
	p.cond.Signal()
}

func (p *pipe) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.cond.Signal()
}

func (p *pipe) overflow() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.full
}

// pieces are all of them until the program is dead.
func (p *pipe) pieces() iter.Seq[piece] {
	return func(yield func(piece) bool) {
		for {
			p.mu.Lock()
			for len(p.queue) == 0 && !p.closed {
				p.cond.Wait()
			}
			list := p.queue
			p.queue, p.queued = nil, 0
			p.mu.Unlock()
			for _, c := range list {
				if !yield(c) {
					return
				}
			}
			if len(list) == 0 {
				return
			}
		}
	}
}
