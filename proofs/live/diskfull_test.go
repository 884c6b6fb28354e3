package live_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
			id, err := w.Push(t.Context(), agent, world.Peer("bob"), fmt.Sprintf("say: %d %s", n, fill), fmt.Sprint("key", n))
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
		ballast(t, filepath.Join(dir, "ballast"))
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

// fill makes a message that needs pages of its own.
var fill = string(make20k())

func make20k() []byte {
	b := make([]byte, 20<<10)
	for i := range b {
		b[i] = 'x'
	}
	return b
}

// ballast takes all that is free.
func ballast(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil && !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
}
