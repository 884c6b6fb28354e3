package runner_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	server "github.com/theclaw/agents/internal/testing/world"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
)

// slowDigests is a provider that answers replies at once, and a digest when the test lets
// it: each comes out of asked, and is answered by a send on release. A digest whose caller
// has gone comes out of gone.
type slowDigests struct {
	url     string
	asked   chan modeltest.Chat
	release chan bool // false: the digest fails
	gone    chan struct{}

	mu      sync.Mutex
	replies []modeltest.Chat
	open    int // digests
}

func newSlowDigests(t *testing.T) *slowDigests {
	p := &slowDigests{asked: make(chan modeltest.Chat, 8), release: make(chan bool), gone: make(chan struct{}, 8)}
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	p.url = s.URL + "/v1"
	return p
}

func (p *slowDigests) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q modeltest.Chat
	if json.NewDecoder(r.Body).Decode(&q) != nil || len(q.Messages) == 0 {
		http.Error(w, "not a chat request", http.StatusBadRequest)
		return
	}
	text := "ok"
	if q.WantsDigest() {
		p.count(1)
		defer p.count(-1)
		p.asked <- q
		select {
		case good := <-p.release:
			if !good {
				http.Error(w, `{"error":{"message":"broken"}}`, http.StatusInternalServerError)
				return
			}
		case <-r.Context().Done():
			p.gone <- struct{}{}
			return
		}
		text = "What was said and still holds: " + strings.Join(modeltest.Facts(q.Text()), " ")
	} else {
		p.mu.Lock()
		p.replies = append(p.replies, q)
		p.mu.Unlock()
	}
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprintf(w, "data: {\"id\":\"1\",\"model\":\"m1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":%q},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n", text)
}

func (p *slowDigests) count(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open += n
}

// state is how many replies were asked for, and how many digests are being made.
func (p *slowDigests) state() (replies, open int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.replies), p.open
}

// last is the last request for a reply.
func (p *slowDigests) last() modeltest.Chat {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.replies[len(p.replies)-1]
}

// Of 31 messages none waits for a digest: each is asked for after its tenth reply was
// committed, the next message is answered while it is still being made, and each reply
// costs one call.
func TestNoReplyWaitsForADigest(t *testing.T) {
	p := newSlowDigests(t)
	w := playAt(t, p.url)
	w.Create(t, "a1", "run:\n  concurrency: 1")
	digests := 0
	for n := 1; n <= 31; n++ {
		turn := w.Say(t, "a1", server.Peer("bob"), fmt.Sprintf("message %d fact-%03d", n, n))
		want(t, w, turn, replied, "ok")
		if len(turn.GetSteps()) != 1 {
			t.Errorf("message %d: %v", n, turn.GetSteps())
		}
		switch replies, open := p.state(); {
		case replies != n:
			t.Fatalf("message %d: %d replies were asked for", n, replies)
		case n%10 == 1 && n > 1:
			if open != 1 {
				t.Errorf("message %d: %d digests are being made", n, open)
			}
			p.release <- true
			settled(t, w)
		case n%10 == 0:
			digests++
			if got := modeltest.Facts((<-p.asked).Text()); got[len(got)-1] != fmt.Sprintf("fact-%03d", n) || got[0] != "fact-001" {
				t.Errorf("the digest after message %d is made of %q", n, got)
			}
		case open != 0:
			t.Errorf("message %d: %d digests are being made", n, open)
		}
	}
	if m := layer(t, w, bobThread); m.GetCompactions() != 3 || digests != 3 || len(p.asked) != 0 {
		t.Errorf("%d digests, %v", digests, m)
	}
	if n := len(w.Events(t, "a1", bobThread, "subtype = 'decision'")); n != 3 {
		t.Errorf("%d decisions, want 3", n)
	}
}

// layer is how far a conversation is digested.
func layer(t *testing.T, w *server.World, threadID string) *registrypb.MemoryState {
	t.Helper()
	m, err := w.Turns.GetMemory(t.Context(), &registrypb.GetMemoryRequest{AgentId: "a1", ThreadId: threadID})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(m.GetMemory(), func(s *registrypb.MemoryState) bool {
		return s.GetLayer() == registrypb.MemoryLayer_MEMORY_LAYER_THREAD
	})
	return m.GetMemory()[i]
}

// digesting starts a run and waits until its stream reports that it digests or awaits a digest.
func digesting(t *testing.T, w *server.World, peer, text string) *runnerpb.StartRunResponse {
	t.Helper()
	started, err := w.Runner.StartRun(t.Context(), &runnerpb.StartRunRequest{AgentId: "a1", Source: server.Peer(peer), Text: text})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := w.Runner.StreamRun(ctx, &runnerpb.StreamRunRequest{AgentId: "a1", RunId: started.GetRunId()})
	if err != nil {
		t.Fatal(err)
	}
	for {
		i, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if i.GetStream() == runnerpb.RunStream_RUN_STREAM_COMPACTION {
			return started
		}
	}
}

