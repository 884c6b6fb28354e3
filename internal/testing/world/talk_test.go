package world_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerv1 "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

const replied = registryv1.Fate_FATE_REPLIED

// Two agents who always answer each other end at the hop limit: what was said is
// bounded, and the last word is a dead letter that tells why (S0-95, S0-125).
func TestPingPong(t *testing.T) {
	w := world.Start(t, quick())
	for _, id := range []string{"a", "b"} {
		w.Create(t, id, "outbound: []") // between agents there is always a way
	}
	first := w.Say(t, "a", "internal:dm:default:b", "say: x")
	if first.GetThreadId() != "threads/peers/internal-b" {
		t.Fatalf("routed to %s", first.GetThreadId())
	}
	watch(t, w, "a", first.GetThreadId(), 0, isError)
	drain(t, w, "a", first.GetThreadId())
	list := deliveries(t, w, "a", dead)
	if len(list) != 1 || !strings.Contains(list[0].GetError(), "8 agents") {
		t.Errorf("dead letters %v", list)
	}
	for id, want := range map[string]int{"a": 5, "b": 4} { // b heard hops 1, 3, 5, 7; a the first word and 2, 4, 6, 8
		events := w.Events(t, id, "inbox", "")
		if len(events) != want {
			t.Errorf("%s heard %d messages", id, len(events))
		}
		for _, e := range events {
			if turn := w.Await(t, id, e.GetId()); turn.GetFate() != replied {
				t.Errorf("%s, message %d: %v", id, e.GetId(), turn)
			}
		}
	}
	if list := deliveries(t, w, "b", dead); len(list) != 0 {
		t.Errorf("dead letters of b: %v", list)
	}
}

// pairs checks that a thread is message, reply, message, reply, each the echo of
// the one before: nothing overlapped, nothing is missing or said twice.
func pairs(t *testing.T, w *world.World, agent, threadID string) (texts []string) {
	t.Helper()
	events := w.Events(t, agent, threadID, "")
	for i, e := range events {
		text := strings.TrimPrefix(world.Text(e), "say: ")
		if i%2 == 0 {
			texts = append(texts, text)
		}
		if self := e.GetSource() == "self"; self != (i%2 == 1) || text != texts[i/2] {
			t.Errorf("%s of %s, event %d: %v", threadID, agent, e.GetId(), e)
		}
	}
	if len(events)%2 != 0 {
		t.Errorf("%s of %s has %d events", threadID, agent, len(events))
	}
	return texts
}

// Messages of one peer that come at the same time are worked on one by one, in
// the order of the inbox (S0-72, S1-18, I11).
func TestParallelMessagesOfOnePeer(t *testing.T) {
	const n = 20
	w := world.Start(t, quick())
	w.Create(t, "a1", "outbound: []")
	pushAll(t, w, "a1", n, func(int) string { return "bob" })
	var inbox []string
	var threadID string
	for _, e := range w.Events(t, "a1", "inbox", "") {
		inbox = append(inbox, strings.TrimPrefix(world.Text(e), "say: "))
		threadID = w.Await(t, "a1", e.GetId()).GetThreadId()
	}
	if got := pairs(t, w, "a1", threadID); len(got) != n || fmt.Sprint(got) != fmt.Sprint(inbox) {
		t.Errorf("answered %q, came %q", got, inbox)
	}
}

