package cluster

import (
	"math/rand/v2"
	"time"

	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/services/registry/internal/dispatch"
	"github.com/theclaw/agents/services/registry/internal/hub"
)

// again is about how long a wait is when nothing is told.
const again = 2 * time.Second

// Wakes are those of one registry, whose changes the others are told of.
type Wakes struct {
	hub.Wakes
	notify func(kind store.NoticeKind, name string)
}

// FateChanged wakes those who wait for an event or a delivery of an agent, everywhere.
func (w *Wakes) FateChanged(agent string) {
	w.Wakes.FateChanged(agent)
	w.notify(store.NoticeFate, agent)
}

// ApprovalChanged wakes those who wait for a question or an answer, everywhere.
func (w *Wakes) ApprovalChanged() {
	w.Wakes.ApprovalChanged()
	w.notify(store.NoticeApprovals, "")
}

// Again is when waiters recheck although nothing woke them: what other registries tell
// may be lost.
func (w *Wakes) Again() <-chan time.Time { return time.After(again/2 + rand.N(again)) }

// Aborts are the runs that people want ended, at any registry: a runner may renew its
// lease at any of them.
type Aborts struct {
	dispatch.AbortRequests
	notify func(kind store.NoticeKind, name string)
}

// Add notes a wish here and at the others.
func (a *Aborts) Add(resource string, token uint64, run string) {
	a.AbortRequests.Add(resource, token, run)
	a.notify(store.NoticeAbort, dispatch.FormatAbort(lease.AgentOf(resource), run, token))
}
