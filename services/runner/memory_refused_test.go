package runner_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/fault"
	server "github.com/theclaw/agents/internal/testing/world"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
)

// S1-30, S1-57, S1-58, S0-119: a provider that finds the prompt too long gets a
// digest instead of the old messages, then half of the recent ones; then its
// refusal stands. The stream tells of it, and no text is in the reply twice.
func TestProviderRefusesTheLength(t *testing.T) {
	for _, c := range []struct{ refusals, calls int }{{1, 2}, {2, 3}, {5, 3}} {
		t.Run(fmt.Sprint(c.refusals), func(t *testing.T) {
			w, script := play(t)
			left := 0
			script.Push(modeltest.Step{Repeat: true, Answer: func(q modeltest.Chat) modeltest.Step {
				if q.WantsDigest() {
					return modeltest.FactModel().Answer(q)
				}
				if left--; left >= 0 {
					return modeltest.Step{Text: []string{"half "}, Error: &modeltest.APIError{Message: "maximum context length", Code: "context_length_exceeded"}}
				}
				return modeltest.Say("the whole ", "answer")
			}})
			w.Create(t, "a1", "")
			for n := range 5 {
				w.Say(t, "a1", server.Peer("bob"), fmt.Sprintf("fact-%d %s", n, strings.Repeat("word ", 1500)))
			}
			r := &recorder{script: script}
			r.reset()
			left = c.refusals
			started, err := w.Runner.StartRun(t.Context(), &runnerpb.StartRunRequest{AgentId: "a1", Source: server.Peer("bob"), Text: "and now?"})
			if err != nil {
				t.Fatal(err)
			}
			items := watch(t, w, started.GetRunId())
			turn := w.Await(t, "a1", started.GetInboxId())
			if n := len(r.replies()); n != c.calls || len(r.digests()) != 1 {
				t.Fatalf("%d calls and %d digests", n, len(r.digests()))
			}
			for n, q := range r.replies()[1:] {
				if len(q.Text()) >= len(r.replies()[n].Text()) {
					t.Errorf("call %d is not smaller than the one before", n+2)
				}
			}
			told := ""
			for _, i := range items {
				switch i.GetStream() {
				case runnerpb.RunStream_RUN_STREAM_COMPACTION:
					told += " " + i.GetPhase()
					if i.GetWillRetry() {
						told += "+retry"
					}
				case runnerpb.RunStream_RUN_STREAM_ASSISTANT:
					told += " text"
				default:
				}
			}
			once := " text start end+retry"
			switch {
			case c.refusals < 3:
				want(t, w, turn, replied, "the whole answer")
				if told != strings.Repeat(once, c.refusals)+" text text" {
					t.Errorf("the stream told%s", told)
				}
			default:
				want(t, w, turn, dead, "")
				if told != strings.Repeat(once, 2)+" text start end" || !strings.Contains(turn.GetError(), "prompt too long") {
					t.Errorf("the stream told%s; error %q", told, turn.GetError())
				}
			}
		})
	}
}

func watch(t *testing.T, w *server.World, run string) (items []*runnerpb.StreamRunResponse) {
	t.Helper()
	s, err := w.Runner.StreamRun(t.Context(), &runnerpb.StreamRunRequest{AgentId: "a1", RunId: run})
	if err != nil {
		t.Fatal(err)
	}
	for {
		i, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return items
		}
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, i)
	}
}

// I14: whatever is digested how often, no request for one peer holds a word that
// another one said, and no file of one peer does.
func TestPeersStayApart(t *testing.T) {
	w, script := play(t, modeltest.FactModel())
	w.Create(t, "a1", "compaction:\n  after_turns: 2\n  peer_every: 1\n  agent_every: 1")
	peers := []string{"alice", "bob", "carol"}
	for n := range 12 {
		for _, p := range peers {
			sayDigested(t, w, p, fmt.Sprintf("my secret is fact-%s-%d", p, n))
		}
	}
	for _, r := range script.Requests() {
		owners := map[string]bool{}
		for _, f := range modeltest.Facts(r.Chat.Text()) {
			owners[strings.Split(f, "-")[1]] = true
		}
		if len(owners) > 1 {
			t.Fatalf("one request holds the words of %v:\n%s", owners, r.Chat.Text())
		}
		if own := strings.Contains(r.Chat.Messages[0].Content, "the agent's own work"); own && len(owners) > 0 {
			t.Fatalf("the agent's layer was made of words of %v", owners)
		}
	}
	for _, p := range peers {
		if got := memoryFile(t, w, "a1", "user-main-"+p+".md"); !strings.Contains(got, "fact-"+p) {
			t.Errorf("the layer of %s holds %q", p, got)
		}
	}
	if got := memoryFile(t, w, "a1", "agent.md"); got == "" || len(modeltest.Facts(got)) != 0 {
		t.Errorf("the agent's layer holds %q", got)
	}
}

