package admission_test

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/homedb"
	"github.com/theclaw/agents/services/registry/internal/admission"
)

const bob, bobInGroup, carol = "external:telegram:main:dm:1:bob", "external:telegram:main:group:2:bob", "external:telegram:main:dm:1:carol"

func ledger(t *testing.T) *homedb.DB {
	t.Helper()
	db, err := homedb.Open(t.Context(), filepath.Join(t.TempDir(), "registry.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// counted is a quota with its counts.
type counted struct {
	*admission.Quota
	*admission.Memory
}

func (c counted) Close() error {
	c.Quota.Close()
	return c.Memory.Close()
}

func start(t *testing.T, db *homedb.DB) counted {
	t.Helper()
	m, err := admission.Load(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	return counted{admission.New(m), m}
}

// refused checks a refusal and answers the wait it advises.
func refused(t *testing.T, err error) time.Duration {
	t.Helper()
	if !fault.Is(err, fault.QuotaExceeded) || fault.From(err).RetryAfter <= 0 {
		t.Fatalf("err = %v, wait %v", err, fault.From(err).RetryAfter)
	}
	return fault.From(err).RetryAfter
}

// A peer is one over all conversations of a channel, others are not touched, what
// was not stored is given back, and a restart remembers.
func TestMessagesOfADay(t *testing.T) {
	db, c := ledger(t), config.Default()
	c.Quota.PeerMessagesPerDay, c.Quota.MessagesPerDay = 2, 4
	q := start(t, db)
	take := func(from string) error { return q.Take(t.Context(), &c, "a1", from, 1) }
	for _, from := range []string{bob, bobInGroup} {
		if err := take(from); err != nil {
			t.Fatal(err)
		}
	}
	if wait := refused(t, take(bob)); wait > 24*time.Hour {
		t.Errorf("wait %v", wait)
	}
	q.Back(t.Context(), &c, "a1", bob, 1)
	if err := take(bob); err != nil {
		t.Errorf("after one was given back: %v", err)
	}
	if err := take(carol); err != nil {
		t.Errorf("another peer: %v", err)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	q = start(t, db)
	refused(t, take(bob))
	if err := take(carol); err != nil {
		t.Error(err)
	}
	refused(t, take("external:telegram:main:dm:1:dave")) // all four of the agent
	if err := q.Take(t.Context(), &c, "a2", bob, 1); err != nil {
		t.Errorf("another agent: %v", err)
	}
	none := config.Default()
	if err := q.Take(t.Context(), &none, "a1", bob, 1); err != nil {
		t.Errorf("without a quota: %v", err)
	}
}

// Tokens and cost count when a turn ends, and refuse the next message.
func TestTokensAndCost(t *testing.T) {
	for name, set := range map[string]func(*config.Quota){
		"tokens": func(q *config.Quota) { q.TokensPerDay = 2000 }, "tokens of a peer": func(q *config.Quota) { q.PeerTokensPerDay = 2000 },
		"cost": func(q *config.Quota) { q.CentsPerDay = 50 }, "cost of a peer": func(q *config.Quota) { q.PeerCentsPerDay = 50 },
	} {
		c, q := config.Default(), start(t, ledger(t))
		c.Price = config.Price{InputCents: 25_000, OutputCents: 25_000} // $250 a million
		set(&c.Quota)
		if err := q.Take(t.Context(), &c, "a1", bob, 1); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		q.Spend(t.Context(), &c, "a1", bob, 1000, 999) // 1,999 tokens, 49.975 cents
		if err := q.Take(t.Context(), &c, "a1", bob, 1); err != nil {
			t.Errorf("%s, nearly used up: %v", name, err)
		}
		q.Spend(t.Context(), &c, "a1", bob, 1, 0)
		refused(t, q.Take(t.Context(), &c, "a1", bob, 1))
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
}

// counting counts the calls to the counts.
type counting struct {
	*admission.Memory
	calls, reads int
}

func (c *counting) Used(ctx context.Context, day, agent string) (store.Used, error) {
	c.reads++
	return c.Memory.Used(ctx, day, agent)
}

func (c *counting) Count(ctx context.Context, day, agent, peer string, decide func(all, one store.Used) (store.Used, error)) error {
	c.calls++
	return c.Memory.Count(ctx, day, agent, peer, decide)
}

// The tokens of an agent are limited unless its settings say otherwise. Where nothing else is, the counts, which
// may be far away, are read once and written once a second, whatever the messages are; a restart remembers.
func TestTokensOfAnAgent(t *testing.T) {
	db := ledger(t)
	synctest.Test(t, func(t *testing.T) {
		c := config.Default()
		if c.Quota.TokensPerDay != 5_000_000 || !c.Quota.TokensOnly() {
			t.Fatalf("%+v", c.Quota)
		}
		m, err := admission.Load(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		far := &counting{Memory: m}
		q := admission.New(far)
		for range 4999 {
			if err := q.Take(t.Context(), &c, "a1", bob, 1); err != nil {
				t.Fatal(err)
			}
			q.Spend(t.Context(), &c, "a1", bob, 900, 100)
		}
		if far.calls != 0 || far.reads != 1 {
			t.Errorf("%d calls and %d reads for messages of one moment", far.calls, far.reads)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		q.Spend(t.Context(), &c, "a1", carol, 999, 0)
		if err := q.Take(t.Context(), &c, "a1", bob, 1); err != nil || far.calls != 1 || far.reads != 1 {
			t.Errorf("one token is left: %v, %d calls", err, far.calls)
		}
		q.Spend(t.Context(), &c, "a1", carol, 0, 1)
		refused(t, q.Take(t.Context(), &c, "a1", bob, 1))
		if err := q.Take(t.Context(), &c, "a2", bob, 1); err != nil {
			t.Errorf("another agent: %v", err)
		}
		q.Close()
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		again := start(t, db)
		refused(t, again.Take(t.Context(), &c, "a1", bob, 1))
		c.Quota.TokensPerDay = 5_000_001
		if err := again.Take(t.Context(), &c, "a1", bob, 1); err != nil {
			t.Errorf("with a higher limit: %v", err)
		}
		again.Quota.Forget("a1")
		again.Memory.Forget("a1")
		c.Quota.TokensPerDay = 1
		if err := again.Take(t.Context(), &c, "a1", bob, 1); err != nil {
			t.Errorf("a new agent of the name: %v", err)
		}
		again.Spend(t.Context(), &c, "a1", bob, 1, 0)
		time.Sleep(refused(t, again.Take(t.Context(), &c, "a1", bob, 1)))
		if err := again.Take(t.Context(), &c, "a1", bob, 1); err != nil {
			t.Errorf("on the next day: %v", err)
		}
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	})
}

// The advice is true: after the wait a message is taken, and a pair of agents that
// write to each other without end is held to its rate.
func TestTheWaitIsTrue(t *testing.T) {
	db := ledger(t)
	synctest.Test(t, func(t *testing.T) {
		c := config.Default()
		c.Quota.PeerMessagesPerDay, c.Quota.PairPerMinute = 1, 6
		q := start(t, db)
		if err := q.Take(t.Context(), &c, "a1", bob, 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(refused(t, q.Take(t.Context(), &c, "a1", bob, 1)))
		if err := q.Take(t.Context(), &c, "a1", bob, 1); err != nil {
			t.Errorf("on the next day: %v", err)
		}
		c.Quota.PeerMessagesPerDay = 0
		taken, began := 0, time.Now()
		for taken < 60 {
			if err := q.Take(t.Context(), &c, "a1", "internal:dm:default:a2", 1); err != nil {
				time.Sleep(refused(t, err))
				continue
			}
			taken++
		}
		if took := time.Since(began); took < 8*time.Minute || took > 10*time.Minute {
			t.Errorf("60 messages at 6 a minute took %v", took)
		}
		if err := q.Take(t.Context(), &c, "a1", "internal:dm:default:a3", 1); err != nil {
			t.Errorf("another pair: %v", err)
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
}
