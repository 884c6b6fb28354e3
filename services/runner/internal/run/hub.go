package run

import (
	"context"
	"errors"
	"slices"
	"sort"
	"sync"
)

// Kind of an item.
type Kind int

// The kinds.
const (
	Lifecycle  Kind = iota + 1 // phases start, end, error
	Assistant                  // a piece of the reply
	Reasoning                  // a piece of the model's thoughts
	Tool                       // phases start, end
	Compaction                 // phases start, end
)

// Phases.
const (
	Start = "start"
	Delta = "delta"
	End   = "end"
	Error = "error"
)

// Item is one thing that happened.
type Item struct {
	Seq    uint64 // generation << 32 | n, set by Publish
	Kind   Kind
	Phase  string
	Text   string
	Tool   string
	CallID string
	// WillRetry at the end of a compaction: the model is asked again, and what its
	// last try said does not count.
	WillRetry bool
}

// Last tells whether the item ends its run.
func (i Item) Last() bool { return i.Kind == Lifecycle && (i.Phase == End || i.Phase == Error) }

func (i Item) size() int { return len(i.Text) + len(i.Tool) + len(i.CallID) + 64 }

// What a stream holds at most, and what all closed ones together do, in bytes.
const (
	maxStream = 1 << 20
	maxClosed = 16 << 20
)

// What a reader is told.
var (
	// ErrBehind: items after the asked one are gone already.
	ErrBehind = errors.New("the reader is behind the buffer")
	// ErrClosed: the stream is over here without an end of the run; the journal
	// and the next holder know more.
	ErrClosed = errors.New("the run goes on elsewhere")
)

// Hub holds the streams of a process. The zero value is ready.
type Hub struct {
	mu      sync.Mutex
	streams map[string]*Stream
	closed  []*Stream // oldest first
	bytes   int       // of closed
	opened  chan struct{}
}

// Stream is one run.
type Stream struct {
	hub *Hub
	key string

	mu    sync.Mutex
	gen   uint64
	n     uint64
	first uint64 // seq before the oldest item kept; 0: nothing was dropped
	items []Item
	size  int
	live  bool
	ended bool // its last item is there
	more  chan struct{}
}

// Open begins the stream of a run, or goes on with it. A generation that was
// seen before continues its numbers.
func (h *Hub) Open(key string, generation uint64) *Stream {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.streams[key]
	if s == nil {
		s = &Stream{hub: h, key: key, more: make(chan struct{})}
		if h.streams == nil {
			h.streams = make(map[string]*Stream)
		}
		h.streams[key] = s
	}
	h.forgetClosed(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live, s.ended = true, false
	if generation &= 1<<32 - 1; generation > s.gen {
		s.gen, s.n = generation, 0
	}
	if h.opened != nil {
		close(h.opened)
		h.opened = nil
	}
	return s
}

// Find answers the stream of a run, nil when there is none, and a channel that
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
	for i, c := range h.closed {
		if c == s {
			h.closed = append(h.closed[:i], h.closed[i+1:]...)
			h.bytes -= s.size
			return
		}
	}
}

// Live tells whether items may still come.
func (s *Stream) Live() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live && !s.ended
}

// Publish adds an item. After the last one nothing is added.
func (s *Stream) Publish(i Item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || !s.live {
		return
	}
	s.n++
	i.Seq = s.gen<<32 | s.n
	s.items = append(s.items, i)
	s.size += i.size()
	for s.size > maxStream && len(s.items) > 1 {
		s.first = s.items[0].Seq
		s.size -= s.items[0].size()
		s.items = s.items[1:]
	}
	s.ended = i.Last()
	s.wake()
}

func (s *Stream) wake() {
	close(s.more)
	s.more = make(chan struct{})
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
	s.wake()
	h.closed = append(h.closed, s)
	h.bytes += s.size
	for h.bytes > maxClosed && len(h.closed) > 1 {
		old := h.closed[0]
		h.closed = h.closed[1:]
		h.bytes -= old.size
		delete(h.streams, old.key)
	}
}

// Next waits for items after a seq and answers them all. After the last item it
// answers ErrClosed, and it does so too when the stream ended without one. With
// after 0 it begins at the oldest item kept.
func (s *Stream) Next(ctx context.Context, after uint64) ([]Item, error) {
	for {
		s.mu.Lock()
		if after != 0 && after < s.first {
			s.mu.Unlock()
			return nil, ErrBehind
		}
		if n := sort.Search(len(s.items), func(n int) bool { return s.items[n].Seq > after }); n < len(s.items) {
			items := slices.Clone(s.items[n:])
			s.mu.Unlock()
			return items, nil
		}
		live, more := s.live && !s.ended, s.more
		s.mu.Unlock()
		if !live {
			return nil, ErrClosed
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-more:
		}
	}
}
