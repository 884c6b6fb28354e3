package standalone_test

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// begin takes the next reply of a1 for a send.
func (w *world) begin(holder string) *registryv1.BeginDeliveryResponse {
	w.Helper()
	due := w.Due(backendtest.KindDeliver, holder, time.Minute)[0]
	out := backendtest.Must2(w.Deliveries.BeginDelivery(backendtest.Under(w.Context(), due.GetLease()), &registryv1.BeginDeliveryRequest{
		AgentId: "a1", ThreadId: due.GetThreadIds()[0], BootId: "the same",
	}))
	w.Release(due.GetLease())
	return out
}

// F15: the record that a send began is not on disk before the send. A file system that
// goes read-only and is mounted again loses it, without a reboot: the repeat is flagged.
func TestLostRecordOfASend(t *testing.T) {
	o := backendtest.Options{Home: filepath.Join(t.TempDir(), "h")}
	w := start(t, o, registry.Config{})
	w.Create("a1")
	w.Push("a1", "bob", "hello", "")
	w.Answer("a1", "hi")
	onDisk := map[string][]byte{} // as the fsync of the reply left them
	base := filepath.Join(o.Home, "agents", "a1", "threads", "peers", "main-bob", "events.db")
	for _, name := range []string{base, base + "-wal"} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		onDisk[name] = b
	}
	first := w.begin("d1")
	if first.GetMaybeDuplicate() || first.GetAttempt() != 1 {
		t.Fatalf("the first send: %v", first)
	}
	w.Stop() // it was sent; the record of it is lost
	_ = os.Remove(base + "-shm")
	for name, b := range maps.All(onDisk) {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w = start(t, o, registry.Config{})
	again := w.begin("d2")
	if again.GetKey() != first.GetKey() || again.GetAttempt() != 1 {
		t.Fatalf("the repeat: %v", again)
	}
	if !again.GetMaybeDuplicate() {
		t.Error("the repeat of a send whose record was lost is not flagged")
	}
}
