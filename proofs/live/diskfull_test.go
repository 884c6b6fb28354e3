package live_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/world"
	"github.com/theclaw/agents/proofs/drill"
)

// TestDiskFull fills the file system of a home while it works, to below the floor
// and to the last byte: pushes are refused with the reason, what was accepted is
// answered, and work resumes by itself.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=24m"); err != nil {
		drill.Line("diskfull skipped: a small file system needs root: %v", err)
		t.Skipf("mount: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	refused, accepted := 0, 0
	for round, floor := range []int64{4 << 20, 1} { // ours refuses first; only the disk itself refuses
		o := world.Options{Home: filepath.Join(dir, fmt.Sprint("home", round))}
		o.Registry.MinFree = floor
		w := world.Start(t, o)
		w.Create(t, agent, quiet)
		var ids []int64
		say := func(n int) error {
			id, err := w.Push(t.Context(), agent, world.Peer("bob"), fmt.Sprintf("say: %d %s", n, page), fmt.Sprint("key", n))
			if err == nil {
				ids = append(ids, id)
			}
			return err
		}
		for n := range 10 {
			if err := say(n); err != nil {
				t.Fatal(err)
			}
		}
		if err := fill(filepath.Join(dir, "ballast")); err != nil {
			t.Fatal(err)
		}
		was := len(ids)
		for n := 10; n < 20; n++ {
			f := fault.From(say(n))
			if f == nil {
				t.Errorf("push %d was accepted by a full disk", n)
				continue
			}
			if f.Code != codes.ResourceExhausted || f.Reason != fault.DiskFull {
				t.Errorf("push %d: %v %s", n, f.Code, f.Reason)
			}
			refused++
		}
		ids = ids[:was]
		if err := os.Remove(filepath.Join(dir, "ballast")); err != nil {
			t.Fatal(err)
		}
		for n := 10; n < 20; n++ { // the same keys: what was refused left nothing
			if err := say(n); err != nil {
				t.Errorf("after space was freed: %v", err)
			}
		}
		threadID := ""
		for i, id := range ids {
			if want := int64(i + 1); id != want {
				t.Errorf("message %d is event %d", i, id)
			}
			turn := w.Await(t, agent, id)
			if turn.GetFate() != replied {
				t.Errorf("event %d: %v", id, turn)
			}
			threadID = turn.GetThreadId()
		}
		if n := replies(t, w.Client, agent, threadID); n != 20 {
			t.Errorf("%d replies", n)
		}
		accepted += len(ids)
		w.Stop()
		if err := os.RemoveAll(o.Home); err != nil {
			t.Fatal(err)
		}
	}
	drill.Line("diskfull refused=%d accepted=%d answered=%d lost=0", refused, accepted, accepted)
}

// page makes a message that needs pages of its own.
var page = strings.Repeat("x", 20<<10)
