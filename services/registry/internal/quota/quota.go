// Package quota owns how much an agent and each of its peers has used today, and
// says no when that is all it may.
//
// It promises that a message beyond a quota is refused before it is stored, with
// the time after which it will be taken; that what was stored is always worked on;
// and that a restart forgets at most the last second. The day is that of UTC. Only
// agents with a quota are counted. Pairs of agents have a rate, which a restart forgets.
//
// One registry counts in memory above a ledger; several that share a database count in
// that, pairs too, so that they give no message away twice.
//
// It does not know what a message says, and stops no turn under way: a turn has
// its own limits.
package quota

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/source"
	"github.com/theclaw/agents/internal/store"
)

// lazily is how long what was counted may stay in memory only.
const lazily = time.Second

// Ledger keeps the counts over a restart.
type Ledger interface {
	Usage(ctx context.Context, day string) ([]store.Used, error)
	SaveUsage(ctx context.Context, rows []store.Used) error
}

// Counter keeps the counts for several registries: decide is shown what was used and
// answers what to add, while nobody else counts for the agent.
type Counter interface {
	Count(ctx context.Context, day, agent, peer string, decide func(all, one store.Used) (store.Used, error)) error
	// Pace lets one agent write to another, or answers how long that has to wait: each
	// message moves the time that the next would be due by step, to most from now.
	Pace(ctx context.Context, from, to string, step, most time.Duration) (over time.Duration, err error)
}

// who is an agent, or with a peer that peer's part of it.
type who struct{ agent, peer string }

// pair is an agent that writes to another one.
type pair struct{ from, to string }

// Quota counts. It is safe for concurrent use.
type Quota struct {
	ledger Ledger
	shared Counter // in place of all below

	mu      sync.Mutex
	day     string
	used    map[who]store.Used
	changed map[who]bool
	later   *time.Timer
	pairs   map[pair]time.Time // when the next message of a pair would be due
}

// New reads what was used today.
func New(ctx context.Context, l Ledger) (*Quota, error) {
	q := &Quota{ledger: l, day: today(time.Now()), used: map[who]store.Used{}, changed: map[who]bool{}, pairs: map[pair]time.Time{}}
	rows, err := l.Usage(ctx, q.day)
	if err != nil {
		return nil, fmt.Errorf("load usage: %w", err)
	}
	for _, u := range rows {
		q.used[who{u.Agent, u.Peer}] = u
	}
	return q, nil
}

// Shared counts in a database of several registries.
func Shared(c Counter) *Quota { return &Quota{shared: c} }

