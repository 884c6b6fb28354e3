package world_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/deliverer"
	"github.com/theclaw/agents/services/registry"
)

const (
	sent = registryv1.DeliveryState_DELIVERY_STATE_SENT
	dead = registryv1.DeliveryState_DELIVERY_STATE_DEAD
)

// quick has short waits between tries; their figures are shown where they are
// decided.
func quick() world.Options {
	return world.Options{
		Registry: registry.Config{DeliveryWaits: []time.Duration{5 * time.Millisecond, 10 * time.Millisecond}},
		Deliver:  deliverer.Config{Probe: 50 * time.Millisecond},
	}
}

// A receiver that fails twice gets the message at the third try, without any
// new event, under the same key (S0-124, S0-127, S0-131).
func TestThirdTry(t *testing.T) {
	h := newHook(func(_ string, nth int) int {
		if nth < 3 {
			return http.StatusInternalServerError
		}
		return http.StatusOK
	})
	w := world.Start(t, quick())
	w.Create(t, "a1", via("**", h.start(t)))
	turn := say(t, w, "a1", "bob", "hello")[0]
	h.wait(t, 3)
	drain(t, w, "a1", turn.GetThreadId())
	got := h.posts()
	for i, p := range got {
		if p.Key == "" || p.Key != got[0].Key || p.Attempt != i+1 || p.Text != "hello" {
			t.Errorf("request %d: %+v", i+1, p)
		}
	}
	d := w.Ask(t, "a1", turn.GetInboxId(), 0).GetDelivery()
	if d.GetState() != sent || d.GetAttempts() != 3 || d.GetChannel() != "hook" || d.GetKey() != got[0].Key || len(got) != 3 {
		t.Errorf("%d requests, told %v", len(got), d)
	}
	if n := len(w.Events(t, "a1", turn.GetThreadId(), "")); n != 2 {
		t.Errorf("%d events in the thread", n)
	}
}

// A message that cannot be sent holds up those behind it for its tries, then is
// a dead letter on record, and they go (S0-128, S0-129). A person can send it
// again (D4).
func TestDeadLetter(t *testing.T) {
	repaired := false
	h := newHook(func(text string, _ int) int {
		if text == "bad" && !repaired {
			return http.StatusInternalServerError
		}
		return http.StatusOK
	})
	w := world.Start(t, quick())
	w.Create(t, "a1", via("**", h.start(t)))
	turns := say(t, w, "a1", "bob", "bad", "good")
	h.wait(t, 4)
	threadID := turns[0].GetThreadId()
	drain(t, w, "a1", threadID)
	if got := h.texts(); !slices.Equal(got, []string{"bad", "bad", "bad", "good"}) {
		t.Fatalf("sent %q", got)
	}
	list := deliveries(t, w, "a1", dead)
	if len(list) != 1 || list[0].GetEventId() != turns[0].GetReplyEventId() || list[0].GetAttempts() != 3 || !strings.Contains(list[0].GetError(), "500") {
		t.Errorf("dead letters %v", list)
	}
	if errs := w.Events(t, "a1", threadID, "subtype = 'error'"); len(errs) != 1 || !strings.Contains(errs[0].GetContent(), "500") {
		t.Errorf("records %v", errs)
	}
	if n := status(t, w, "a1").GetDead(); n != 1 {
		t.Errorf("status tells %d dead letters", n)
	}

	h.mu.Lock()
	repaired = true
	h.mu.Unlock()
	if _, err := w.Deliveries.RetryDelivery(t.Context(), &registryv1.RetryDeliveryRequest{AgentId: "a1", ThreadId: threadID, EventId: turns[0].GetReplyEventId()}); err != nil {
		t.Fatal(err)
	}
	h.wait(t, 1)
	drain(t, w, "a1", threadID)
	posts := h.posts()
	if last := posts[len(posts)-1]; last.Text != "bad" || last.Key != posts[0].Key {
		t.Errorf("sent again: %+v", last)
	}
	d := w.Ask(t, "a1", turns[0].GetInboxId(), 0).GetDelivery()
	if d.GetState() != sent || len(deliveries(t, w, "a1", dead)) != 0 || status(t, w, "a1").GetDead() != 0 {
		t.Errorf("after the retry: %v, status %v", d, status(t, w, "a1"))
	}
}

