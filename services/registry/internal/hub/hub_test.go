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