func today(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// Peer is who wrote, over all conversations of one channel.
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

// Take counts messages of one source to an agent, or refuses them. Back gives them
// back when they were not stored after all.
func (q *Quota) Take(ctx context.Context, c *config.Config, agent, from string, n int64) error {
	a, _, err := source.ParseLenient(from)
	now := time.Now()
	if err == nil && a.Kind == source.Internal {
		if err := q.pair(ctx, now, pair{a.AgentID, agent}, c.Quota.PairPerMinute, n); err != nil {
			return err
		}
	}
	if !c.Quota.Daily() {
		return nil
	}
	return q.count(ctx, now, agent, Peer(from), func(all, one store.Used) (store.Used, error) {
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

// count lets decide add to what an agent and a peer have used.
func (q *Quota) count(ctx context.Context, now time.Time, agent, peer string, decide func(all, one store.Used) (store.Used, error)) error {
	if q.shared != nil {
		return q.shared.Count(ctx, today(now), agent, peer, decide)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.turn(now)
	more, err := decide(q.used[who{agent, ""}], q.used[who{agent, peer}])
	if err == nil {
		q.add(agent, peer, more)
	}
	return err
}

// Back undoes Take. What cannot be given back now is lost to the day.
func (q *Quota) Back(ctx context.Context, c *config.Config, agent, from string, n int64) {
	if c.Quota.Daily() {
		_ = q.count(ctx, time.Now(), agent, Peer(from), func(store.Used, store.Used) (store.Used, error) { return store.Used{Messages: -n}, nil })
	}
}

// Forget drops what was counted of an agent that is removed.
func (q *Quota) Forget(agent string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	maps.DeleteFunc(q.used, func(w who, _ store.Used) bool { return w.agent == agent })
	maps.DeleteFunc(q.changed, func(w who, _ bool) bool { return w.agent == agent })
	maps.DeleteFunc(q.pairs, func(p pair, _ time.Time) bool { return p.from == agent || p.to == agent })
}

// Spend counts what a turn for a source has used. A quota stops no work: what cannot
// be counted now is not.
func (q *Quota) Spend(ctx context.Context, c *config.Config, agent, from string, input, output int64) {
	// Cents for a million tokens are hundredths of a millionth of a dollar each.
	micros := (input*int64(c.Price.InputCents) + output*int64(c.Price.OutputCents)) / 100
	_ = q.count(ctx, time.Now(), agent, Peer(from), func(store.Used, store.Used) (store.Used, error) {
		return store.Used{Tokens: input + output, Micros: micros}, nil
	})
}

// turn begins a new day.
func (q *Quota) turn(now time.Time) {
	if day := today(now); day != q.day {
		q.day, q.used, q.changed = day, map[who]store.Used{}, map[who]bool{}
	}
}

func midnight(now time.Time) time.Time {
	y, m, d := now.UTC().Date()
	return time.Date(y, m, d+1, 0, 0, 0, 0, time.UTC)
}

func (q *Quota) add(agent, peer string, more store.Used) {
	for _, k := range []who{{agent, ""}, {agent, peer}} {
		u := q.used[k]
		u.Day, u.Agent, u.Peer = q.day, k.agent, k.peer
		u.Messages, u.Tokens, u.Micros = max(0, u.Messages+more.Messages), u.Tokens+more.Tokens, u.Micros+more.Micros
		q.used[k], q.changed[k] = u, true
	}
	if q.later == nil {
		q.later = time.AfterFunc(lazily, func() { _ = q.save() }) // tried again with the next count
	}
}

// save writes what changed. The ledger is not called under the lock.
func (q *Quota) save() error {
	q.mu.Lock()
	q.later = nil
	var rows []store.Used
	for k := range q.changed {
		rows = append(rows, q.used[k])
	}
	q.changed = map[who]bool{}
	q.mu.Unlock()
	if len(rows) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return q.ledger.SaveUsage(ctx, rows)
}

// Close saves.
func (q *Quota) Close() error {
	if q.shared != nil {
		return nil
	}
	q.mu.Lock()
	if q.later != nil {
		q.later.Stop()
	}
	q.mu.Unlock()
	return q.save()
}

// pair lets one agent write to another so often in a minute, all at once if it
// likes.
func (q *Quota) pair(ctx context.Context, now time.Time, p pair, perMinute int, n int64) error {
	if perMinute <= 0 {
		return nil
	}
	step := time.Duration(n) * (time.Minute / time.Duration(perMinute))
	over := time.Duration(0)
	if q.shared != nil {
		var err error
		if over, err = q.shared.Pace(ctx, p.from, p.to, step, time.Minute); err != nil {
			return err
		}
	} else {
		over = q.pace(now, p, step)
	}
	if over > 0 {
		return refuse(fmt.Sprintf("agent '%s' writes to agent '%s' more than %d times a minute", p.from, p.to, perMinute), over)
	}
	return nil
}

// pace is Counter.Pace in memory.
func (q *Quota) pace(now time.Time, p pair, step time.Duration) (over time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := q.pairs[p]
	if at.Before(now) {
		at = now
	}
	at = at.Add(step)
	if over := at.Sub(now) - time.Minute; over > 0 {
		return over
	}
	if len(q.pairs) > 10_000 { // those whose time is past are as good as not there
		for k, t := range q.pairs {
			if t.Before(now) {
				delete(q.pairs, k)
			}
		}
	}
	q.pairs[p] = at
	return 0
}

func refuse(what string, wait time.Duration) error {
	f := fault.New(codes.ResourceExhausted, fault.QuotaExceeded, what, "wait "+wait.Round(time.Second).String()+", or raise quota.* in the agent's settings")
	f.RetryAfter = wait
	return f
}
