package store

import (
	"context"
	"time"
)

// Prune chooses what is old.
type Prune struct {
	Before time.Time // what ended before it is old
	Apply  bool      // remove; else count
}

// Share is what became of one kind of thing: what went, or would, and what is
// old enough and stays because somebody may need it.
type Share struct{ Gone, Bytes, Kept int64 }

// Pruned is what became of a thread.
type Pruned struct {
	Results Share // arguments and results of steps
	Keys    Share // idempotency keys of pushes
}

// Pruner forgets. An event, its fate, its turn and its delivery are never
// forgotten: all that goes is what only made a repeat cheap or a history long.
//
// Of a turn's steps go arguments and results, when the turn is done and old. Its
// last answer stays, because a waiter of the run receives it; so do the steps of
// a dead turn, of one in doubt, and of one whose reply is not delivered.
//
// Of an inbox go the keys of pushes whose events all have an old fate. Those of
// dead letters that nobody has resolved stay, and so do those by which another
// agent's delivery is checked, those of a retry, and those of messages that an account received.
type Pruner interface {
	// Prune works in small transactions and may be broken off between any two.
	Prune(ctx context.Context, r Ref, p Prune) (Pruned, error)
}
