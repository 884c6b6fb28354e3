package dispatch

import (
	"sync"
	"time"

	"github.com/theclaw/agents/internal/lease"
)

// Request is a worker's request for agents with work, under leases of its own.
type Request struct {
	Deliver         bool // replies to send; else messages to work on
	Holder, Address string
	// RequestID identifies the request over its repeats, which get the same leases.
	RequestID string
	TTL, Wait time.Duration
	MaxNew    int  // new leases at most
	News      bool // of agents that the holder has, their names are enough
}

// Due is an agent with work, and the lease under which the worker may do it.
type Due struct {
	Agent   string
	Head    int64    // of the inbox
	Threads []string // with replies to send
	Lease   lease.Record
	Fresh   bool // granted by this request
}

// Answer is the work for a worker.
type Answer struct {
	Due     []Due
	News    []string // agents that it has and that have something new
	Waiting int      // agents with work that it could have beyond MaxNew
}

// Lapses counts the leases that holders let run out. The zero value is ready.
type Lapses struct {
	mu sync.Mutex
	by map[string]int
}

// Note counts one of a holder.
func (l *Lapses) Note(holder string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by == nil || len(l.by) > 4096 {
		l.by = map[string]int{}
	}
	l.by[holder]++
}

// Of returns how many a holder has.
func (l *Lapses) Of(holder string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.by[holder]
}
