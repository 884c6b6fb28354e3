package hub

import (
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// Wakes notifies the calls of a registry that wait for the fates of an agent's events and
// deliveries, for approvals, for decisions about people, and for events of threads. The zero value is ready; it is for
// a registry that makes all changes in its own process.
type Wakes struct {
	fates  Hub[string]
	asked  Hub[string]
	events Feed[store.Ref, thread.Event]
}

// AwaitFate waits for a fate or a grant of an agent; see Hub.Wait.
func (w *Wakes) AwaitFate(agent string) (<-chan struct{}, func()) { return w.fates.Wait(agent) }

// FateChanged wakes the waiters for an event or a delivery of an agent.
func (w *Wakes) FateChanged(agent string) { w.fates.Wake(agent) }

// Granted wakes the same waiters because a lease of the agent was granted here: a call
// that watches a run learns which runner continues it.
func (w *Wakes) Granted(agent string) { w.fates.Wake(agent) }

// AwaitLease waits for the end of a lease that is of no agent, by its resource; see Hub.Wait. No
// agent has the name of a resource.
func (w *Wakes) AwaitLease(resource string) (<-chan struct{}, func()) { return w.fates.Wait(resource) }

// LeaseEnded wakes the waiters for the end of a lease.
func (w *Wakes) LeaseEnded(resource string) { w.fates.Wake(resource) }

// AwaitApproval waits for a change of the approval or question with this id, or of any with an
// empty one; see Hub.Wait.
func (w *Wakes) AwaitApproval(id string) (<-chan struct{}, func()) { return w.asked.Wait(id) }

// ApprovalChanged wakes the waiters for this approval or question, and those for any; all of them
// with an empty id.
func (w *Wakes) ApprovalChanged(id string) {
	if id == "" {
		w.asked.WakeAll()
		return
	}
	w.asked.Wake(id)
	w.asked.Wake("")
}

// pairings is the name of the decisions about people among those of what was asked: no approval or
// question has such an id, and those who wait for any of them are not woken by it.
const pairings = "pairings"

// AwaitPairing waits for a decision about a person, or the end of its notice; see Hub.Wait.
func (w *Wakes) AwaitPairing() (<-chan struct{}, func()) { return w.asked.Wait(pairings) }

// PairingChanged wakes the waiters for decisions about people.
func (w *Wakes) PairingChanged() { w.asked.Wake(pairings) }

// Again is when waiters recheck although nothing woke them: never.
func (w *Wakes) Again() <-chan time.Time { return nil }

// Follow follows a thread.
func (w *Wakes) Follow(r store.Ref) *Follower[store.Ref, thread.Event] { return w.events.Follow(r) }

// AwaitEvent waits for an event of a thread; see Hub.Wait.
func (w *Wakes) AwaitEvent(r store.Ref) (<-chan struct{}, func()) { return w.events.Wait(r) }

// Committed publishes events that were committed here to the followers of their thread.
func (w *Wakes) Committed(c store.Commit) { w.events.Publish(c.Ref, c.Events) }

// Changed makes the followers of a thread read it: another process has written.
func (w *Wakes) Changed(r store.Ref) { w.events.Wake(r) }

// WakeAll makes all waiters recheck.
func (w *Wakes) WakeAll() {
	w.events.WakeAll()
	w.fates.WakeAll()
	w.asked.WakeAll()
}
