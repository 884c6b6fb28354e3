//go:build proof

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerv1 "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// provider is a model that knows nothing but its context: it keeps the facts
// (words that begin with fact-) in a digest, and says which it sees.
type provider struct {
	digests atomic.Int64 // requests for a digest
	// hold, when set, keeps digests back until it is closed.
	hold atomic.Pointer[chan struct{}]
}

var facts = regexp.MustCompile(`fact-[a-z0-9-]+`)

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q struct{ Messages []struct{ Content string } }
	if json.NewDecoder(r.Body).Decode(&q) != nil || len(q.Messages) == 0 {
		http.Error(w, "not a chat request", http.StatusBadRequest)
		return
	}
	var seen []string
	for _, m := range q.Messages {
		seen = append(seen, facts.FindAllString(m.Content, -1)...)
	}
	slices.Sort(seen)
	text := "I know " + strings.Join(slices.Compact(seen), " ")
	if strings.HasPrefix(q.Messages[0].Content, "You keep the memory of an agent.") {
		p.digests.Add(1)
		if hold := p.hold.Load(); hold != nil {
			<-*hold
		}
	}
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprintf(w, "data: {\"id\":\"1\",\"model\":\"m1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":%q},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n", text)
}

// S0-113 to S0-119 under P1: agentd is killed at each instant of the digest that follows a
// reply. The reply stands, the next message does not wait for a digest either, the digest is
// there once, and one that was committed is not paid for again.
func TestKilledInACompaction(t *testing.T) {
	for _, c := range []struct {
		label  string
		levels int // 2: the agent's own layer too, which is the one that is hit
		calls  int64
		killed int64 // of them in the process that was killed
	}{
		{"compaction.before", 1, 1, 0}, // asked for once, after the next message
		{"compaction.after", 1, 2, 1},  // window C: answered, and nobody knows
		{"compaction.commit", 1, 2, 1},
		{"compaction.committed", 1, 1, 1},
		{"compaction.written", 1, 1, 1},
		{"compaction.committed", 2, 2, 2},
		{"compaction.written", 2, 2, 2},
	} {
		t.Run(fmt.Sprint(c.label, c.levels), func(t *testing.T) {
			model := &provider{}
			server := httptest.NewServer(model)
			defer server.Close()
			site := world.NewSite(t, program(t))
			if err := os.MkdirAll(site.Home, 0o700); err != nil {
				t.Fatal(err)
			}
			settings := "default: work\nproviders:\n  work:\n    base_url: " + server.URL + "/v1\n    models: [m1]\n"
			if err := os.WriteFile(filepath.Join(site.Home, "providers.yaml"), []byte(settings), 0o600); err != nil {
				t.Fatal(err)
			}
			all := append([]string{"all"}, flags...)
			p := site.Start(t, all...)
			site.Create(t, "a1", "compaction:\n  after_turns: 3\ncontext:\n  recent_messages: 8\noutbound: []")
			if c.levels == 2 {
				site.Set(t, "a1", "compaction.agent_every", "1")
			}
			replied(t, site, bob(t, site, "it is fact-one")(), "fact-one")
			replied(t, site, bob(t, site, "and fact-two")(), "fact-two")
			p.Kill()

			p = site.StartWith(t, []string{fmt.Sprintf("%s=%s:%d", failpoint, c.label, c.levels)}, all...)
			site.Serving(t, p, "registry", "runner")
			wait := bob(t, site, "what do you know?")
			<-p.Done()
			if !p.Killed() {
				t.Fatalf("agentd ended by itself; its log:\n%s", p.Log())
			}
			if n := model.digests.Load(); n != c.killed {
				t.Errorf("%d digests were paid for before the kill, want %d", n, c.killed)
			}
			hold := make(chan struct{})
			model.hold.Store(&hold)
			p = site.Start(t, all...)
			turn := wait()
			replied(t, site, turn, "fact-one fact-two")
			if len(turn.GetAttempts()) > 0 || len(turn.GetSteps()) != 1 {
				t.Errorf("the digest is no part of the turn: %v", turn)
			}
			next := bob(t, site, "and now?")()
			replied(t, site, next, "fact-one fact-two")
			close(hold)

			m, err := world.Again(t.Context(), func(ctx context.Context) (*registryv1.GetMemoryResponse, error) {
				for {
					m, err := site.Turns.GetMemory(ctx, &registryv1.GetMemoryRequest{AgentId: "a1", ThreadId: turn.GetThreadId()})
					if err != nil {
						return nil, err
					}
					// The agent's layer counts it last.
					if l := m.GetMemory(); l[0].GetContent() != "" && l[2].GetPending()+l[2].GetCompactions() > 0 {
						return m, nil
					}
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if n := model.digests.Load(); n != c.calls {
				t.Errorf("%d digests were paid for, want %d", n, c.calls)
			}
			if l := m.GetMemory()[0]; l.GetCompactions() != 1 || l.GetContent() != "I know fact-one fact-two\n" || l.GetDigestedId() == 0 {
				t.Errorf("memory is %v", l)
			}
			if l := m.GetMemory()[2]; l.GetCompactions() != int64(c.levels-1) || l.GetPending() != int64(2-c.levels) || (l.GetContent() != "") != (c.levels == 2) {
				t.Errorf("the agent's own memory is %v", l)
			}
			if n := len(site.Events(t, "a1", turn.GetThreadId(), "subtype = 'decision'")); n != c.levels {
				t.Errorf("%d decisions are told, want %d", n, c.levels)
			}
			if n := len(site.Events(t, "a1", turn.GetThreadId(), "type = 'message'")); n != 8 {
				t.Errorf("the thread holds %d messages, want 8", n)
			}
			p.Kill()
		})
	}
}

// An epoch begins, and agentd is killed before the digest of the one before is moved: the next
// process answers without it, and moves it once.
func TestKilledAsAnEpochBegins(t *testing.T) {
	model := &provider{}
	server := httptest.NewServer(model)
	defer server.Close()
	site := world.NewSite(t, program(t))
	if err := os.MkdirAll(site.Home, 0o700); err != nil {
		t.Fatal(err)
	}
	settings := "default: work\nproviders:\n  work:\n    base_url: " + server.URL + "/v1\n    models: [m1]\n"
	if err := os.WriteFile(filepath.Join(site.Home, "providers.yaml"), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	all := append([]string{"all"}, flags...)
	p := site.Start(t, all...)
	site.Create(t, "a1", "outbound: []")
	turn := bob(t, site, "it is fact-one")()
	replied(t, site, turn, "fact-one")
	if _, err := site.Runner.CompactMemory(t.Context(), &runnerv1.CompactMemoryRequest{AgentId: "a1", ThreadId: turn.GetThreadId()}); err != nil {
		t.Fatal(err)
	}
	list, err := site.Sessions.ListSessions(t.Context(), &registryv1.ListSessionsRequest{AgentId: "a1"})
	if err != nil || len(list.GetSessions()) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	if _, err := site.Sessions.ResetSession(t.Context(), &registryv1.ResetSessionRequest{AgentId: "a1", Key: list.GetSessions()[0].GetKey()}); err != nil {
		t.Fatal(err)
	}
	p.Kill()

	p = site.StartWith(t, []string{failpoint + "=E1.after:1"}, all...)
	site.Serving(t, p, "registry", "runner")
	wait := bob(t, site, "and fact-two")
	<-p.Done()
	if !p.Killed() {
		t.Fatalf("agentd ended by itself; its log:\n%s", p.Log())
	}
	held := func(pattern string) (out []string) {
		names, err := filepath.Glob(filepath.Join(site.Home, "agents", "a1", "memory", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			text, err := os.ReadFile(n)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, string(text))
		}
		return out
	}
	if now := held("thread-*.md"); !slices.Equal(now, []string{"I know fact-one\n"}) || len(held("past/*")) != 0 {
		t.Errorf("when it was killed: %q, past %q", now, held("past/*"))
	}
	site.Start(t, all...)
	if got := site.Reply(t, wait()); got != "I know fact-two" {
		t.Errorf("the first answer of the epoch: %q", got)
	}
	if now, past := held("thread-*.md"), held("past/*"); !slices.Equal(now, []string{""}) || !slices.Equal(past, []string{"I know fact-one\n"}) {
		t.Errorf("after it: %q, past %q", now, past)
	}
	if n := len(site.Events(t, "a1", turn.GetThreadId(), "subtype = 'session'")); n != 1 {
		t.Errorf("%d epochs began, want 1", n)
	}
}
