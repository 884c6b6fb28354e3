package run

import (
	"slices"
	"sync"
)

// What a stream holds of what the journal has, and what all closed ones together
// take, in bytes. A closed one saves its late readers a look into the journal, which
// has everything that it has: two thousand short runs are enough for those who come
// a moment after the end.
const (
	maxStream = 1 << 20
	maxClosed = 2 << 20
)

// streamSize is what a stream takes without its items: itself, its key, its entries here.
const streamSize = 512

// Hub holds the streams of a process. The zero value is ready.
type Hub struct {
	mu      sync.Mutex
	streams map[string]*Stream
	closed  []*Stream // oldest first
	bytes   int       // of closed
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
	s.live = false
	s.finish()
	s.items = slices.Clone(s.items) // without room for more
	s.wake()
	h.closed = append(h.closed, s)
	h.bytes += s.size
	for h.bytes > maxClosed && len(h.closed) > 1 {
		old := h.closed[0]
		h.closed[0] = nil // the array behind the list is kept
		h.closed = h.closed[1:]
		h.bytes -= old.size
		delete(h.streams, old.key)
	}
}
