package run

import (
	"context"
	"errors"
	"sort"
	"sync"
	"time"
)

// maxPieces is how many items are kept before neighboring pieces of text are put
// together, and bigPiece how large those may become, in bytes.
const (
	maxPieces = 4096
	bigPiece  = 8 << 10
)

// Errors of a reader.
var (
	// ErrBehind: items after the asked one are gone here; the journal has them.
	ErrBehind = errors.New("the reader is behind the buffer")
	// ErrClosed: the stream is over here without an end of the run; the journal
	// and the next holder have more.
	ErrClosed = errors.New("the run goes on elsewhere")
)

// Stream is one run.
type Stream struct {
	hub *Hub
	key string

	mu      sync.Mutex
	gen     uint64
	pos     uint64 // the last number given out
	settled uint64 // everything up to it is in the journal
	tools   uint64 // where the numbers of the last answer's tools begin
	first   uint64 // the last number that was dropped; 0: nothing was
	items   []Item
	size    int
	span    Span
	grown   int // items after the last joining
	live    bool
	closed  time.Time     // guarded by the hub
	ended   bool          // its last item is there
	over    chan struct{} // closed when no item comes any more; nil then
	more    chan struct{} // closed with the next change; nil: there is no waiter
}

// Live reports whether items may still come.
func (s *Stream) Live() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live && !s.ended
}

// First is the number before the oldest item kept.
func (s *Stream) First() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first
}

// Seed takes over the items of the journal, unless as much is known
// here; tools is where the numbers of the last answer's tools begin.
func (s *Stream) Seed(items []Item, tools uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(items) == 0 || s.pos >= items[len(items)-1].Seq {
		return
	}
	s.items, s.size, s.first = items, streamSize, 0
	for _, i := range items {
		s.size += i.size()
	}
	s.pos = items[len(items)-1].Seq
	s.settled, s.tools = s.pos, tools
	s.trim()
	s.wake()
}

// Call begins a model call. What was said since the journal's last word is void:
// a reader that has some of it gets a restart.
func (s *Stream) Call() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || !s.live {
		return
	}
	keep := sort.Search(len(s.items), func(n int) bool { return s.items[n].Seq > s.settled })
	for _, i := range s.items[keep:] {
		s.size -= i.size()
	}
	s.items = s.items[:keep:keep]
	s.pos = max(s.pos, s.gen<<32) + 1
	s.span = Span{From: s.pos}
	s.add(Item{Kind: Lifecycle, Phase: Restart, Seq: s.pos, Since: s.settled})
}

// Span is where the text since Call is in the stream.
func (s *Stream) Span() Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.span.To = s.pos
	return s.span
}

// Settle reports that everything so far is in the journal; the tools of the answer
// come next.
func (s *Stream) Settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settled, s.tools = s.pos, s.pos
	s.trim()
}

// Publish adds an item. After the last one nothing is added, and there is one
// start. A tool's end must be in the journal.
func (s *Stream) Publish(i Item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || !s.live || i.Phase == Start && i.Kind == Lifecycle && s.pos > 0 {
		return
	}
	step := uint64(1)
	if i.Phase == Delta {
		step = max(uint64(len(i.Text)), 1)
		s.pos = max(s.pos, s.gen<<32)
		s.part(i)
	}
	if i.Kind == Compaction {
		s.pos = max(s.pos, s.gen<<32)
	}
	i.Seq = s.pos + step
	if i.Kind == Tool && i.N > 0 {
		switch i.Phase {
		case Start:
			i.Seq = max(i.Seq, ToolSeq(s.tools, i.N-1)+1)
		case Update:
			i.Seq = s.pos + uint64(len(i.Text))
		default:
			i.Seq = max(i.Seq, ToolSeq(s.tools, i.N))
		}
	}
	s.pos = i.Seq
	if i.Phase == Start && i.Kind == Lifecycle || i.Phase == Done || i.Phase == End && !i.Last() {
		s.settled = s.pos
	}
	s.add(i)
	if i.Last() {
		s.ended = true
		s.finish()
	}
}

// finish lets go who waits for the end. The caller holds mu.
func (s *Stream) finish() {
	if s.over != nil {
		close(s.over)
		s.over = nil
	}
}

// Wait waits until the run has ended here or the stream is closed, or ctx ends.
func (s *Stream) Wait(ctx context.Context) {
	s.mu.Lock()
	over := s.over
	s.mu.Unlock()
	if over == nil {
		return
	}
	select {
	case <-over:
	case <-ctx.Done():
	}
}

// part notes a piece of text in the span: parts alternate, reasoning first.
func (s *Stream) part(i Item) {
	odd := 1
	if i.Kind == Reasoning {
		odd = 0
	}
	for len(s.span.Parts) == 0 || (len(s.span.Parts)-1)%2 != odd {
		s.span.Parts = append(s.span.Parts, 0)
	}
	s.span.Parts[len(s.span.Parts)-1] += len(i.Text)
}

// add keeps an item. The caller holds mu.
func (s *Stream) add(i Item) {
	s.items = append(s.items, i)
	s.size += i.size()
	if s.grown++; s.grown > maxPieces {
		s.combine()
	}
	s.trim()
	s.wake()
}

// trim drops what is too much, as far as the journal has it. The caller holds mu.
func (s *Stream) trim() {
	for s.size > maxStream && len(s.items) > 1 && s.items[0].Seq <= s.settled {
		s.first = s.items[0].Seq
		s.size -= s.items[0].size()
		s.items = s.items[1:]
	}
}

// combine puts neighboring pieces of text together: a reader in the middle of one
// gets the rest of it. The caller holds mu.
func (s *Stream) combine() {
	s.grown, s.size = 0, streamSize
	combined := make([]Item, 0, len(s.items)/2)
	var text []byte
	flush := func() {
		if len(text) > 0 {
			combined[len(combined)-1].Text, text = string(text), nil
		}
	}
	for _, i := range s.items {
		if n := len(combined) - 1; n >= 0 && i.Phase == Delta && combined[n].Phase == Delta && combined[n].Kind == i.Kind && len(text) < bigPiece {
			if text == nil {
				text = []byte(combined[n].Text)
			}
			text = append(text, i.Text...)
			combined[n].Seq = i.Seq
			continue
		}
		flush()
		combined = append(combined, i)
	}
	flush()
	for _, i := range combined {
		s.size += i.size()
	}
	s.items = combined
}

func (s *Stream) wake() {
	if s.more != nil {
		close(s.more)
		s.more = nil
	}
}

// Next waits for items after a number and returns them all. After the last item
// it returns ErrClosed, and it does so too when the stream ended without one.
func (s *Stream) Next(ctx context.Context, after uint64) ([]Item, error) {
	for {
		s.mu.Lock()
		if after < s.first {
			s.mu.Unlock()
			return nil, ErrBehind
		}
		items := s.after(after)
		live := s.live && !s.ended
		if live && len(items) == 0 && s.more == nil {
			s.more = make(chan struct{})
		}
		more := s.more
		s.mu.Unlock()
		switch {
		case len(items) > 0:
			return items, nil
		case !live:
			return nil, ErrClosed
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-more:
		}
	}
}

// after copies what a reader has not got. The caller holds mu.
func (s *Stream) after(seq uint64) (out []Item) {
	n := sort.Search(len(s.items), func(n int) bool { return s.items[n].Seq > seq })
	for _, i := range s.items[n:] {
		if i, ok := i.After(seq); ok {
			out = append(out, i)
			seq = i.Seq
		}
	}
	return out
}
