package cluster

import (
	"math/rand/v2"
	"time"

	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/services/registry/internal/dispatch"
	"github.com/theclaw/agents/services/registry/internal/hub"
)

// again is about how long a wait lasts without a notice.
const again = 2 * time.Second

// Wakes notifies the calls of this registry and the other registries.
type Wakes struct {
	hub.Wakes
	notify func(kind store.NoticeKind, name string)
}

// FateChanged wakes the waiters for an event or a delivery of an agent at all registries.
func (w *Wakes) FateChanged(agent string) {
	w.Wakes.FateChanged(agent)
	w.notify(store.NoticeFate, agent)
}

// LeaseEnded wakes the waiters for the end of a lease at all registries.
func (w *Wakes) LeaseEnded(resource string) { w.FateChanged(resource) }

// ApprovalChanged wakes the waiters for a change of an approval or a question at all registries.
func (w *Wakes) ApprovalChanged(id string) {
	w.Wakes.ApprovalChanged(id)
	w.notify(store.NoticeApprovals, id)
}

// PairingChanged wakes the waiters for decisions about people at all registries.
func (w *Wakes) PairingChanged() {
	w.Wakes.PairingChanged()
	w.notify(store.NoticePairings, "")
}

// Again is when waiters recheck although nothing woke them: a notice of another registry may
// be lost.
func (w *Wakes) Again() <-chan time.Time { return time.After(again/2 + rand.N(again)) }

// Aborts are the runs that people want to end, at any registry: a runner may renew its lease
// at any of them.
type Aborts struct {
	dispatch.AbortRequests
	notify func(kind store.NoticeKind, name string)
}

// Add notes a request here and at the other registries.
func (a *Aborts) Add(resource string, token uint64, run string) {
	a.AbortRequests.Add(resource, token, run)
	a.notify(store.NoticeAbort, dispatch.FormatAbort(lease.AgentOf(resource), run, token))
}