// A message whose prompt would lack others waits for the digest that is being made of
// them, and its prompt holds it; in a thread that many share, without the layer of the
// peer whose turn it followed (I14).
func TestMessageWaitsForTheDigestItNeeds(t *testing.T) {
	p := newSlowDigests(t)
	w := playAt(t, p.url)
	w.Create(t, "a1", "routing:\n  default: per-channel\ncontext:\n  recent_messages: 4\ncompaction:\n  peer_every: 1\n  keep_tokens: 1")
	for n := 1; n <= 3; n++ { // the digest of the second would be needed by the fourth
		want(t, w, w.Say(t, "a1", server.Peer("alice"), fmt.Sprintf("fact-alice-%d", n)), replied, "ok")
	}
	<-p.asked
	started := digesting(t, w, "bob", "fact-bob-4")
	if replies, open := p.state(); replies != 3 || open != 1 {
		t.Fatalf("%d replies were asked for, %d digests are being made", replies, open)
	}
	p.release <- true
	if q := <-p.asked; !strings.Contains(q.Messages[0].Content, "one person or agent") {
		t.Errorf("the next digest is %q", q.Messages[0].Content)
	}
	turn := w.Await(t, "a1", started.GetInboxId())
	want(t, w, turn, replied, "ok") // before the layer of alice is made
	p.release <- true
	q := p.last()
	if got := modeltest.Facts(q.Text()); !slices.Equal(got, []string{"fact-alice-1", "fact-alice-2", "fact-alice-3", "fact-bob-4"}) {
		t.Errorf("the prompt knows %q", got)
	}
	if system := q.Messages[0].Content; !strings.Contains(system, "still holds: fact-alice-1 fact-alice-2") || strings.Contains(system, "the person you talk with") {
		t.Errorf("the system text is\n%s", system)
	}
	if m := layer(t, w, turn.GetThreadId()); m.GetCompactions() != 1 || len(turn.GetSteps()) != 1 {
		t.Errorf("%v after %v", m, turn.GetSteps())
	}
	settled(t, w)
}

// A message whose prompt would lack others makes the digest where none is being made, such
// as after one that failed; it is a step of its turn.
func TestMessageMakesTheDigestItNeeds(t *testing.T) {
	p := newSlowDigests(t)
	w := playAt(t, p.url)
	w.Create(t, "a1", "context:\n  recent_messages: 4")
	for n := 1; n <= 2; n++ {
		w.Say(t, "a1", server.Peer("bob"), fmt.Sprintf("fact-%d", n))
	}
	<-p.asked
	p.release <- false
	settled(t, w)
	w.Say(t, "a1", server.Peer("bob"), "fact-3")
	<-p.asked
	p.release <- false
	settled(t, w)
	w.Say(t, "a1", server.Peer("bob"), "fact-4") // after two failures one turn asks for none
	if len(p.asked) != 0 {
		t.Fatal("a digest was asked for")
	}
	started := digesting(t, w, "bob", "fact-5")
	if replies, _ := p.state(); replies != 4 {
		t.Fatalf("%d replies were asked for", replies)
	}
	<-p.asked
	p.release <- true
	turn := w.Await(t, "a1", started.GetInboxId())
	want(t, w, turn, replied, "ok")
	if s := turn.GetSteps(); len(s) != 2 || s[0].GetKind() != registrypb.StepKind_STEP_KIND_COMPACTION {
		t.Errorf("journal: %v", s)
	}
	if got := modeltest.Facts(p.last().Text()); len(got) != 5 {
		t.Errorf("the prompt knows %q", got)
	}
}

// The stop of an agent, and of its runner, does not wait for a digest: the call ends with
// the lease, nothing is lost, and the next turn finds the digest due again.
func TestStopEndsADigest(t *testing.T) {
	for _, how := range []string{"agent", "runner"} {
		t.Run(how, func(t *testing.T) {
			p := newSlowDigests(t)
			w := newWorld(t)
			w.agent("a1", "compaction:\n  after_turns: 2")
			hour := func(c *runner.Config) { c.Grace, c.TTL = time.Hour, 1500*time.Millisecond }
			r := w.runnerAt(p.url, hour)
			for n := 1; n <= 2; n++ {
				w.wait(r, "a1", w.say(r, "a1", fmt.Sprintf("fact-%d", n)))
			}
			<-p.asked
			if how == "agent" {
				if _, err := w.agents.StopAgent(t.Context(), &registrypb.StopAgentRequest{AgentId: "a1"}); err != nil {
					t.Fatal(err)
				}
				<-p.gone
				if _, err := w.agents.StartAgent(t.Context(), &registrypb.StartAgentRequest{AgentId: "a1"}); err != nil {
					t.Fatal(err)
				}
			} else {
				r.stop()
				<-p.gone
				r = w.runnerAt(p.url, hour)
			}
			if end := w.wait(r, "a1", w.say(r, "a1", "fact-3")); end.GetText() != "ok" {
				t.Fatalf("%v", end)
			}
			if got := modeltest.Facts((<-p.asked).Text()); !slices.Equal(got, []string{"fact-1", "fact-2", "fact-3"}) {
				t.Errorf("the digest is made of %q", got)
			}
			p.release <- true
			for m := (*registrypb.GetMemoryResponse)(nil); m.GetMemory() == nil || len(modeltest.Facts(m.String())) != 3; {
				var err error
				if m, err = w.turns.GetMemory(t.Context(), &registrypb.GetMemoryRequest{AgentId: "a1", ThreadId: console}); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
