package world_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/testing/world"
	delivererv1 "github.com/theclaw/agents/proto/gen/theclaw/deliverer/v1"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// hook is a receiver of webhooks whose answers a test decides.
type hook struct {
	answer func(text string, nth int) int // nth request with this text, from 1

	mu   sync.Mutex
	seen map[string]int
	got  []post
	came chan struct{} // one for each request, after it was noted
}

type post struct {
	Text    string `json:"text"`
	Attempt int    `json:"attempt"`
	Key     string `json:"-"` // of the header
}

func newHook(answer func(text string, nth int) int) *hook {
	return &hook{answer: answer, seen: map[string]int{}, came: make(chan struct{}, 1000)}
}

func (h *hook) start(t *testing.T) (url string) {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var p post
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.Key = r.Header.Get("Idempotency-Key")
	h.mu.Lock()
	h.seen[p.Text]++
	h.got = append(h.got, p)
	status := http.StatusOK
	if h.answer != nil {
		status = h.answer(p.Text, h.seen[p.Text])
	}
	h.mu.Unlock()
	w.WriteHeader(status)
	h.came <- struct{}{}
}

// wait returns once n more requests have come in.
func (h *hook) wait(t *testing.T, n int) {
	t.Helper()
	arrive(t, h.came, n)
}

// arrive takes n signals from c; what takes longer than a minute never comes.
func arrive(t *testing.T, c <-chan struct{}, n int) {
	t.Helper()
	limit := time.After(time.Minute)
	for i := range n {
		select {
		case <-c:
		case <-limit:
			t.Fatalf("%d of %d have come after a minute", i, n)
		}
	}
}

func (h *hook) posts() []post {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.got)
}

func (h *hook) texts() []string {
	var out []string
	for _, p := range h.posts() {
		out = append(out, p.Text)
	}
	return out
}

// via is the configuration that delivers threads of a pattern to a webhook.
func via(pattern, url string) string {
	return "outbound: [{thread_pattern: \"" + pattern + "\", via: hook}]\n" +
		"channels: {hook: {type: webhook, url: \"" + url + "\", allow_private: true}}\n"
}

// drain returns when everything in a thread is delivered or has to wait.
func drain(t *testing.T, w *world.World, agent, threadID string) {
	t.Helper()
	if _, err := w.Deliverer.DeliverBatch(t.Context(), &delivererv1.DeliverBatchRequest{AgentId: agent, ThreadId: threadID}); err != nil {
		t.Fatal(err)
	}
}

func deliveries(t *testing.T, w *world.World, agent string, state registryv1.DeliveryState) []*registryv1.Delivery {
	t.Helper()
	r, err := w.Deliveries.ListDeliveries(t.Context(), &registryv1.ListDeliveriesRequest{AgentId: agent, State: state})
	if err != nil {
		t.Fatal(err)
	}
	return r.GetDeliveries()
}

// say pushes "say: TEXT" for each text, which the offline model answers with
// TEXT, and waits for the fates.
func say(t *testing.T, w *world.World, agent, peer string, texts ...string) []*registryv1.Turn {
	t.Helper()
	var ids []int64
	for _, text := range texts {
		id, err := w.Push(t.Context(), agent, world.Peer(peer), "say: "+text, "")
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	var turns []*registryv1.Turn
	for i, id := range ids {
		turn := w.Await(t, agent, id)
		if got := w.Reply(t, turn); got != texts[i] {
			t.Fatalf("reply %q, turn %v", got, turn)
		}
		turns = append(turns, turn)
	}
	return turns
}

// watch calls f for each event of a thread after an id, until f says that it is
// enough.
func watch(t *testing.T, w *world.World, agent, threadID string, after int64, f func(*registryv1.Event) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := w.Threads.WatchEvents(ctx, &registryv1.WatchEventsRequest{
		Thread: &registryv1.ThreadRef{AgentId: agent, ThreadId: threadID}, AfterId: after,
	})
	if err != nil {
		t.Fatal(err)
	}
	for {
		r, err := s.Recv()
		if err != nil {
			t.Fatalf("watch %s of %s: %v", threadID, agent, err)
		}
		for _, e := range r.GetEvents() {
			if f(e) {
				return
			}
		}
	}
}

func isError(e *registryv1.Event) bool { return e.GetSubtype() == "error" }
