package hub

import (
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// Wakes is what the calls of a registry wait for: the fates of an agent's events and
// deliveries, questions and answers, and events of threads. The zero value is ready; it
// is that of a registry that is alone, where nothing comes but by what it does itself.
type Wakes struct {
	fates     Hub[string]
	questions Hub[struct{}]
	events    Feed[store.Ref, thread.Event]
}

// AwaitFate waits for a fate or a grant of an agent; see Hub.Wait.
func (w *Wakes) AwaitFate(agent string) (<-chan struct{}, func()) { return w.fates.Wait(agent) }

// FateChanged wakes those who wait for an event or a delivery of an agent.
func (w *Wakes) FateChanged(agent string) { w.fates.Wake(agent) }

// Granted wakes them because a lease of the agent was granted here: who watches a run
// learns where it goes on.
func (w *Wakes) Granted(agent string) { w.fates.Wake(agent) }

// AwaitApproval waits for a question or an answer; see Hub.Wait.
func (w *Wakes) AwaitApproval() (<-chan struct{}, func()) { return w.questions.Wait(struct{}{}) }

// ApprovalChanged wakes those who wait for a question or an answer.
func (w *Wakes) ApprovalChanged() { w.questions.Wake(struct{}{}) }

// Again is when waiters recheck although nothing woke them: never.
func (w *Wakes) Again() <-chan time.Time { return nil }

// Follow follows a thread.
func (w *Wakes) Follow(r store.Ref) *Follower[store.Ref, thread.Event] { return w.events.Follow(r) }

// AwaitEvent waits for an event of a thread; see Hub.Wait.
func (w *Wakes) AwaitEvent(r store.Ref) (<-chan struct{}, func()) { return w.events.Wait(r) }

// Committed gives events that were committed here to those who follow their thread.
func (w *Wakes) Committed(c store.Commit) { w.events.Publish(c.Ref, c.Events) }

// Changed makes those who follow a thread read it: others have written.
func (w *Wakes) Changed(r store.Ref) { w.events.Wake(r) }

// WakeAll makes all waiters recheck.
func (w *Wakes) WakeAll() {
	w.events.WakeAll()
	w.fates.WakeAll()
	w.questions.WakeAll()
}
