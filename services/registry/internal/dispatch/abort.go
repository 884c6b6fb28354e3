package dispatch

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/lease"
)

// abortRequestTTL is how long a wish is told to who has the lease. Who waits for the end of the
// run tells it again long before.
const abortRequestTTL = 30 * time.Second

// AbortRequests are the runs that people want to end, by the lease under which they run.
// They are hints. The zero value is ready.
type AbortRequests struct {
	mu sync.Mutex
	by map[string]map[abortRequest]time.Time // by resource; until when each is valid
}

type abortRequest struct {
	token uint64
	run   string
}

// Add notes that the run of a term of a lease shall end.
func (w *AbortRequests) Add(resource string, token uint64, run string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for r, of := range w.by {
		maps.DeleteFunc(of, func(_ abortRequest, until time.Time) bool { return now.After(until) })
		if len(of) == 0 {
			delete(w.by, r)
		}
	}
	if w.by == nil {
		w.by = map[string]map[abortRequest]time.Time{}
	}
	if w.by[resource] == nil {
		w.by[resource] = map[abortRequest]time.Time{}
	}
	w.by[resource][abortRequest{token, run}] = now.Add(abortRequestTTL)
}

// FormatAbort returns a request as text for other registries; see AddText.
func FormatAbort(agent, run string, token uint64) string {
	return agent + " " + run + " " + strconv.FormatUint(token, 10)
}

// AddText adds a request that another registry formatted with FormatAbort.
func (w *AbortRequests) AddText(what string) {
	part := strings.Split(what, " ")
	if len(part) != 3 {
		return
	}
	if token, err := strconv.ParseUint(part[2], 10, 64); err == nil {
		w.Add(lease.AgentResource(part[0]), token, part[1])
	}
}

// Of returns the runs that the holder of a term of a lease must end.
func (w *AbortRequests) Of(resource string, token uint64) (runs []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for x, until := range w.by[resource] {
		if x.token == token && time.Now().Before(until) {
			runs = append(runs, x.run)
		}
	}
	slices.Sort(runs)
	return runs
}
