//go:build proof

package live_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/testing/world"
	"github.com/theclaw/agents/proofs/drill"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// TestLostWake pushes while a batch runs and never again: each message is handled
// without waiting for a sweep or for another push. A site sweeps each 30 s, so there a
// message that takes half of that has waited for one.
func TestLostWake(t *testing.T) {
	rounds := drill.Size(t, "N", 20)
	seed, chance := drill.Seed(t)
	o := world.Options{}
	o.Registry.Sweep = time.Hour
	o.Runner.Keep = 50 * time.Millisecond // the end of a batch is when a wake-up could be lost
	w, shape, _ := calm(t, o)
	w.Create(t, agent, quiet)
	unhandled, slowest := 0, time.Duration(0)
	for i := range rounds {
		first, err := w.Push(t.Context(), agent, world.Peer("bob"), "slow: 0.02", "")
		if err != nil {
			t.Fatal(err)
		}
		select { // somewhere in the batch, at its end, or just after
		case <-time.After(time.Duration(chance.IntN(120)) * time.Millisecond):
		case <-t.Context().Done():
		}
		begun := time.Now()
		second, err := w.Push(t.Context(), agent, world.Peer(fmt.Sprint("p", i%3)), "say: x", "")
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []int64{first, second} {
			if turn := w.Await(t, agent, id); turn.GetFate() != replied {
				unhandled++
				t.Errorf("event %d: %v", id, turn)
			}
		}
		if slowest = max(slowest, time.Since(begun)); slowest > 15*time.Second {
			t.Errorf("round %d: it took %v", i, slowest)
		}
	}
	drill.Line("lostwake of=%s rounds=%d pushes=%d unhandled=%d slowest_ms=%d seed=%d", shape, rounds, 2*rounds, unhandled, slowest.Milliseconds(), seed)
}

// TestIDReuse puts an older inbox back, database and text file, as a power cut does to pushes
// that were not synced: ids are handed out again, and what they now mean is answered. Where
// the text file still knows the lost event, the agent is FAILED instead until a repair
// (TestLostCommitsFailTheirAgent).
func TestIDReuse(t *testing.T) {
	n := drill.Size(t, "N", 3)
	o := world.Options{Home: filepath.Join(t.TempDir(), "home")}
	w := world.Start(t, o)
	w.Create(t, agent, quiet)
	w.Say(t, agent, world.Peer("bob"), "say: before")
	answered := 0
	for i := range n {
		w.Stop() // closes and checkpoints: one file is all
		files := []string{inbox(o.Home), filepath.Join(filepath.Dir(inbox(o.Home)), "events.jsonl")}
		var old [][]byte
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			old = append(old, b)
		}
		w = world.Start(t, o)
		first := w.Say(t, agent, world.Peer("bob"), fmt.Sprintf("say: lost %d", i))
		w.Stop()
		for i, f := range files {
			if err := os.WriteFile(f, old[i], 0o600); err != nil {
				t.Fatal(err)
			}
		}
		w = world.Start(t, o)
		text := fmt.Sprintf("new %d", i)
		second := w.Say(t, agent, world.Peer("bob"), "say: "+text)
		got := w.Reply(t, second)
		if got != text {
			t.Errorf("replied %q, want %q: %v", got, text, second)
		}
		if second.GetInboxId() != first.GetInboxId() || second.GetKey() == first.GetKey() {
			t.Errorf("the id is not handed out again: %v, then %v", first, second)
		}
		if t.Failed() {
			break // each round takes three starts, and one is enough
		}
		answered++
		replies(t, w.Client, agent, second.GetThreadId())
	}
	drill.Line("id-reuse rounds=%d answered=%d", n, answered)
}

// TestAckRewind moves the mirror of our progress to and fro, as the external pop
// does: nothing is answered twice and nothing is passed over. The file is only written
// where it is in one home.
func TestAckRewind(t *testing.T) {
	n := drill.Size(t, "N", 10)
	seed, chance := drill.Seed(t)
	w, shape, home := calm(t, world.Options{})
	w.Create(t, agent, quiet)
	threadID := ""
	for i := range n {
		turn := w.Say(t, agent, world.Peer("bob"), fmt.Sprintf("say: %d", i))
		threadID = turn.GetThreadId()
		to := chance.IntN(2 * n)
		if home != "" && chance.IntN(2) == 0 {
			foreign(t, inbox(home), fmt.Sprintf("UPDATE consumer_progress SET last_acked_id = %d WHERE consumer_id = 'inbox'", to))
		} else if _, err := w.Threads.PopEvents(t.Context(), &registryv1.PopEventsRequest{
			Thread: &registryv1.ThreadRef{AgentId: agent, ThreadId: "inbox"}, Consumer: "inbox", AfterId: int64(min(to, i)),
		}); err != nil {
			t.Fatal(err)
		}
	}
	w.Say(t, agent, world.Peer("bob"), "say: end")
	got := replies(t, w, agent, threadID)
	if got != n+1 {
		t.Errorf("%d replies to %d messages", got, n+1)
	}
	drill.Line("ack-rewind of=%s moves=%d messages=%d replies=%d seed=%d", shape, n, n+1, got, seed)
}
