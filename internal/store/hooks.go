package store

import "time"

// Hooks are what an engine asks the registry that uses it, and reports to it. They are
// attached before the first call. None may block. An engine leaves those alone that it
// has no use for.
type Hooks struct {
	// Path answers the directory of a thread.
	Path func(r Ref) (string, error)
	// Live answers nil while a token is the current one of a live lease.
	Live func(resource string, token uint64) error
	// Dead answers true only for a holder that certainly runs no more.
	Dead func(holder string) bool
	// OnCommit is called for events that became visible through this engine.
	OnCommit func(Commit)
	// OnFault is called once for a database that broke or cannot be opened, not for one
	// that is not there.
	OnFault func(Ref, error)
	// OnRest is called with what an inbox that was written looks like once it is closed.
	OnRest func(agent string, r AtRest)
	// OnNotices is called with what other registries published; OnMissed when something may
	// have been published that did not arrive.
	OnNotices func([]Notice)
	OnMissed  func()
}

// AtRest is what a closed database holds and what its file looks like, so that its owner
// can tell later, without opening it, that nobody has written since.
type AtRest struct {
	Head    int64
	LastAt  string // when the newest event came; empty when there is none
	Written time.Time
	Size    int64
}

// Commits counts transactions: those that were on disk before they were answered, those
// that were not, and the operations in both.
type Commits struct{ Durable, Lazy, Ops int64 }

// Plus is the sum of two.
func (c Commits) Plus(o Commits) Commits {
	return Commits{c.Durable + o.Durable, c.Lazy + o.Lazy, c.Ops + o.Ops}
}
