//go:build proof

package registry_test

import (
	"testing"
	"time"

	"github.com/theclaw/agents/internal/testing/backendtest"
	"github.com/theclaw/agents/services/registry"

	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// A holder that let its lease run out while it waits for work, as a stopped
// process does, is not given it again: the next one who asks gets it.
func TestLapsedHolderIsNotGrantedAgain(t *testing.T) {
	backendtest.Each(t, testLapsedHolderIsNotGrantedAgain)
}

func testLapsedHolderIsNotGrantedAgain(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	w.Push("a1", "bob", "hello", "")
	run := registryv1.LeaseKind_LEASE_KIND_RUN
	first := w.Brief(run, "stopped")
	if len(first) != 1 {
		t.Fatalf("due: %v", first)
	}
	if again := w.Due(run, "stopped", time.Minute); len(again) != 0 {
		t.Fatalf("the holder whose lease ran out got %v", again)
	}
	next := w.Due(run, "other", time.Minute)
	if len(next) != 1 || next[0].GetLease().GetToken() != first[0].GetLease().GetToken()+1 {
		t.Fatalf("the next holder got %v after %v", next, first)
	}
}