// I14 in a thread that many share: the thread's layer is about all of them, a
// peer's about that peer alone.
func TestSharedThread(t *testing.T) {
	w, _ := play(t, modeltest.FactModel())
	w.Create(t, "a1", "routing:\n  default: per-channel\ncompaction:\n  after_turns: 2\n  peer_every: 1")
	for n := range 6 {
		for _, p := range []string{"alice", "bob"} {
			sayDigested(t, w, p, fmt.Sprintf("fact-%s-%d", p, n))
		}
	}
	all := memoryFile(t, w, "a1", "thread-threads%2Fchannels%2Fmain.md")
	if !strings.Contains(all, "fact-alice") || !strings.Contains(all, "fact-bob") {
		t.Errorf("the thread's layer holds %q", all)
	}
	for _, p := range []string{"alice", "bob"} {
		text := memoryFile(t, w, "a1", "user-main-"+p+".md")
		other := map[string]string{"alice": "bob", "bob": "alice"}[p]
		if strings.Contains(text, "fact-"+other) {
			t.Errorf("the layer of %s holds %q", p, text)
		}
	}
	if a, b := memoryFile(t, w, "a1", "user-main-alice.md"), memoryFile(t, w, "a1", "user-main-bob.md"); a+b == "" {
		t.Error("no peer has a layer")
	}
}

// S0-118: a person may ask for a digest, and another strategy forgets instead.
func TestDigestOnDemand(t *testing.T) {
	w, script := play(t, modeltest.FactModel())
	w.Create(t, "a1", "")
	r := &recorder{script: script}
	w.Say(t, "a1", server.Peer("bob"), "fact-one")
	compact := func(thread string) *runnerpb.CompactMemoryResponse {
		t.Helper()
		out, err := w.Runner.CompactMemory(t.Context(), &runnerpb.CompactMemoryRequest{AgentId: "a1", ThreadId: thread})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if out := compact(bobThread); out.GetMessages() != 2 || out.GetName() != "memory/"+bobFile || len(r.digests()) != 1 {
		t.Errorf("%v after %d calls", out, len(r.digests()))
	}
	if out := compact(bobThread); out.GetName() != "" || len(r.digests()) != 1 {
		t.Errorf("again: %v after %d calls", out, len(r.digests()))
	}
	if out := compact(""); out.GetName() != "memory/agent.md" || len(r.digests()) != 2 {
		t.Errorf("the agent's own: %v after %d calls", out, len(r.digests()))
	}
	if out := compact(""); out.GetName() != "" || len(r.digests()) != 2 {
		t.Errorf("the agent's own again: %v", out)
	}
	if _, err := w.Runner.CompactMemory(t.Context(), &runnerpb.CompactMemoryRequest{AgentId: "a1", ThreadId: "threads/peers/none"}); !fault.Is(err, fault.ThreadNotFound) {
		t.Errorf("a thread that is not there: %v", err)
	}
	w.Set(t, "a1", "compaction.strategy", "truncate")
	w.Set(t, "a1", "compaction.after_turns", "1")
	before := memoryFile(t, w, "a1", bobFile)
	sayDigested(t, w, "bob", "fact-two")
	if after := memoryFile(t, w, "a1", bobFile); after != before || len(r.digests()) != 2 {
		t.Errorf("truncate changed %q to %q with %d calls", before, after, len(r.digests()))
	}
	m, err := w.Turns.GetMemory(t.Context(), &registrypb.GetMemoryRequest{AgentId: "a1", ThreadId: bobThread})
	if err != nil || m.GetMemory()[0].GetCompactions() != 2 {
		t.Errorf("%v %v", m, err)
	}
}

// S0-24, S0-108: a system agent is told who else is there, in the words of their
// USAGE.md; a user agent is not, and nobody reads its own.
func TestOtherAgents(t *testing.T) {
	w, script := play(t, modeltest.FactModel())
	for _, id := range []string{"boss", "helper"} {
		w.Create(t, id, "")
		if _, err := w.Agents.WriteAgentFile(t.Context(), &registrypb.WriteAgentFileRequest{
			AgentId: id, Name: "USAGE.md", Content: []byte("# Usage\n\nAsk " + id + " about fact-" + id + ".\n"),
		}); err != nil {
			t.Fatal(err)
		}
	}
	w.Set(t, "boss", "kind", "system")
	w.Set(t, "boss", "inbox.external", "allow")
	for _, id := range []string{"boss", "helper"} {
		w.Say(t, id, server.Peer("bob"), "hi")
	}
	for n, want := range []string{"fact-helper", ""} {
		if got := strings.Join(modeltest.Facts(script.Requests()[n].Chat.Text()), " "); got != want {
			t.Errorf("request %d tells of %q, want %q", n, got, want)
		}
	}
	// What is shown is what was asked (S1-27).
	c, err := w.Runner.BuildContext(t.Context(), &runnerpb.BuildContextRequest{AgentId: "boss", ThreadId: bobThread})
	if err != nil {
		t.Fatal(err)
	}
	var system []string
	for _, p := range c.GetParts() {
		if p.GetRole() == "system" {
			system = append(system, p.GetText())
		}
	}
	if got := strings.Join(system, "\n\n"); got != script.Requests()[0].Chat.Messages[0].Content {
		t.Errorf("shown:\n%s\nasked:\n%s", got, script.Requests()[0].Chat.Messages[0].Content)
	}
}
