package store

import "context"

// Memories keeps how far the digests of an agent's memory reach. The files
// themselves are not the engine's; a digest waits in its mark until its file
// holds it, so that one that was committed is never lost or made again.
//
//	Compact (mark and text) --> the caller writes the file --> MemoryWritten
type Memories interface {
	// Memory answers the marks of a thread or an inbox, by layer. In an inbox they
	// are the agent's layer and, by thread id, what that layer has seen.
	Memory(ctx context.Context, r Ref, layers ...string) ([]MemoryMark, error)
	// Compact moves a mark by one. A repeat answers the mark as it stands;
	// ErrMemoryMoved when another digest was committed meanwhile.
	Compact(ctx context.Context, r Ref, f Fence, c Compaction) (MemoryMark, error)
	// CountCompaction notes in the inbox how many digests a thread has.
	CountCompaction(ctx context.Context, agent string, f Fence, thread string, n int64) error
	// UnseenThreads answers the threads with digests that the agent's layer has
	// not seen, and how many digests that are in all threads together.
	UnseenThreads(ctx context.Context, agent string, limit int) ([]MemoryMark, int64, error)
	// Decide appends a record/decision event once, and journals its step.
	Decide(ctx context.Context, r Ref, f Fence, d Decision) error
	// Tuple answers whom a thread was made for, as Ensure received it.
	Tuple(ctx context.Context, r Ref) (string, error)
	// MemoryWritten reports that the file holds the text of the nth digest.
	MemoryWritten(ctx context.Context, r Ref, layer string, n int64) error
}

// MemoryMark is how far one layer of memory reaches.
type MemoryMark struct {
	Layer    string // name of the file; in an inbox also a thread id
	N        int64  // digests so far
	Digested int64  // it holds the events up to this id
	Seen     int64  // digests below it that it has seen
	// Text, when set, is what the file has to hold and may not hold yet; Base the
	// version it was made from. Thread and Event are a decision still to be recorded.
	Base, Text, Thread, Event string
}

// Compaction is a digest to commit.
type Compaction struct {
	Mark  MemoryMark // as it shall be
	After int64      // N that the caller saw
	// Decision is recorded in the same transaction; in an inbox it is left out.
	Decision Decision
	// Threads are the threads the agent's layer has seen now; only in an inbox.
	Threads []MemoryMark
}

// Decision is a record/decision event.
type Decision struct {
	Key, Content string
	// Step, when it has a key, is journalled too: in Turn, or with no turn under the
	// key of the decision, so that what it has cost is counted.
	Turn string
	Step Step
}
