package run

import "unicode/utf8"

// Kind of an item.
type Kind int

// The kinds.
const (
	Lifecycle  Kind = iota + 1 // phases start, restart, end, error
	Assistant                  // a piece of the reply
	Reasoning                  // a piece of the model's thoughts
	Tool                       // phases start, update, result
	Compaction                 // phases start, end
	Prompt                     // a tool waits for a person; phases question, approval
	Closed                     // it waits no more; the same phases
)

// Phases.
const (
	Start = "start"
	// Restart reports that what was said since the last tool or start is void.
	Restart = "restart"
	Delta   = "delta"
	Update  = "update"
	Done    = "result"
	End     = "end"
	Error   = "error"
)

// Stride is how many numbers a tool takes: one for its start, one for each byte
// of its updates, one for its end. A turn has at most 12,800 tools and 800 MiB of
// text, so the numbers of a generation stay below 1<<32.
const Stride = 1 << 17

// MaxUpdates is the most text that the updates of one tool hold, in bytes.
const MaxUpdates = 64 << 10

// Item is one thing that happened.
type Item struct {
	// Seq is generation << 32 | n; n grows by the bytes of a piece of text and by
	// one for anything else, so that a number says how much text a reader has. The
	// start of a run is 1. Publish sets it.
	Seq    uint64
	Kind   Kind
	Phase  string
	Text   string
	Tool   string
	CallID string
	// N is the position of a tool among those of its answer, from 1; 0 is a
	// program's own tool.
	N int
	// Call is what is known of a tool's call, at its start and its result.
	Call *Call
	// PromptID names the question or the approval of a prompt.
	PromptID string
	// Since is for a restart: only readers that have more than this hold something
	// that is void, and get this item.
	Since uint64
	// WillRetry at the end of a compaction: the model is asked again, and what its
	// last try said does not count.
	WillRetry bool
}

// Call is what people are shown of a call of a tool.
type Call struct {
	Summary, Class string
	External       bool // its result holds what neither the owner nor the runner wrote
	// Parallel is the place in its answer of the first call of the group in which it runs, from 1; 0: it runs alone.
	Parallel int
}

// Last reports whether the item ends its run.
func (i Item) Last() bool { return i.Kind == Lifecycle && (i.Phase == End || i.Phase == Error) }

// itemSize is what an Item takes without its texts, in bytes.
const itemSize = 128

func (i Item) size() int {
	return len(i.Text) + len(i.Tool) + len(i.CallID) + len(i.PromptID) + itemSize
}

// After is what is left of an item for a reader that has everything up to a
// number; false when that is nothing.
func (i Item) After(seq uint64) (Item, bool) {
	switch {
	case i.Seq <= seq:
		return i, false
	case i.Phase == Restart:
		return i, seq > i.Since
	case i.Phase != Delta:
		return i, true
	}
	if first := i.Seq - min(uint64(len(i.Text)), i.Seq); seq > first {
		cut := int(seq - first)
		for cut < len(i.Text) && !utf8.RuneStart(i.Text[cut]) {
			cut++ // a number that was never given out
		}
		i.Text = i.Text[cut:]
	}
	return i, true
}

// ToolSeq is the number of the nth tool's end, where at is that of the answer
// which asked for it.
func ToolSeq(at uint64, n int) uint64 { return at + uint64(n)*Stride }

// Span is where the text of an answer is in its stream.
type Span struct {
	// From is the number before its first piece, To that of its last.
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
	// Parts are the bytes of reasoning, text, reasoning ... in their order.
	Parts []int `json:"parts,omitempty"`
}

// Thought reports whether reasoning is part of the span.
func (s *Span) Thought() bool {
	for n := 0; n < len(s.Parts); n += 2 {
		if s.Parts[n] > 0 {
			return true
		}
	}
	return false
}
