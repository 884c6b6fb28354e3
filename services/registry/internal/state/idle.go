package state

import (
	"strings"

	"github.com/theclaw/agents/internal/store"
)

// Recall takes over a quiet state kept from the last run, valid because the
// files still have the signature they had then.
func (a *Agent) Recall(s store.InboxState, signature string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.loaded, a.started, a.head, a.acked, a.dead, a.signature = true, s.Started, s.Head, s.Acked, s.Dead, signature
	if s.LastAt != "" {
		a.lastAt, a.lastOf = s.LastAt, s.Head
	}
}

// Quiet returns the state of an inbox in which nothing waits, as it is known, if the
// files still have the signature that it was read with.
func (a *Agent) IdleState(signature string) (store.InboxState, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.loaded && (a.signature == signature || a.left(signature)) && a.problem == "" && len(a.damaged) == 0 && a.lastOf == a.head
	s := store.InboxState{Started: a.started, Head: a.head, Acked: a.acked, Dead: a.dead, LastAt: a.lastAt}
	return s, known && a.head == a.acked && len(a.outbox) == 0
}

// Rested notes what an inbox looks like that was just closed, so that nobody need open it
// to learn that nothing has come.
func (d *Agents) Closed(agent string, r store.AtRest) {
	if a, err := d.Get(agent); err == nil {
		a.rest(r)
	}
}

// rest notes it unless there is more in it than is known: a look will find that.
func (a *Agent) rest(r store.AtRest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.loaded && a.head == r.Head {
		a.rested = stampAt(r.Written, r.Size)
		a.signature, a.lastAt, a.lastOf = a.rested, r.LastAt, r.Head
	}
}

// Unchanged reports whether a stamp is that of the last look, and nothing can be on its way:
// with a log, a commit may be in it that nobody sees yet.
func (a *Agent) Unchanged(stamp string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.signature == stamp && strings.HasSuffix(stamp, absent) || a.left(stamp)
}

// left reports whether a stamp is that of our closing, whose time no other write has: it
// holds however soon it is taken.
func (a *Agent) left(stamp string) bool {
	raw, _, _ := strings.Cut(stamp, early)
	return a.rested != "" && raw == a.rested
}

// LastAt is when the newest event came; empty when that is not known.
func (a *Agent) LastAt() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lastOf != a.head {
		return ""
	}
	return a.lastAt
}
