package drill

import (
	"encoding/json"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/pause"
)

// sink is the peer: a receiver of webhooks in this process, which outlives every
// agentd and keeps what has really arrived.
type sink struct {
	url string
	srv *http.Server

	mu       sync.Mutex
	arrivals []arrival
}

// arrival is one request. The first four fields are the body's.
type arrival struct {
	Agent          string `json:"agent_id"`
	Thread         string `json:"thread_id"`
	EventID        int64  `json:"event_id"`
	MaybeDuplicate bool   `json:"maybe_duplicate"`
	Key            string `json:"-"`
	at             time.Time
}

// slowness is how long the peer takes to answer, so that kills hit sends too.
const slowness = 10 * time.Millisecond

func newSink() (*sink, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &sink{url: "http://" + l.Addr().String()}
	s.srv = &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.srv.Serve(l) }() // ends with close
	return s, nil
}

func (s *sink) close() { _ = s.srv.Close() }

// config is what sends everything an agent says here.
func (s *sink) config() string {
	return "\noutbound:\n  - {thread_pattern: \"**\", via: drill}\nchannels:\n  drill: {type: webhook, url: \"" + s.url + "\", allow_private: true}\n"
}

// ServeHTTP keeps an arrival.
func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var a arrival
	if err := json.NewDecoder(r.Body).Decode(&a); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a.Key, a.at = r.Header.Get("Idempotency-Key"), time.Now()
	s.mu.Lock()
	s.arrivals = append(s.arrivals, a)
	s.mu.Unlock()
	_ = pause.For(r.Context(), slowness)
}

func (s *sink) all() []arrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]arrival(nil), s.arrivals...)
}
