package drill

import (
	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/testing/world"
)

// Arrivals is what reached a sink, as the checker wants it. A zombie's send may arrive
// after its flagged repeat: one of the two must be flagged, and it does not matter which.
func Arrivals(s *world.Sink) []invariant.Arrival {
	arrivals, plain, seen := s.Arrivals(""), map[string]int{}, map[string]bool{}
	for _, a := range arrivals {
		if !a.MaybeDuplicate {
			plain[a.Key]++
		}
	}
	out := []invariant.Arrival{}
	for _, a := range arrivals {
		flag := seen[a.Key] && plain[a.Key] <= 1
		seen[a.Key] = true
		out = append(out, invariant.Arrival{Key: a.Key, MaybeDuplicate: flag, Agent: a.AgentID, Thread: a.ThreadID, EventID: a.EventID})
	}
	return out
}
