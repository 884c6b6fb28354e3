package world

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// Sink is a receiver of webhooks in the test process: it outlives every agentd
// and keeps what has really arrived, in its order.
type Sink struct {
	URL string

	mu       sync.Mutex
	arrivals []Arrival
}

// Arrival is one request. The first five fields are the body's.
type Arrival struct {
	AgentID        string    `json:"agent_id"`
	ThreadID       string    `json:"thread_id"`
	EventID        int64     `json:"event_id"`
	Text           string    `json:"text"`
	MaybeDuplicate bool      `json:"maybe_duplicate"`
	Key            string    `json:"-"` // of the header
	Fence          string    `json:"-"`
	Signature      string    `json:"-"`
	Body           []byte    `json:"-"`
	At             time.Time `json:"-"`
}

// Refused is the word in a text that a sink refuses permanently.
const Refused = "please-refuse"

// NewSink starts a sink that ends with the test.
func NewSink(t testing.TB) *Sink {
	t.Helper()
	s := &Sink{}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	s.URL = srv.URL
	return s
}

// Config is what an agent's config.yaml says to deliver everything here.
func (s *Sink) Config() string {
	return "outbound:\n  - {thread_pattern: \"**\", via: sink}\n" +
		"channels:\n  sink: {type: webhook, url: \"" + s.URL + "\", allow_private: true}"
}

// ServeHTTP keeps an arrival.
func (s *Sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var a Arrival
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, &a)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if strings.Contains(a.Text, Refused) {
		http.Error(w, "refused as asked", http.StatusBadRequest)
		return
	}
	a.Key, a.Fence = r.Header.Get("Idempotency-Key"), r.Header.Get("X-TheClaw-Fence")
	a.Signature, a.Body = r.Header.Get("X-TheClaw-Signature"), body
	s.mu.Lock()
	defer s.mu.Unlock()
	a.At = time.Now()
	s.arrivals = append(s.arrivals, a)
}

// Arrivals are those of an agent so far, in their order; of all with "".
func (s *Sink) Arrivals(agent string) []Arrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Arrival
	for _, a := range s.arrivals {
		if agent == "" || a.AgentID == agent {
			out = append(out, a)
		}
	}
	return out
}
