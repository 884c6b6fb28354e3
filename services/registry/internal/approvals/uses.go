package approvals

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/execpolicy"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// maxNoted bounds the entries whose last use is remembered.
const maxNoted = 10_000

// uses remembers when the use of an entry was recorded, so that a command costs no write when
// another one of the same hour was recorded.
type uses struct {
	mu    sync.Mutex
	noted map[string]time.Time // by agent and entry
}

// due reports whether the use of one of the entries is to be recorded now, and remembers that it is.
func (u *uses) due(agent string, entries []execpolicy.Entry, now time.Time) (due bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, e := range entries {
		key := agent + "\x00" + e.Pattern + "\x00" + strings.Join(e.Args, "\x00")
		if now.Sub(u.noted[key]) < execpolicy.UseNoted {
			continue
		}
		if due = true; len(u.noted) >= maxNoted {
			clear(u.noted)
		}
		u.noted[key] = now
	}
	return due
}

// Used records that entries of an agent's allow list let a command run: once in
// [execpolicy.UseNoted] for an entry. It is for people who look for entries that nothing uses, so
// a failure is logged, and a use that meets a change of the policy is left out.
func (s *Service) Used(ctx context.Context, agent string, use *registryv1.ExecUse) {
	var entries []execpolicy.Entry
	for _, e := range use.GetEntries() {
		entries = append(entries, execpolicy.Entry{Pattern: e.GetPattern(), Args: e.GetArgs()})
	}
	now := time.Now()
	if len(entries) == 0 || !s.uses.due(agent, entries, now) {
		return
	}
	p, d, err := s.policy(ctx)
	if err == nil && d.Touch(agent, entries, use.GetCommand(), now) {
		var body []byte
		if body, err = d.JSON(); err == nil {
			err = s.Approvals.PutExecPolicy(ctx, store.ExecPolicy{Version: p.Version + 1, Body: body})
		}
	}
	if err != nil && !errors.Is(err, store.ErrMoved) {
		s.Log.WarnContext(ctx, "the use of an allow list is not recorded", "agent_id", agent, "error", fault.Chain(err))
	}
}
