// Package run keeps what can be watched of a run while it happens: a bounded, replayable
// stream of items for each run of this process.
//
//	Open --> live: Call, Publish ..., Settle --> Close --> kept for some time --> dropped
//	           |
//	           +--> Next(after seq) for any number of readers, each at its own pace
//
// It promises: seq rises strictly within a run, and over generations, because the
// generation is the fencing token of the lease the run works under; readers cost the turn
// nothing, since they read from the buffer and the turn never waits for them; at most one
// item ends a run, whatever is published after it; what is not in the journal yet is never
// dropped.
//
// A number is how many bytes were published before it, and the journal keeps where the text
// of each answer is ([Span]). So a piece has one number, wherever it is read from, and a
// reader gets the rest of one that it has a part of. A call that failed or was killed is
// made again under higher numbers; a reader that has some of the earlier one gets a restart,
// and no other reader does.
//
// A reader that is slower than the buffer gets [ErrBehind] and finds what it lacks in the
// journal. Nothing here is durable.
package run
