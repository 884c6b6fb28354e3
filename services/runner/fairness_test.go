package runner_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
)

// push puts a message into an inbox and answers its id.
func (w *world) push(agent, source, text string) int64 {
	w.t.Helper()
	p, err := w.threads.PushEvents(w.t.Context(), &registrypb.PushEventsRequest{
		Thread: &registrypb.ThreadRef{AgentId: agent, ThreadId: "inbox"},
		Events: []*registrypb.NewEvent{{Source: source, Type: "message", Content: fmt.Sprintf(`{"text":%q}`, text)}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return p.GetEventIds()[0]
}

// replied waits until an inbox event was answered.
func (w *world) replied(agent string, id int64) {
	w.t.Helper()
	for range 10 {
		r, err := w.turns.GetTurn(w.t.Context(), &registrypb.GetTurnRequest{AgentId: agent, InboxId: id, Wait: durationOf(25 * time.Second)})
		if err != nil {
			w.t.Fatal(err)
		}
		if r.GetTurn().GetState() == registrypb.TurnState_TURN_STATE_DONE {
			if r.GetTurn().GetFate() != replied {
				w.t.Fatalf("not answered: %v", r)
			}
			return
		}
	}
	w.t.Fatalf("message %d of %s has no fate", id, agent)
}

// answers makes a script that answers everything, the first request only when the
// gate is open, and asked the texts in the order in which the model got them.
func answers(t *testing.T, gate <-chan struct{}) (script *modeltest.Server, asked func() []string) {
	script = modeltest.New(t, modeltest.Step{Text: []string{"ok"}, Gate: gate}, modeltest.Step{Text: []string{"ok"}, Repeat: true})
	return script, func() []string {
		var out []string
		for _, r := range script.Requests() {
			out = append(out, r.Chat.LastUser())
		}
		return out
	}
}

func at(t *testing.T, asked []string, text string) int {
	t.Helper()
	i := slices.IndexFunc(asked, func(s string) bool { return strings.Contains(s, text) })
	if i < 0 {
		t.Fatalf("the model was never asked %q", text)
	}
	return i
}

func isOpen() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// Fairness over peers (RELIABILITY section 5): one peer has 200 messages queued in
// as many conversations, another one has one behind them all. It is answered in the
// second round, not as number 201.
func TestFloodOfOnePeer(t *testing.T) {
	w := newWorld(t)
	w.agent("a1", "run: {concurrency: 1}")
	for n := range 200 {
		w.push("a1", fmt.Sprintf("external:telegram:ch%d:dm:bob:bob", n), fmt.Sprint("flood ", n))
	}
	id := w.push("a1", "external:telegram:main:dm:alice:alice", "from alice")
	gate := make(chan struct{})
	script, asked := answers(t, gate)
	read := w.watched()
	r := w.runner(script)
	<-read // the first turn stands until all others are in hand
	close(gate)
	w.replied("a1", id)
	// What was read a moment ago is still on its way into its queue.
	if i := at(t, asked(), "from alice"); i > 10 {
		t.Errorf("alice was asked about as number %d", i+1)
	}
	w.wait(r, "a1", w.say(r, "a1", "and nobody is left out"))
}

// Fairness over agents: with one place in the whole runner, an agent with a
// hundred conversations makes another one wait for a turn, not for all of them.
func TestFloodOfOneAgent(t *testing.T) {
	w := newWorld(t)
	w.agent("flooded", "")
	w.agent("quiet", "")
	for n := range 100 {
		w.push("flooded", fmt.Sprintf("external:telegram:main:dm:p%d:p%d", n, n), fmt.Sprint("flood ", n))
	}
	gate := make(chan struct{})
	script, asked := answers(t, gate)
	read := w.watched()
	w.runner(script, func(c *runner.Config) { c.Slots = 1 })
	<-read
	id := w.push("quiet", "external:telegram:main:dm:bob:bob", "from quiet")
	if agent := <-read; agent != "quiet" {
		t.Fatalf("%s was read", agent)
	}
	close(gate)
	w.replied("quiet", id)
	if i := at(t, asked(), "from quiet"); i > 10 {
		t.Errorf("the other agent was asked about as number %d", i+1)
	}
}

// A batch gives its place away after 32 events if another agent waits for one; then
// it comes back behind it and finishes, under another token.
func TestShareOfAPlace(t *testing.T) {
	w := newWorld(t)
	w.agent("busy", "run: {concurrency: 1}")
	w.agent("waits", "")
	var last int64
	for n := range 300 {
		last = w.push("busy", fmt.Sprintf("external:telegram:main:dm:p%d:p%d", n%3, n%3), fmt.Sprint("flood ", n))
	}
	gate := make(chan struct{})
	script, asked := answers(t, gate)
	read := w.watched()
	w.runner(script, func(c *runner.Config) { c.Agents, c.Poll = 1, 20*time.Millisecond })
	<-read
	id := w.push("waits", "external:telegram:main:dm:bob:bob", "from the one who waits")
	close(gate)
	w.replied("waits", id)
	if i := at(t, asked(), "from the one who waits"); i < 32 || i > 200 {
		t.Errorf("asked about as number %d", i+1)
	}
	w.replied("busy", last)
	if token := w.token("busy"); token < 2 {
		t.Errorf("finished under token %d", token)
	}
}

// And only then: while nobody waits, all of it is done under one lease.
func TestShareOnlyIfOthersWait(t *testing.T) {
	w := newWorld(t)
	w.agent("busy", "run: {concurrency: 1}")
	var last int64
	for n := range 100 {
		last = w.push("busy", "external:telegram:main:dm:bob:bob", fmt.Sprint("message ", n))
	}
	script, _ := answers(t, isOpen())
	w.runner(script, func(c *runner.Config) { c.Agents, c.Poll = 1, 20*time.Millisecond })
	w.replied("busy", last)
	if token := w.token("busy"); token != 1 {
		t.Errorf("finished under token %d", token)
	}
}

// A lease that is only kept, for 10 s after the last message, does not keep another
// agent waiting.
func TestIdlePlaceIsGivenAway(t *testing.T) {
	w := newWorld(t)
	w.agent("done", "")
	w.agent("next", "")
	script, _ := answers(t, isOpen())
	w.runner(script, func(c *runner.Config) { c.Agents, c.Keep = 1, time.Hour })
	for n := range 3 {
		w.replied("done", w.push("done", "external:telegram:main:dm:bob:bob", fmt.Sprint("one ", n)))
		w.replied("next", w.push("next", "external:telegram:main:dm:bob:bob", fmt.Sprint("two ", n)))
	}
}
