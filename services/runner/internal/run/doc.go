// Package run owns what can be watched of a run while it happens: a bounded,
// replayable stream of items for each run of this process.
//
//	Open --> live: Publish, Publish, ... --> Close --> kept a while --> forgotten
//	           |
//	           +--> Next(after seq) for any number of readers, each at its own pace
//
// It promises: seq rises strictly within a run, and over generations, because
// the generation is the fencing token of the lease the run works under; readers
// cost the turn nothing, for they read from the buffer and are never waited for;
// at most one item ends a run, whatever is published after it.
//
// A reader that is slower than the buffer gets [ErrBehind] and may resume where
// the buffer begins. Nothing here is durable: what happened before this process
// is in the journal.
package run
