// Package admission decides whether an agent takes a message: by its source, and by how
// much the agent and its peer have used today.
//
// It promises that a message beyond a quota is refused before it is stored, with the
// time after which it will be taken; that a stored message is always processed; and that
// a restart forgets at most the last two seconds of the counts. Days are those of UTC. Only
// agents with a quota are counted. Pairs of agents have a rate, which a restart may
// forget.
//
// A Counter holds the counts: Memory for one registry, above a Ledger; the database for
// several registries that share one, so that together they admit no more than a quota.
//
// It does not know what a message says and stops no turn under way: a turn has its own
// limits.
package admission

import (
	"context"
	"fmt"
	"math"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/price"
	"github.com/theclaw/agents/internal/source"
	"github.com/theclaw/agents/internal/store"
)

// Counter holds the counts of a day.
type Counter interface {
	// Count passes to decide what an agent and one of its peers have used in a day and adds
	// what decide returns to both, while nobody else counts for the agent. An error from
	// decide is returned, and nothing is added.
	Count(ctx context.Context, day, agent, peer string, decide func(all, one store.Used) (store.Used, error)) error
	// Used returns what an agent has used in a day.
	Used(ctx context.Context, day, agent string) (store.Used, error)
	// Pace lets one agent write to another, or returns how long that has to wait: each
	// message moves the time at which the next is due by step, up to most from now.
	Pace(ctx context.Context, from, to string, step, most time.Duration) (over time.Duration, err error)
}

// Quota applies the quotas of agents. It is safe for concurrent use.
type Quota struct {
	counter  Counter
	later    *later
	accounts paces[string]
}

// New returns a Quota over the counts.
func New(c Counter) *Quota { return &Quota{counter: c, later: newLater(c)} }

// Tokens returns how many tokens an agent has used today, where something of a day is limited.
func (q *Quota) Tokens(ctx context.Context, agent string) (int64, error) {
	return q.later.sum(ctx, today(time.Now()), agent)
}

// Forget drops the counts of an agent that is removed, which the Counter has forgotten.
func (q *Quota) Forget(agent string) { q.later.forget(agent) }

// Close writes what was counted in the last second. No call may be under way.
func (q *Quota) Close() { q.later.close() }

func today(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// Peer names the author of a message, the same in all conversations of one channel.
func Peer(from string) string {
	a, _, err := source.ParseLenient(from)
	switch {
	case err != nil:
		return from
	case a.Kind == source.External:
		return "external:" + a.ChannelType + ":" + a.ChannelID + ":" + a.PeerID
	case a.Kind == source.Internal:
		return "internal:" + a.AgentID
	}
	return from
}

// Take counts n messages of one source to an agent, or refuses them with the reason
// QUOTA_EXCEEDED and the time to wait. Back undoes it for messages that were not stored.
func (q *Quota) Take(ctx context.Context, c *config.Config, agent, from string, n int64) error {
	a, _, err := source.ParseLenient(from)
	now := time.Now()
	if err == nil && a.Kind == source.Internal {
		if err := q.pair(ctx, a.AgentID, agent, c.Quota.PairPerMinute, n); err != nil {
			return err
		}
	}
	switch {
	case !c.Quota.Daily():
		return nil
	case c.Quota.TokensOnly():
		used, err := q.later.tokens(ctx, today(now), agent)
		if err != nil {
			return err
		}
		return within(c, agent, store.Used{Tokens: used}, store.Used{}, n, midnight(now).Sub(now))
	}
	return q.counter.Count(ctx, today(now), agent, Peer(from), func(all, one store.Used) (store.Used, error) {
		return store.Used{Messages: n}, within(c, agent, all, one, n, midnight(now).Sub(now))
	})
}

// within refuses n messages more than a quota has left.
func within(c *config.Config, agent string, all, one store.Used, n int64, left time.Duration) error {
	for _, limit := range []struct {
		name      string
		used, max int64
	}{
		{"messages of agent '" + agent + "'", all.Messages + n - 1, int64(c.Quota.MessagesPerDay)},
		{"messages of this peer to agent '" + agent + "'", one.Messages + n - 1, int64(c.Quota.PeerMessagesPerDay)},
		{"tokens of agent '" + agent + "'", all.Tokens, int64(c.Quota.TokensPerDay)},
		{"tokens of this peer with agent '" + agent + "'", one.Tokens, int64(c.Quota.PeerTokensPerDay)},
		{"cost of agent '" + agent + "', in cents,", all.Micros / 10_000, int64(c.Quota.CentsPerDay)},
		{"cost of this peer with agent '" + agent + "', in cents,", one.Micros / 10_000, int64(c.Quota.PeerCentsPerDay)},
	} {
		if limit.max > 0 && limit.used >= limit.max {
			return refuse(fmt.Sprintf("the %s for today are used up: %d", limit.name, limit.max), left)
		}
	}
	return nil
}

// Back undoes Take. A count that cannot be undone now stays for the rest of the day.
func (q *Quota) Back(ctx context.Context, c *config.Config, agent, from string, n int64) {
	if c.Quota.Daily() && !c.Quota.TokensOnly() {
		_ = q.counter.Count(ctx, today(time.Now()), agent, Peer(from), func(store.Used, store.Used) (store.Used, error) { return store.Used{Messages: -n}, nil })
	}
}

// Spend counts the tokens and the cost of a turn for a source. Tokens of the cache of a provider, which have no price
// of their own, cost what other input does: a limit does not leave them out. A quota stops no work under way: what
// cannot be counted now is not counted.
func (q *Quota) Spend(ctx context.Context, c *config.Config, agent, from string, input, output int64) {
	cents, _ := c.Price.Cost(price.Tokens{Input: input, Output: output}) // 0 for a part without a price
	used := store.Used{Tokens: input + output, Micros: int64(math.Round(cents * 10_000))}
	if c.Quota.TokensOnly() {
		q.later.add(today(time.Now()), agent, Peer(from), used)
		return
	}
	_ = q.counter.Count(ctx, today(time.Now()), agent, Peer(from), func(store.Used, store.Used) (store.Used, error) { return used, nil })
}

func midnight(now time.Time) time.Time {
	y, m, d := now.UTC().Date()
	return time.Date(y, m, d+1, 0, 0, 0, 0, time.UTC)
}

// pair lets one agent write to another perMinute times in a minute, in one burst or not.
func (q *Quota) pair(ctx context.Context, from, to string, perMinute int, n int64) error {
	if perMinute <= 0 {
		return nil
	}
	over, err := q.counter.Pace(ctx, from, to, time.Duration(n)*(time.Minute/time.Duration(perMinute)), time.Minute)
	if err == nil && over > 0 {
		err = refuse(fmt.Sprintf("agent '%s' writes to agent '%s' more than %d times a minute", from, to, perMinute), over)
	}
	return err
}

func refuse(what string, wait time.Duration) error {
	f := fault.New(codes.ResourceExhausted, fault.QuotaExceeded, what, "wait "+wait.Round(time.Second).String()+", or raise quota.* in the agent's settings")
	f.RetryAfter = wait
	return f
}