func status(t *testing.T, w *world.World, agent string) *registryv1.GetAgentStatusResponse {
	t.Helper()
	r, err := w.Agents.GetAgentStatus(t.Context(), &registryv1.GetAgentStatusRequest{AgentId: agent})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// While a receiver is away nothing is spent, or these messages, which may be
// tried once, would be dead; when it is back all of them go, in order
// (RELIABILITY section 5, S0-129).
func TestReceiverAway(t *testing.T) {
	url, end := world.Outage(t)
	w := world.Start(t, quick())
	w.Create(t, "a1", via("**", url)+"deliver: {max_attempts: 1}\n")
	texts := []string{"1", "2", "3", "4", "5"}
	turns := say(t, w, "a1", "bob", texts...)
	drain(t, w, "a1", turns[0].GetThreadId()) // it was tried, and waits
	if list := deliveries(t, w, "a1", dead); len(list) > 0 {
		t.Fatalf("dead during the outage: %v", list)
	}
	h := newHook(nil)
	end(h)
	h.wait(t, len(texts))
	drain(t, w, "a1", turns[0].GetThreadId())
	if got := h.texts(); !slices.Equal(got, texts) {
		t.Errorf("sent %q", got)
	}
	list := deliveries(t, w, "a1", sent)
	for _, d := range list {
		if d.GetAttempts() != 1 {
			t.Errorf("spent: %v", d)
		}
	}
	if len(list) != len(texts) {
		t.Errorf("sent %v", list)
	}
}

// What is older than deliver.max_age is not sent any more and is listed, so that
// a long outage does not end in a storm (D4).
func TestTooOld(t *testing.T) {
	url, end := world.Outage(t)
	w := world.Start(t, quick())
	w.Create(t, "a1", via("**", url)+"deliver: {max_age: 1s}\n")
	w.Create(t, "clock", "outbound: []")
	turns := say(t, w, "a1", "bob", "old 1", "old 2", "old 3")
	w.Say(t, "clock", world.Peer("bob"), "slow: 1.1")
	threadID := turns[0].GetThreadId()
	left := len(turns)
	watch(t, w, "a1", threadID, 0, func(e *registryv1.Event) bool {
		if isError(e) && strings.Contains(e.GetContent(), "not delivered within 1s") {
			left--
		}
		return left == 0
	})
	h := newHook(nil)
	end(h)
	w.Set(t, "a1", "deliver.max_age", "1h")
	say(t, w, "a1", "bob", "new")
	h.wait(t, 1)
	if got := h.texts(); !slices.Equal(got, []string{"new"}) {
		t.Errorf("sent %q", got)
	}
	if list := deliveries(t, w, "a1", dead); len(list) != 3 {
		t.Errorf("dead letters %v", list)
	}
}

// Patterns decide which threads go out; an empty list sends nothing (S0-44,
// S0-96, S0-97, S0-120).
func TestOutboundPatterns(t *testing.T) {
	h := newHook(nil)
	url := h.start(t)
	w := world.Start(t, quick())
	w.Create(t, "peers", via("peers/**", url))
	w.Create(t, "channels", via("peers/**", url)+"routing: {default: per-channel}\n")
	w.Create(t, "nobody", "outbound: []")
	for _, c := range []struct {
		agent, thread string
		out           bool
	}{{"channels", "threads/channels/main", false}, {"nobody", "threads/peers/main-bob", false}, {"peers", "threads/peers/main-bob", true}} {
		turn := say(t, w, c.agent, "bob", c.agent)[0]
		info, err := w.Threads.GetThread(t.Context(), &registryv1.GetThreadRequest{Thread: &registryv1.ThreadRef{AgentId: c.agent, ThreadId: turn.GetThreadId()}})
		if err != nil {
			t.Fatal(err)
		}
		var subs []string
		for _, s := range info.GetSubscriptions() {
			subs = append(subs, fmt.Sprintf("%s [%s] %s", s.GetConsumer(), s.GetFilter(), s.GetHandler()))
		}
		var want []string
		if c.out {
			want = []string{"outbound [type = 'message' AND source = 'self'] agent deliver --thread " + info.GetPath() + " --consumer outbound"}
		}
		if turn.GetThreadId() != c.thread || !slices.Equal(subs, want) {
			t.Errorf("%s: thread %s has %q", c.agent, turn.GetThreadId(), subs)
		}
		drain(t, w, c.agent, turn.GetThreadId())
		if d := w.Ask(t, c.agent, turn.GetInboxId(), 0).GetDelivery(); (d.GetState() == sent) != c.out {
			t.Errorf("%s: told %v", c.agent, d)
		}
	}
	if got := h.texts(); !slices.Equal(got, []string{"peers"}) {
		t.Errorf("sent %q", got)
	}
}
