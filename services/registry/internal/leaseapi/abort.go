package leaseapi

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store/postgres/notify"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// wishLife is how long a wish is told to who has the lease. Who waits for the end of the
// run tells it again long before.
const wishLife = 30 * time.Second

// RequestAbort notes that a run shall end, here and at the other registries, for a
// runner may renew its lease at any of them. A wish that is lost on the way, or with a
// registry, is told again by who waits.
func (s *Service) RequestAbort(ctx context.Context, req *registryv1.RequestAbortRequest) (*registryv1.RequestAbortResponse, error) {
	a, err := s.Agent(ctx, req.GetAgentId())
	if err != nil {
		return nil, err
	}
	now, err := s.whoRuns(ctx, a, req.GetRunId())
	if err != nil {
		return nil, err
	}
	l := now.GetLease()
	if now.GetEnded() || l == nil {
		return &registryv1.RequestAbortResponse{Ended: now.GetEnded()}, nil
	}
	s.wishes.add(l.GetResource(), l.GetToken(), req.GetRunId())
	if s.Shared != nil {
		s.Shared.Tell(notify.Item{Kind: notify.Abort, Name: a.ID + " " + req.GetRunId() + " " + strconv.FormatUint(l.GetToken(), 10)})
	}
	return &registryv1.RequestAbortResponse{Lease: l}, nil
}

// wishes are the runs that people want ended, by the lease under which they are worked
// on. They are hints: what they make a runner do, its owner has asked for. The zero value
// is ready.
type wishes struct {
	mu sync.Mutex
	by map[string]map[wish]time.Time // by resource; until when each is told
}

type wish struct {
	token uint64
	run   string
}

func (w *wishes) add(resource string, token uint64, run string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for r, of := range w.by {
		maps.DeleteFunc(of, func(_ wish, until time.Time) bool { return now.After(until) })
		if len(of) == 0 {
			delete(w.by, r)
		}
	}
	if w.by == nil {
		w.by = map[string]map[wish]time.Time{}
	}
	if w.by[resource] == nil {
		w.by[resource] = map[wish]time.Time{}
	}
	w.by[resource][wish{token, run}] = now.Add(wishLife)
}

// told takes a wish that another registry was told.
func (w *wishes) told(what string) {
	part := strings.Split(what, " ")
	if len(part) != 3 {
		return
	}
	if token, err := strconv.ParseUint(part[2], 10, 64); err == nil {
		w.add(lease.AgentResource(part[0]), token, part[1])
	}
}

// of are the runs that who has this lease shall end.
func (w *wishes) of(resource string, token uint64) (runs []string) {
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
