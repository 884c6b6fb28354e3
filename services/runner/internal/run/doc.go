// Package run owns what can be watched of a run while it happens: a bounded,
// replayable stream of items for each run of this process.
//
//	Open --> live: Call, Publish ..., Settle --> Close --> kept a while --> forgotten
//	           |
//	           +--> Next(after seq) for any number of readers, each at its own pace
//
// It promises: seq rises strictly within a run, and over generations, because
// the generation is the fencing token of the lease the run works under; readers
// cost the turn nothing, for they read from the buffer and are never waited for;
// at most one item ends a run, whatever is published after it; what is not in the
// journal yet is never dropped.
//
// A number says how many bytes were said before it, and the journal keeps where
// the text of each answer stands ([Span]). So a piece has one number, wherever it
// is read from, and a reader gets the rest of one that it has a part of. A call
// that failed or was killed is made anew under higher numbers; who has read some
// of the earlier one is told by a restart, and nobody else.
//
// A reader that is slower than the buffer gets [ErrBehind] and finds what it
// lacks in the journal. Nothing here is durable.
package run
