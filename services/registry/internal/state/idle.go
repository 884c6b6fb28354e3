package state

import (
	"strings"

	"github.com/theclaw/agents/internal/store"
)

// Recall sets an idle state that the last run saved, valid because the files still have the
// signature they had then.
func (a *Agent) Recall(s store.InboxState, signature string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.loaded, a.started, a.head, a.acked, a.dead, a.signature = true, s.Started, s.Head, s.Acked, s.Dead, signature
	if s.LastAt != "" {
		a.lastAt, a.lastOf = s.LastAt, s.Head
	}
}

// IdleState returns the cached state of an inbox without work, if the files still have the
// signature that it was read with.
func (a *Agent) IdleState(signature string) (store.InboxState, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.loaded && (a.signature == signature || a.closedAt(signature)) && a.problem == "" && len(a.damaged) == 0 && a.lastOf == a.head
	s := store.InboxState{Started: a.started, Head: a.head, Acked: a.acked, Dead: a.dead, LastAt: a.lastAt}
	return s, known && a.head == a.acked && len(a.outbox) == 0
}

// Closed notes the signature of an inbox that was just closed, so that nobody need open it
// to find that nothing has come.
func (d *Agents) Closed(agent string, r store.AtRest) {
	if a, err := d.Get(agent); err == nil {
		a.close(r)
	}
}

// close notes it unless the inbox holds more than is known: the next poll reads that.
func (a *Agent) close(r store.AtRest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.loaded && a.head == r.Head {
		a.closed = stampAt(r.Written, r.Size)
		a.signature, a.lastAt, a.lastOf = a.closed, r.LastAt, r.Head
	}
}

// Unchanged reports whether a stamp is that of the last read, and no commit can be pending:
// a write-ahead log may hold a commit that no reader sees yet.
func (a *Agent) Unchanged(stamp string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.signature == stamp && strings.HasSuffix(stamp, absent) || a.closedAt(stamp)
}

// closedAt reports whether a stamp is that of our last close, whose time no other write has:
// it is valid however soon it is taken.
func (a *Agent) closedAt(stamp string) bool {
	raw, _, _ := strings.Cut(stamp, early)
	return a.closed != "" && raw == a.closed
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
