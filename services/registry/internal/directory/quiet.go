package directory

import "github.com/theclaw/agents/internal/store"

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

// Quiet answers the state of an inbox in which nothing waits, as it is known, if the
// files still have the signature that it was read with.
func (a *Agent) Quiet(signature string) (store.InboxState, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.loaded && a.signature == signature && a.problem == "" && len(a.damaged) == 0 && a.lastOf == a.head
	s := store.InboxState{Started: a.started, Head: a.head, Acked: a.acked, Dead: a.dead, LastAt: a.lastAt}
	return s, known && a.head == a.acked && len(a.outbox) == 0
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
