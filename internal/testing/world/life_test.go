package world_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// inbox answers the consumers of an agent's inbox.
func inbox(t *testing.T, w *world.World, agent string) (handlers []string, acked int64) {
	t.Helper()
	info, err := w.Threads.GetThread(t.Context(), &registryv1.GetThreadRequest{Thread: &registryv1.ThreadRef{AgentId: agent, ThreadId: "inbox"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range info.GetSubscriptions() {
		handlers, acked = append(handlers, s.GetConsumer()+": "+s.GetHandler()), s.GetLastAckedId()
	}
	return handlers, acked
}

// A stop lets the turn under way finish and begins nothing more, of whatever was
// there or comes; a start goes on where it was, in order, without a repeat
// (S0-06, S0-08, S0-09, S0-10, I20).
func TestStopAndStart(t *testing.T) {
	p, o := withProvider(t, quick())
	w := world.Start(t, o)
	w.Create(t, "a1", "outbound: []")
	push := func(text string) int64 {
		t.Helper()
		id, err := w.Push(t.Context(), "a1", world.Peer("bob"), text, "")
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	running, waiting := push("HOLD-ON 1"), push("2")
	arrive(t, p.held, 1)
	if _, err := w.Agents.StopAgent(t.Context(), &registryv1.StopAgentRequest{AgentId: "a1"}); err != nil {
		t.Fatal(err)
	}
	ids := []int64{running, waiting, push("3"), push("4")}
	if h, _ := inbox(t, w, "a1"); len(h) != 0 {
		t.Errorf("a stopped agent is subscribed: %q", h)
	}
	close(p.free)
	if turn := w.Await(t, "a1", running); turn.GetFate() != replied {
		t.Errorf("the turn under way: %v", turn)
	}
	// Another agent's whole turn later, still nothing has begun.
	w.Create(t, "a2", "outbound: []")
	w.Say(t, "a2", world.Peer("bob"), "is anybody there?")
	for _, id := range ids[1:] {
		if turn := w.Ask(t, "a1", id, 0); turn.GetState() != registryv1.TurnState_TURN_STATE_QUEUED {
			t.Errorf("begun after the stop: %v", turn)
		}
	}
	if _, err := w.Agents.StartAgent(t.Context(), &registryv1.StartAgentRequest{AgentId: "a1"}); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		w.Await(t, "a1", id)
	}
	var texts []string
	for i, e := range w.Events(t, "a1", "threads/peers/main-bob", "") {
		if i%2 == 0 {
			texts = append(texts, world.Text(e))
		} else if e.GetSource() != "self" {
			t.Errorf("event %d: %v", e.GetId(), e)
		}
	}
	if !slices.Equal(texts, []string{"HOLD-ON 1", "2", "3", "4"}) || len(p.requests()) != 5 {
		t.Errorf("thread holds %q after %d calls", texts, len(p.requests()))
	}
	if h, acked := inbox(t, w, "a1"); !slices.Equal(h, []string{"inbox: agent run a1"}) || acked != ids[3] {
		t.Errorf("started: %q, acknowledged %d", h, acked)
	}
}

// A routing mode that was changed while a turn was interrupted leaves that turn
// where it began; what comes after goes the new way (S0-98, x_route).
func TestRouteChangedInBetween(t *testing.T) {
	p, o := withProvider(t, quick())
	o.Runner.Grace = time.Millisecond // a stop is as hard as can be
	w := world.Start(t, o)
	w.Create(t, "a1", "outbound: []")
	id, err := w.Push(t.Context(), "a1", world.Peer("bob"), "HOLD-ON", "")
	if err != nil {
		t.Fatal(err)
	}
	arrive(t, p.held, 1)
	w.Stop()
	close(p.free)
	config := filepath.Join(o.Home, "agents/a1/config.yaml")
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, append(text, "routing: {default: per-agent}\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	w = world.Start(t, o)
	turn := w.Await(t, "a1", id)
	const old = "threads/peers/main-bob"
	if turn.GetThreadId() != old || turn.GetFate() != replied {
		t.Errorf("recovered: %v", turn)
	}
	if n := len(w.Events(t, "a1", old, "")); n != 2 {
		t.Errorf("%d events in the old thread", n)
	}
	if turn := w.Say(t, "a1", world.Peer("bob"), "next"); turn.GetThreadId() != "threads/main" || turn.GetFate() != replied {
		t.Errorf("after the change: %v", turn)
	}
	if n := len(w.Events(t, "a1", "threads/main", "type = 'message'")); n != 2 {
		t.Errorf("%d messages in the new thread", n)
	}
}

// A message written by another program, with plain SQLite and without a
// notifier, is answered long before the sweep that would find it at the latest
// (S0-51, RELIABILITY section 5).
func TestForeignPush(t *testing.T) {
	o := quick()
	o.Registry.Sweep = time.Hour
	w := world.Start(t, o)
	w.Create(t, "a1", "outbound: []")
	w.Create(t, "a2", "outbound: []")
	w.Say(t, "a1", world.Peer("bob"), "say: one") // a1's inbox is open here, a2's is not
	for _, agent := range []string{"a1", "a2"} {
		begin := time.Now()
		id := w.InsertOutside(t, agent, "INSERT INTO events(source,type,content) VALUES(?,'message',?)", world.Peer("eve"), world.Message("say: found"))
		turn := w.Await(t, agent, id)
		t.Logf("%s answered after %v", agent, time.Since(begin))
		if got := w.Reply(t, turn); got != "found" {
			t.Errorf("%s replied %q: %v", agent, got, turn)
		}
	}
}

// An agent whose settings cannot be used any more is shown with what is wrong, works by the
// last good ones, and does not touch the others; corrected, it is well (S0-15, S0-49; F8).
func TestBrokenAgent(t *testing.T) {
	w := world.Start(t, quick())
	w.Create(t, "good", "outbound: []")
	w.Create(t, "bad", "outbound: []")
	say(t, w, "bad", "bob", "before")
	config := filepath.Join(w.Home, "agents/bad/config.yaml")
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, []byte("agent_id: bad\nkind: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	say(t, w, "bad", "bob", "during")
	say(t, w, "good", "bob", "unharmed")
	list, err := w.Agents.ListAgents(t.Context(), &registryv1.ListAgentsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list.GetAgents() {
		degraded := a.GetHealth() == registryv1.AgentHealth_AGENT_HEALTH_DEGRADED
		if degraded != (a.GetAgentId() == "bad") || degraded != strings.Contains(a.GetProblem(), "config.yaml:2:7") {
			t.Errorf("listed: %v", a)
		}
	}
	if len(list.GetAgents()) != 2 {
		t.Errorf("listed %v", list)
	}
	if err := os.WriteFile(config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	say(t, w, "bad", "bob", "after")
	if got := status(t, w, "bad").GetAgent(); got.GetHealth() != registryv1.AgentHealth_AGENT_HEALTH_OK {
		t.Errorf("corrected: %v", got)
	}
}

// A directory that goes while a turn runs takes that agent with it and nobody
// else, and its name is free again (S0-11).
func TestDeletedInMidTurn(t *testing.T) {
	p, o := withProvider(t, quick())
	w := world.Start(t, o)
	w.Create(t, "other", "outbound: []")
	w.Create(t, "gone", "outbound: []")
	for i := range 3 {
		if _, err := w.Push(t.Context(), "gone", world.Peer(fmt.Sprint("p", i)), "HOLD-ON", ""); err != nil {
			t.Fatal(err)
		}
	}
	arrive(t, p.held, 3)
	if err := os.RemoveAll(filepath.Join(w.Home, "agents/gone")); err != nil {
		t.Fatal(err)
	}
	close(p.free)
	if turn := w.Say(t, "other", world.Peer("bob"), "hi"); turn.GetFate() != replied {
		t.Errorf("the other agent: %v", turn)
	}
	for what, call := range map[string]func() error{
		"push": func() error { _, err := w.Push(t.Context(), "gone", world.Peer("bob"), "hi", ""); return err },
		"get": func() error {
			_, err := w.Agents.GetAgent(t.Context(), &registryv1.GetAgentRequest{AgentId: "gone"})
			return err
		},
		"turn": func() error {
			_, err := w.Turns.GetTurn(t.Context(), &registryv1.GetTurnRequest{AgentId: "gone", InboxId: 1})
			return err
		},
	} {
		if err := call(); !fault.Is(err, fault.AgentNotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
	list, err := w.Agents.ListAgents(t.Context(), &registryv1.ListAgentsRequest{})
	if err != nil || len(list.GetAgents()) != 1 {
		t.Errorf("listed %v, %v", list, err)
	}
	if _, err := os.Stat(filepath.Join(w.Home, "agents/gone")); !os.IsNotExist(err) {
		t.Errorf("the directory is back: %v", err)
	}
	w.Create(t, "gone", "outbound: []")
	turn := w.Say(t, "gone", world.Peer("p0"), "new")
	if turn.GetFate() != replied || turn.GetInboxId() != 1 {
		t.Errorf("the new agent: %v", turn)
	}
	if n := len(w.Events(t, "gone", turn.GetThreadId(), "")); n != 2 {
		t.Errorf("the new agent's thread has %d events", n)
	}
}
