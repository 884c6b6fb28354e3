package gateway_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/channel/telegram/telegramtest"
	"github.com/theclaw/agents/internal/testing/backendtest"
	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// paidModel is a model on loopback whose answers cost the same each. A request is answered when answer has an element; asked
// has one for each request.
func paidModel(t *testing.T) (url string, asked, answer chan struct{}) {
	t.Helper()
	asked, answer = make(chan struct{}, 10), make(chan struct{}, 10)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		select {
		case <-answer:
		case <-r.Context().Done():
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprint(w, `data: {"id":"1","model":"m1","choices":[{"index":0,"delta":{"role":"assistant","content":"done"},"finish_reason":"stop"}]}

data: {"id":"1","model":"m1","choices":[],"usage":{"prompt_tokens":1200,"completion_tokens":80,"total_tokens":1280,"prompt_tokens_details":{"cached_tokens":200}}}

data: [DONE]

`) // the client may be gone
	}))
	t.Cleanup(s.Close)
	return s.URL, asked, answer
}

// S2-17: /usage and /status are answered at once, also while a turn runs: with the tokens and the cost of the epoch,
// the used part of the context window, what waits in this conversation alone, and the version. What is not known is left out.
func TestUsageAndStatus(t *testing.T) {
	api := botAPI(t)
	url, asked, answer := paidModel(t)
	home := filepath.Join(t.TempDir(), "home")
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	providers := fmt.Sprintf("providers: {work: {base_url: %q, models: [m1], context_window: 8000, price: {m1: {input: 3, output: 15, cache_read: 0.3}}}}\n", url+"/v1")
	accounts := fmt.Sprintf("channels:\n  tg: {type: telegram, token: \"env:TG\", api: %q, dm: open}\n", api.URL())
	for name, text := range map[string]string{"providers.yaml": providers, "theclaw.yaml": accounts} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := world.Options{Home: home}
	o.Runner.Version = "v9"
	h := open(t, o, "")
	h.Create(t, "admin", "")
	say := func(u telegramtest.User, text string) {
		api.Say(telegramtest.Message{Chat: telegramtest.Private(u), From: &u, Text: text})
	}
	n := 0
	ask := func(command string) string {
		t.Helper()
		say(bob, command)
		n++
		return awaitReplies(t, api, bob.ID, n)[n-1]
	}
	const none = "This session: no answers of models yet."
	if got := ask("/usage"); got != none {
		t.Errorf("%q", got)
	}
	answer <- struct{}{}
	if got := ask("hello"); got != "done" {
		t.Fatalf("%q", got)
	}
	<-asked
	say(bob, "a message that waits for its answer")
	<-asked
	for range 2 {
		say(bob, "one that waits for its turn")
	}
	say(ann, "of another conversation")
	<-asked
	settled(t, api)
	const used = "1 answer of a model, 1200 tokens in (200 cached), 80 out, cost 0.004260 by the prices of providers.yaml"
	if got := ask("/usage"); got != "This session: "+used+"." {
		t.Errorf("%q", got)
	}
	got := ask("/status")
	for _, want := range []string{"Agent: admin, started\n", "\nVersion: v9\n", "\nWaiting: 2 messages\n", "\nContext: 1200 of 8000 tokens\n", "\nUsed: " + used + "\n", "\nEpoch: ", "\nSession: agent:admin:telegram:tg:dm:1207, 1 messages"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
	for range 4 { // of both conversations
		answer <- struct{}{}
	}
	n += 3
	awaitReplies(t, api, bob.ID, n)
	if got := ask("/new"); !strings.HasPrefix(got, "New session.") {
		t.Errorf("%q", got)
	}
	if got := ask("/usage"); got != none {
		t.Errorf("in a new session: %q", got)
	}
	if got := ask("/status"); strings.Contains(got, "Used:") || strings.Contains(got, "Context:") || strings.Contains(got, "Waiting:") {
		t.Errorf("in a new session: %q", got)
	}
}

// S2-17: while the model is away /status says that the message waits, and for what: an owner reads the error, others its kind.
func TestStatusWhileTheModelIsAway(t *testing.T) {
	api := botAPI(t)
	away := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "overloaded", http.StatusServiceUnavailable)
	}))
	t.Cleanup(away.Close)
	home := filepath.Join(t.TempDir(), "home")
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	providers := fmt.Sprintf("providers: {work: {base_url: %q, models: [m1]}}\n", away.URL+"/v1")
	accounts := fmt.Sprintf("owners: [\"telegram:%d\"]\nchannels:\n  tg: {type: telegram, token: \"env:TG\", api: %q, dm: open}\n", ann.ID, api.URL())
	for name, text := range map[string]string{"providers.yaml": providers, "theclaw.yaml": accounts} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h := open(t, world.Options{Home: home}, "")
	h.Create(t, "admin", "")
	for n, c := range []struct {
		user telegramtest.User
		want string
	}{
		{bob, "\nWaiting: 1 message, for the model: provider failed (503); next try in "},
		{ann, "\nWaiting: 1 message, for the model: provider failed (503): work: Service Unavailable; next try in "},
	} {
		say := func(text string) {
			api.Say(telegramtest.Message{Chat: telegramtest.Private(c.user), From: &c.user, Text: text})
		}
		say("hello")
		backendtest.Await(t, "a failed try", func() bool {
			r, err := h.Turns.GetTurn(t.Context(), &registryv1.GetTurnRequest{AgentId: "admin", InboxId: int64(n + 1)})
			return err == nil && r.GetTurn().GetNextAt().AsTime().After(time.Now().Add(500*time.Millisecond))
		})
		say("/status")
		if got := awaitReplies(t, api, c.user.ID, 1)[0]; !strings.Contains(got, c.want) {
			t.Errorf("no %q in %q", c.want, got)
		}
	}
}
