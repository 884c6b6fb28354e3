//go:build proof

package live_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/testing/need"
	"github.com/theclaw/agents/internal/testing/world"
	"github.com/theclaw/agents/proofs/drill"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// TestDiskFull fills the file system of a home while it works, to below the floor
// and to the last byte: pushes are refused with the reason, what was accepted is
// answered, and work resumes automatically.
func TestDiskFull(t *testing.T) {
	dir := need.Disk(t, "size=24m")
	refused, accepted, answered := 0, 0, 0
	for round, floor := range []int64{4 << 20, -1} { // ours refuses first; only the disk itself refuses
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
		var again []int
		for n := 10; len(again) < 10; n++ {
			if n == 20+10 {
				t.Fatalf("a full disk refused %d of 20 pushes", len(again))
			}
			if err := fill(filepath.Join(dir, "ballast")); err != nil { // a database that closed freed some space
				t.Fatal(err)
			}
			f := fault.From(say(n))
			if f == nil { // one closed between the two; the message is answered below like the others
				continue
			}
			if f.Code != codes.ResourceExhausted || f.Reason != fault.DiskFull {
				t.Errorf("push %d: %v %s", n, f.Code, f.Reason)
			}
			again = append(again, n)
		}
		refused += len(again)
		if err := os.Truncate(filepath.Join(dir, "ballast"), 0); err != nil { // also for a child that has it open
			t.Fatal(err)
		}
		for _, n := range again { // the same keys: what was refused left nothing
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
			if turn.GetFate() == replied {
				answered++
			} else {
				t.Errorf("event %d: %v", id, turn)
			}
			threadID = turn.GetThreadId()
		}
		if n := replies(t, w.Client, agent, threadID); n != len(ids) {
			t.Errorf("%d replies", n)
		}
		accepted += len(ids)
		w.Stop()
		if err := os.RemoveAll(o.Home); err != nil {
			t.Fatal(err)
		}
	}
	drill.Line("diskfull refused=%d accepted=%d answered=%d lost=%d", refused, accepted, answered, accepted-answered)
}

// page makes a message that needs pages of its own.
var page = strings.Repeat("x", 20<<10)

// TestDiskFullFloor leaves less room than the registry wants to have: nothing is
// claimed, also not what another program pushed; replies still go out, and work
// resumes by itself.
func TestDiskFullFloor(t *testing.T) {
	dir := need.Disk(t, "size=24m")
	sink, begun, low := world.NewSink(t), make(chan struct{}, 100), make(chan struct{})
	gate := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		<-low
		sink.ServeHTTP(rw, r)
	}))
	t.Cleanup(gate.Close)
	o := world.Options{Home: filepath.Join(dir, "home"), TTL: 5 * time.Second}
	o.Registry.MinFree = 8 << 20
	w := world.Start(t, o)
	w.Create(t, agent, strings.Replace(sink.Config(), sink.URL, gate.URL, 1))
	w.Say(t, agent, world.Peer("bob"), "say: before")
	<-begun // the reply is on its way
	ballast := filepath.Join(dir, "ballast")
	var fs unix.Statfs_t
	err := unix.Statfs(dir, &fs)
	if err == nil {
		err = os.WriteFile(ballast, make([]byte, int64(fs.Bavail)*fs.Bsize-(4<<20)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Push(t.Context(), agent, world.Peer("bob"), "say: refused", ""); !fault.Is(err, fault.DiskFull) {
		t.Errorf("a push was answered %v", err)
	}
	foreign(t, inbox(o.Home), "INSERT INTO events(source, type, content) VALUES('"+world.Peer("eve")+"', 'message', 'say: from outside')")
	for {
		a, err := w.Agents.GetAgentStatus(t.Context(), &registryv1.GetAgentStatusRequest{AgentId: agent})
		if err != nil {
			t.Fatal(err)
		}
		if a.GetInbox().GetPending() == 1 { // it is seen
			break
		}
	}
	close(low)
	if d := w.Delivered(t, agent, 1).GetDelivery(); d.GetState() != registryv1.DeliveryState_DELIVERY_STATE_SENT {
		t.Fatal(d)
	}
	if turn := w.Ask(t, agent, 2, time.Second); turn.GetState() != registryv1.TurnState_TURN_STATE_QUEUED {
		t.Errorf("while there is little room: %v", turn)
	}
	if err := os.Truncate(ballast, 0); err != nil {
		t.Fatal(err)
	}
	if turn := w.Await(t, agent, 2); turn.GetFate() != replied {
		t.Errorf("with room again: %v", turn)
	}
	if !t.Failed() {
		drill.Line("diskfull floor=%d claimed=0 delivered=1 resumed=1", o.Registry.MinFree)
	}
}
