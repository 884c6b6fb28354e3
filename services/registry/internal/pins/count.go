package pins

import (
	"context"
	"sync"

	"github.com/theclaw/agents/internal/store"
)

// Meter has the metric of pins; [obs.RegistryMetrics] does.
type Meter interface {
	// SetPins notes how many tools of MCP servers are in a state: new, approved, changed, denied, gone.
	SetPins(state string, n int)
}

// words are the states for metrics.
var words = map[store.PinState]string{
	store.PinNew: "new", store.PinApproved: "approved", store.PinChanged: "changed", store.PinDenied: "denied", store.PinGone: "gone",
}

// counts are how many pins each server has, by state, as this registry has seen them last: nothing is read when metrics
// are collected.
type counts struct {
	mu sync.Mutex
	of map[string]map[store.PinState]int
}

// note notes the pins of one server.
func (s *Service) note(server string, list []store.Pin) {
	s.counts.mu.Lock()
	defer s.counts.mu.Unlock()
	if s.counts.of == nil {
		s.counts.of = map[string]map[store.PinState]int{}
	}
	s.counts.of[server] = byState(list)
	s.show()
}

// recount reads the pins of all servers.
func (s *Service) recount(ctx context.Context) error {
	list, err := s.Pins.Pins(ctx, "")
	if err != nil {
		return s.Fault("", "", err)
	}
	servers := map[string][]store.Pin{}
	for _, p := range list {
		servers[p.Server] = append(servers[p.Server], p)
	}
	s.counts.mu.Lock()
	defer s.counts.mu.Unlock()
	s.counts.of = map[string]map[store.PinState]int{}
	for server, list := range servers {
		s.counts.of[server] = byState(list)
	}
	s.show()
	return nil
}

func byState(list []store.Pin) map[store.PinState]int {
	out := map[store.PinState]int{}
	for _, p := range list {
		out[p.State()]++
	}
	return out
}

// show sets the metric; the caller holds the lock.
func (s *Service) show() {
	for state, word := range words {
		n := 0
		for _, of := range s.counts.of {
			n += of[state]
		}
		s.Meter.SetPins(word, n)
	}
}
