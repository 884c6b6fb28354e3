package world_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// begun counts the turns of an agent that somebody has claimed, up to an inbox id.
func begun(t *testing.T, c world.Client, agent string, last int64) int {
	t.Helper()
	n := 0
	for id := int64(1); id <= last; id++ {
		if c.Ask(t, agent, id, 0).GetState() != registryv1.TurnState_TURN_STATE_QUEUED {
			n++
		}
	}
	return n
}

// I20 among registries: an agent is stopped at one while runners at both work on it. No
// claim follows the answer; what waits is answered when it is started at the other.
func TestStopAcrossRegistries(t *testing.T) {
	w := cluster(t, world.Options{Runners: 2})
	a, b := w.At[0], w.At[1]
	a.Create(t, "busy", "")
	b.Create(t, "other", "")
	var last int64
	for round := range 6 {
		push := func(from, to int) {
			t.Helper()
			for i := from; i < to; i++ {
				id, err := w.At[i%2].Push(t.Context(), "busy", world.Peer(fmt.Sprint("p", i)), fmt.Sprint("hello ", i), fmt.Sprint(round, "-", i))
				if err != nil {
					t.Fatal(err)
				}
				last = max(last, id)
			}
		}
		push(0, 12)
		stopper, starter := w.At[round%2], w.At[(round+1)%2]
		if _, err := stopper.Agents.StopAgent(t.Context(), &registryv1.StopAgentRequest{AgentId: "busy"}); err != nil {
			t.Fatal(err)
		}
		// However fast the runners were, there is something that they must leave.
		push(12, 14)
		at := begun(t, starter, "busy", last)
		if int64(at) > last-2 {
			t.Errorf("round %d: %d of %d turns were begun, and two were sent after the stop", round, at, last)
		}
		// Both runners and both registries do a whole message of another agent meanwhile.
		for i := range 4 {
			w.At[i%2].Say(t, "other", world.Peer("bob"), "hello")
		}
		if now := begun(t, starter, "busy", last); now != at {
			t.Errorf("round %d: %d turns were begun when the stop was answered, %d later", round, at, now)
		}
		if _, err := starter.Agents.StartAgent(t.Context(), &registryv1.StartAgentRequest{AgentId: "busy"}); err != nil {
			t.Fatal(err)
		}
	}
	for id := int64(1); id <= last; id++ {
		if turn := w.At[id%2].Await(t, "busy", id); turn.GetFate() != registryv1.Fate_FATE_REPLIED {
			t.Errorf("message %d: %v", id, turn)
		}
	}
}

// A file that is written at one registry is read at the other; of two who change it one
// is told; a setting holds at the other soon, and its worth is that of the database.
func TestFilesAcrossRegistries(t *testing.T) {
	w := cluster(t, world.Options{Runners: 1})
	a, b := w.At[0].Agents, w.At[1].Agents
	w.Create(t, "one", "")
	ctx := t.Context()
	read := func(c registryv1.AgentServiceClient) *registryv1.ReadAgentFileResponse {
		t.Helper()
		r, err := c.ReadAgentFile(ctx, &registryv1.ReadAgentFileRequest{AgentId: "one", Name: "IDENTITY.md"})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	was := read(a)
	write := func(c registryv1.AgentServiceClient, text string) error {
		_, err := c.WriteAgentFile(ctx, &registryv1.WriteAgentFileRequest{AgentId: "one", Name: "IDENTITY.md", Content: []byte(text), IfVersion: was.GetVersion()})
		return err
	}
	if err := write(b, "I am b's.\n"); err != nil {
		t.Fatal(err)
	}
	if err := write(a, "I am a's.\n"); err == nil {
		t.Error("a change of the other was written over")
	}
	if got := read(a); string(got.GetContent()) != "I am b's.\n" {
		t.Errorf("read %q", got.GetContent())
	}
	for i, c := range []registryv1.AgentServiceClient{a, b, a} {
		want := fmt.Sprint(i+2, "m")
		if _, err := c.SetAgentConfig(ctx, &registryv1.SetAgentConfigRequest{AgentId: "one", Key: "run.timeout", Value: want}); err != nil {
			t.Fatal(err)
		}
		for _, at := range []registryv1.AgentServiceClient{c, a, b} {
			for end := time.Now().Add(30 * time.Second); ; <-time.After(5 * time.Millisecond) {
				r, err := at.GetAgentConfig(ctx, &registryv1.GetAgentConfigRequest{AgentId: "one"})
				if err != nil {
					t.Fatal(err)
				}
				got := ""
				for _, v := range r.GetValues() {
					if v.GetKey() == "run.timeout" {
						got = v.GetValue()
					}
				}
				if got == want {
					break
				}
				if at == c || time.Now().After(end) {
					t.Fatalf("change %d is %q where it was made", i, got)
				}
			}
		}
	}
	if _, err := b.CreateAgent(ctx, &registryv1.CreateAgentRequest{AgentId: "one"}); err == nil {
		t.Error("an agent was made twice")
	}
	if _, err := b.GetAgent(ctx, &registryv1.GetAgentRequest{AgentId: "nobody"}); err == nil {
		t.Error("nobody is described")
	}
	list, err := b.ListAgents(ctx, &registryv1.ListAgentsRequest{})
	if err != nil || len(list.GetAgents()) != 1 || !list.GetAgents()[0].GetStarted() {
		t.Errorf("listed %v, %v", list, err)
	}
}
