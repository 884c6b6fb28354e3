package standalone_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/testing/backendtest"
	"github.com/theclaw/agents/internal/testing/need"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

func free(t *testing.T, dir string) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Bavail) * st.Bsize
}

// ballast takes space until it is dropped.
func ballast(t *testing.T, dir string, size int64) (drop func()) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	before := free(t, dir)
	err = unix.Fallocate(int(f.Fd()), 0, 0, size)
	_ = f.Close()
	drop = func() { _ = os.Remove(f.Name()) }
	t.Cleanup(drop)
	if err != nil || before-free(t, dir) < size/2 {
		t.Fatalf("the file system did not take space: %v", err)
	}
	return drop
}

// Disk full (RELIABILITY section 5): below the floor pushes are refused and nothing
// new is claimed, by the holder of a lease or by another; what was begun ends, what
// was answered is delivered; with space again the work goes on by itself.
func TestLittleSpace(t *testing.T) {
	dir, gap := need.Disk(t, "size=256m"), int64(32<<20)
	w := start(t, backendtest.Options{Home: filepath.Join(dir, "h")}, registry.Config{MinFree: free(t, dir) - gap, Sweep: time.Hour})
	w.Create("a1")
	w.Push("a1", "bob", "one", "")
	w.Work("runner")
	w.Push("a1", "bob", "two", "")
	w.Push("a1", "eve", "three", "")
	held := w.Due(backendtest.KindRun, "runner", time.Minute)[0]
	ctx := backendtest.Under(t.Context(), held.GetLease())
	events := backendtest.Must2(w.Turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: "a1"})).GetEvents()
	begin := func(i int) error {
		e := events[i]
		_, err := w.Turns.BeginTurn(ctx, &registryv1.BeginTurnRequest{AgentId: "a1", InboxId: e.GetEvent().GetId(), Key: e.GetKey(), ThreadId: e.GetThreadId()})
		return err
	}
	backendtest.Must(t, 0, begin(0))
	w.Create("a2")
	w.Push("a2", "bob", "hello", "")

	drop := ballast(t, dir, 2*gap)
	_, err := w.Threads.PushEvents(t.Context(), backendtest.PushRequest("a2", "bob", "refused", ""))
	w.Full("push", err, fault.DiskFull)
	w.Full("claim", begin(1), fault.DiskFull)
	if d := w.Due(backendtest.KindRun, "other", 100*time.Millisecond); len(d) != 0 {
		t.Errorf("leased without space: %v", d)
	}
	backendtest.Must2(w.Turns.FinishTurn(ctx, &registryv1.FinishTurnRequest{
		AgentId: "a1", InboxId: events[0].GetEvent().GetId(), Key: events[0].GetKey(), ThreadId: events[0].GetThreadId(), Fate: registryv1.Fate_FATE_REPLIED, Text: "done",
	}))
	out := w.Due(backendtest.KindDeliver, "d1", time.Minute)[0]
	send := backendtest.Under(t.Context(), out.GetLease())
	b := backendtest.Must2(w.Deliveries.BeginDelivery(send, &registryv1.BeginDeliveryRequest{AgentId: "a1", ThreadId: out.GetThreadIds()[0], BootId: "b"}))
	backendtest.Must2(w.Deliveries.FinishDelivery(send, &registryv1.FinishDeliveryRequest{
		AgentId: "a1", ThreadId: out.GetThreadIds()[0], EventId: b.GetEvent().GetId(), Outcome: registryv1.DeliveryOutcome_DELIVERY_OUTCOME_SENT, BootId: "b",
	}))

	waiting := make(chan []*registryv1.DueWork)
	go func() { waiting <- w.Due(backendtest.KindRun, "other", time.Minute) }() // asks before there is space
	drop()
	if d := <-waiting; len(d) == 0 {
		t.Error("nothing is due after there is space")
	}
	backendtest.Must2(w.Threads.PushEvents(t.Context(), backendtest.PushRequest("a2", "bob", "accepted", "")))
}