// pushAll pushes "say: 0", "say: 1", ... at the same time.
func pushAll(t *testing.T, w *world.World, agent string, n int, peer func(i int) string) {
	t.Helper()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if _, err := w.Push(t.Context(), agent, world.Peer(peer(i)), fmt.Sprintf("say: %d", i), ""); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// Fifty peers at once each get their own answer in a thread of their own
// (S0-91, S0-94).
func TestFiftyPeers(t *testing.T) {
	const peers, each = 50, 2
	w := world.Start(t, quick())
	w.Create(t, "a1", "outbound: []")
	pushAll(t, w, "a1", peers*each, func(i int) string { return fmt.Sprintf("p%d", i%peers) })
	threads := map[string]bool{}
	for id := range int64(peers * each) {
		turn := w.Await(t, "a1", id+1)
		if turn.GetFate() != replied {
			t.Errorf("message %d: %v", id+1, turn)
		}
		threads[turn.GetThreadId()] = true
	}
	if len(threads) != peers {
		t.Errorf("%d threads", len(threads))
	}
	for id := range threads {
		if got := pairs(t, w, "a1", id); len(got) != each {
			t.Errorf("%s has %q", id, got)
		}
	}
}

// Two runners share the agents: each message is answered once, whoever has the
// lease (S0-83, S0-84).
func TestTwoRunners(t *testing.T) {
	const agents, each = 4, 10
	o := quick()
	o.Runners = 2
	w := world.Start(t, o)
	var all sync.WaitGroup
	for a := range agents {
		id := fmt.Sprintf("a%d", a)
		w.Create(t, id, "outbound: []")
		all.Go(func() { pushAll(t, w, id, each, func(i int) string { return fmt.Sprintf("p%d", i%3) }) })
	}
	all.Wait()
	for a := range agents {
		agent, said := fmt.Sprintf("a%d", a), 0
		threads := map[string]bool{}
		for id := range int64(each) {
			threads[w.Await(t, agent, id+1).GetThreadId()] = true
		}
		for id := range threads {
			said += len(pairs(t, w, agent, id))
		}
		if said != each {
			t.Errorf("%s answered %d of %d", agent, said, each)
		}
	}
	leases, err := w.Leases.ListLeases(t.Context(), &registryv1.ListLeasesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	holders := map[string]string{}
	for _, l := range leases.GetLeases() {
		if before, twice := holders[l.GetResource()]; twice {
			t.Errorf("%s is held by %s and %s", l.GetResource(), before, l.GetHolder())
		}
		holders[l.GetResource()] = l.GetHolder()
	}
}

// What the agent remembers of one peer is in that peer's prompt and in nobody
// else's, as shown and as sent (S0-29, S0-76, S0-107, I14).
func TestMemoriesDoNotMix(t *testing.T) {
	p, o := withProvider(t, quick())
	w := world.Start(t, o)
	w.Create(t, "a1", "outbound: []")
	write := func(name, text string) {
		t.Helper()
		if _, err := w.Agents.WriteAgentFile(t.Context(), &registryv1.WriteAgentFileRequest{AgentId: "a1", Name: name, Content: []byte(text)}); err != nil {
			t.Fatal(err)
		}
	}
	write("memory/agent.md", "everybody may know the canary-agent")
	peers := []string{"bob", "alice", "bo-b"}
	for _, peer := range peers {
		w.Say(t, "a1", world.Peer(peer), "I am canary-word-"+peer+".")
		write("memory/user-main-"+strings.ReplaceAll(peer, "-", "%2D")+".md", "likes canary-user-"+peer+".")
		write("memory/thread-threads%2Fpeers%2Fmain-"+strings.ReplaceAll(peer, "-", "%2D")+".md", "spoke of canary-thread-"+peer+".")
	}
	check := func(what, peer, text string) {
		t.Helper()
		for _, other := range peers {
			for _, kind := range []string{"word", "user", "thread"} {
				if has := strings.Contains(text, "canary-"+kind+"-"+other+"."); has != (other == peer) {
					t.Errorf("%s for %s: canary-%s-%s is in it: %v", what, peer, kind, other, has)
				}
			}
		}
		if !strings.Contains(text, "canary-agent") {
			t.Errorf("%s for %s lacks agent.md", what, peer)
		}
	}
	for _, peer := range peers {
		turn := w.Say(t, "a1", world.Peer(peer), "and now?")
		requests := p.requests()
		check("sent", peer, requests[len(requests)-1])
		shown, err := w.Runner.BuildContext(t.Context(), &runnerv1.BuildContextRequest{AgentId: "a1", ThreadId: turn.GetThreadId()})
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for _, part := range shown.GetParts() {
			b.WriteString(part.GetText() + "\n")
		}
		check("shown", peer, b.String())
	}
}
