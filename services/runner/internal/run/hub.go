package run

import (
	"slices"
	"sync"
	"time"
)

// What a stream holds of what the journal has, and what all closed ones together
// take, in bytes. A closed one saves its late readers a look into the journal, which
// has everything that it has: two thousand short runs are enough for those who come
// a moment after the end.
const (
	maxStream = 1 << 20
	maxClosed = 2 << 20
)

// closedFor is how long a closed stream is kept at least, while there is room: those of a process
// that has nothing to do any more are given up after it, at most twice as late.
const closedFor = 10 * time.Second

// streamSize is what a stream takes without its items: itself, its key, its entries here.
const streamSize = 512

// Hub holds the streams of a process. The zero value is ready.
type Hub struct {
	mu      sync.Mutex
	streams map[string]*Stream
	closed  []*Stream // oldest first
	bytes   int       // of closed
	expires bool      // a timer for them is running
	opened  chan struct{}
}

// Open begins the stream of a run, or goes on with it. A generation that was
// seen before continues its numbers.
func (h *Hub) Open(key string, generation uint64) *Stream {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.streams[key]
	if s == nil {
		s = &Stream{hub: h, key: key, size: streamSize}
		if h.streams == nil {
			h.streams = make(map[string]*Stream)
		}
		h.streams[key] = s
	} else {
		h.forgetClosed(s)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live, s.ended = true, false
	if s.over == nil {
		s.over = make(chan struct{})
	}
	s.gen = max(s.gen, generation&(1<<32-1))
	if h.opened != nil {
		close(h.opened)
		h.opened = nil
	}
	return s
}

// Find returns the stream of a run, nil when there is none, and a channel that
// is closed when some stream is opened next.
func (h *Hub) Find(key string) (*Stream, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.opened == nil {
		h.opened = make(chan struct{})
	}
	return h.streams[key], h.opened
}

// forgetClosed takes s off the list of closed streams. The caller holds mu.
func (h *Hub) forgetClosed(s *Stream) {
	if i := slices.Index(h.closed, s); i >= 0 {
		h.closed = slices.Delete(h.closed, i, i+1)
		h.bytes -= s.size
	}
}

// Close ends the stream here. It is kept for late readers, and for its numbers,
// until others push it out.
func (s *Stream) Close() {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.live {
		return
	}
	s.live, s.closed = false, time.Now()
	s.finish()
	s.items = slices.Clone(s.items) // without room for more
	s.wake()
	h.closed = append(h.closed, s)
	h.bytes += s.size
	for h.bytes > maxClosed && len(h.closed) > 1 {
		h.forgetOldest()
	}
	if !h.expires {
		h.expires = true
		time.AfterFunc(closedFor, h.expire)
	}
}

// forgetOldest gives up the stream that was closed first. The caller holds mu.
func (h *Hub) forgetOldest() {
	old := h.closed[0]
	h.closed[0] = nil // the array behind the list is kept
	h.closed = h.closed[1:]
	h.bytes -= old.size
	delete(h.streams, old.key)
}

// expire gives up the streams that were closed closedFor ago, and comes again while there are
// others.
func (h *Hub) expire() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.closed) > 0 && time.Since(h.closed[0].closed) >= closedFor {
		h.forgetOldest()
	}
	if h.expires = len(h.closed) > 0; h.expires {
		time.AfterFunc(closedFor, h.expire)
		return
	}
	h.closed = nil
	if len(h.streams) == 0 {
		h.streams = nil // a map does not shrink
	}
}
