package hub_test

import (
	"testing"

	"github.com/theclaw/agents/services/registry/internal/hub"
)

func TestWakeReachesThoseWhoWaitAndNobodyElse(t *testing.T) {
	var h hub.Hub[string]
	h.Wake("nobody waits")
	a, doneA := h.Wait("a")
	a2, doneA2 := h.Wait("a")
	b, doneB := h.Wait("b")
	defer doneB()
	h.Wake("a")
	<-a
	<-a2
	select {
	case <-b:
		t.Fatal("b was woken by a")
	default:
	}
	doneA()
	doneA2()
	again, done := h.Wait("a")
	defer done()
	select {
	case <-again:
		t.Fatal("a later waiter was woken by an earlier wake")
	default:
	}
}

func TestGivingBackEarlyKeepsTheOthers(t *testing.T) {
	var h hub.Hub[int]
	_, gone := h.Wait(1)
	ch, done := h.Wait(1)
	defer done()
	gone()
	h.Wake(1)
	<-ch
}

// A question that is asked or answered wakes the calls that wait for it and those that wait for any,
// and none of the many that wait for another one. A decision about a person wakes none of them.
func TestApprovalWakes(t *testing.T) {
	var w hub.Wakes
	one, _ := w.AwaitApproval("q-1")
	other, _ := w.AwaitApproval("q-2")
	anyOf, _ := w.AwaitApproval("")
	closed := func(ch <-chan struct{}) bool {
		select {
		case <-ch:
			return true
		default:
			return false
		}
	}
	w.ApprovalChanged("q-1")
	if !closed(one) || !closed(anyOf) || closed(other) {
		t.Errorf("woken: %v %v %v, want the one, any, and not the other", closed(one), closed(anyOf), closed(other))
	}
	one, _ = w.AwaitApproval("q-1")
	person, _ := w.AwaitPairing()
	w.ApprovalChanged("q-2")
	if closed(person) {
		t.Error("a question woke those who wait for a decision about a person")
	}
	other, _ = w.AwaitApproval("q-2")
	anyOf, _ = w.AwaitApproval("")
	w.PairingChanged()
	if !closed(person) || closed(one) || closed(other) || closed(anyOf) {
		t.Error("a decision about a person did not wake those who wait for it alone")
	}
	person, _ = w.AwaitPairing()
	w.ApprovalChanged("") // what belongs to a person was erased
	if !closed(one) || !closed(other) || !closed(person) {
		t.Error("a change of an unknown one did not wake all")
	}
}
