package journal_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/journal"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/store/postgres/pool"
	"github.com/theclaw/agents/internal/store/postgres/unit"
	"github.com/theclaw/agents/internal/thread"
)

var (
	talk   = store.Ref{Agent: "a", Thread: "threads/x"}
	runner = store.Fence{Resource: "agent/a", Token: 1}
	sender = store.Fence{Resource: "deliver/a", Token: 1}
)

// trips counts what goes to the server, and keeps it to be sent again.
type trips struct {
	mu   sync.Mutex
	sent []trip
}

// trip is what goes to the server at once.
type trip struct{ list []statement }

type statement struct {
	sql  string
	args []any
}

func (c *trips) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = append(c.sent, trip{})
	return ctx
}

func (c *trips) TraceBatchQuery(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchQueryData) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &c.sent[len(c.sent)-1]
	t.list = append(t.list, statement{d.SQL, d.Args})
}

func (c *trips) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (c *trips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = append(c.sent, trip{list: []statement{{d.SQL, d.Args}}})
	return ctx
}

func (c *trips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// fresh answers a pool over a new database with one agent that has leases, its inbox and
// a thread; trips, when not nil, sees what is sent.
func fresh(t testing.TB, c *pgtest.Cluster, seen *trips) *pgxpool.Pool {
	t.Helper()
	ctx := t.Context()
	conf, err := pgxpool.ParseConfig(c.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	if seen != nil {
		conf.ConnConfig.Tracer = seen
	}
	conf.MaxConns = 2
	p, err := pgxpool.NewWithConfig(ctx, conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	if err := p.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		_, err := pool.Migrate(ctx, c.Conn())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{
		"INSERT INTO agent(agent_id) VALUES('a')",
		"INSERT INTO thread(agent_id, thread_id, uuid, desired) VALUES('a', 'inbox', 'u', 'started'), ('a', 'threads/x', 'v', '')",
		`INSERT INTO lease(agent_id, resource, token, holder, address, request_id, ttl_ms, expires_at)
			SELECT 'a', r, 1, 'h', '', '', 1000, now() + interval '1 day' FROM unnest(ARRAY['agent/a', 'deliver/a']) r`,
	} {
		if _, err := p.Exec(ctx, q); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// names are the steps that a message takes here, in their order.
var names = []string{"begin", "record", "finish", "next", "sent"}

// steps are those of the nth message.
func steps(n int64) map[string]unit.Step {
	key := fmt.Sprintf("u:%d:0", n)
	ev := thread.Event{ID: n, CreatedAt: thread.Stamp(time.Now()), Source: "external:c:alice", Type: thread.TypeMessage, Content: "what is the weather like?"}
	answer := store.Step{Seq: 1, Kind: store.StepModel, Key: "model:1", State: store.StepDone, Name: "p/m", RequestSHA256: make([]byte, 32), Result: make([]byte, 500), Usage: store.Usage{Input: 10, Output: 5}}
	return map[string]unit.Step{
		"begin":  journal.Begin(store.Begin{Event: ev, Key: key, ReplyContext: "{}", Alone: true, Tail: 20, Subscribe: true, Handler: "deliver", Layers: []string{"memory/a", "memory/b"}, IfStarted: true, Files: []string{"IDENTITY.md", "memory/USER.md"}, Session: &store.BeginSession{Key: "agent:a:main"}}),
		"record": journal.Record(store.Record{Key: key, Steps: []store.Step{answer}, Deliver: true}),
		"finish": journal.Finish(store.Finish{Key: key, Fate: store.FateReplied, Reply: "it is raining", Deliver: true, BootID: "boot"}),
		"next":   journal.Next(store.NextDelivery{BootID: "boot", MaxAge: time.Hour, MaxAttempts: 3}),
		"sent":   journal.Sent(store.FinishDelivery{EventID: 2 * n, Outcome: store.OutcomeSent, Channel: "c", ProviderID: "p", MaxAttempts: 3}),
	}
}

func fence(step string) *store.Fence {
	if step == "next" || step == "sent" {
		return &sender
	}
	return &runner
}

// Each step that a message waits for goes to the server twice; a claim after a crash once
// more; when replies are too old to be sent, twice more for every sixteen of them.
func TestTrips(t *testing.T) {
	seen := &trips{}
	db := fresh(t, pgtest.Shared(t), seen)
	p := unit.New(unit.Options{Pool: db})
	do := func(want int, f *store.Fence, name string, s unit.Step) {
		t.Helper()
		seen.sent = nil
		if err := p.Do(t.Context(), talk, f, s); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(seen.sent) != want {
			t.Errorf("%s: %d trips, want %d", name, len(seen.sent), want)
		}
	}
	for n := range int64(3) {
		list := steps(n + 1)
		for _, name := range names {
			do(2, fence(name), name, list[name])
		}
		if next := list["next"].(*journal.NextStep).Out; next.Outcome != store.DueSend {
			t.Errorf("next: %+v", next)
		}
		if sent := list["sent"].(*journal.Step[store.Delivery]).Out; sent.State != store.DeliverySent {
			t.Errorf("sent: %+v", sent)
		}
	}
	for n := range int64(20) {
		list := steps(n + 4)
		for _, name := range names[:3] {
			do(2, fence(name), name, list[name])
		}
	}
	do(2, &runner, "a claim", steps(30)["begin"])
	again := steps(30)["begin"].(*journal.BeginStep)
	do(3, &runner, "the same after a crash", again)
	if b := again.Out; b.Outcome != store.BeginGo || b.CrashAttempts != 2 || b.Inbound.Content == "" || len(b.Tail) != 20 || b.Tail[19].ID != b.Inbound.ID {
		t.Errorf("claimed again: %+v", b)
	}
	// A first try is always made; these have had one.
	if _, err := db.Exec(t.Context(), "UPDATE delivery SET error = 'e' WHERE state = 'pending'"); err != nil {
		t.Fatal(err)
	}
	old := journal.Next(store.NextDelivery{BootID: "boot", MaxAge: time.Nanosecond})
	do(2+2*3, &sender, "twenty that are too old", old) // after the first sixteen, three, none
	if old.Out.Dead != 20 || old.Out.Outcome != store.DueIdle {
		t.Errorf("%+v", old.Out)
	}
}

// What a step costs, and the same statements in the same trips without a thought: each is
// sent once more, to a database that has seen all the others, right after the step.
func BenchmarkSteps(b *testing.B) {
	for name, setting := range map[string]string{"durable": "fsync = on", "memory": "fsync = off"} {
		b.Run(name, func(b *testing.B) {
			c := pgtest.Start(b, setting)
			seen := &trips{}
			p := unit.New(unit.Options{Pool: fresh(b, c, seen)})
			bare, err := fresh(b, c, nil).Acquire(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			defer bare.Release()
			seen.sent = nil
			took, again, count := map[string]time.Duration{}, map[string]time.Duration{}, map[string]int{}
			for n := range int64(b.N) {
				list := steps(n + 1)
				for _, step := range names {
					at := time.Now()
					if err := p.Do(b.Context(), talk, fence(step), list[step]); err != nil {
						b.Fatal(err)
					}
					took[step] += time.Since(at)
					count[step] += len(seen.sent)
					again[step] += replay(b, bare, seen.sent)
					seen.sent = nil
				}
			}
			for _, step := range names {
				b.ReportMetric(float64(took[step].Microseconds())/float64(b.N), step+"-µs")
				b.ReportMetric(float64(again[step].Microseconds())/float64(b.N), step+"-bare-µs")
				b.ReportMetric(float64(count[step])/float64(b.N), step+"-trips")
			}
		})
	}
}

// replay sends trips once more and tells how long that took.
func replay(b *testing.B, c *pgxpool.Conn, list []trip) (took time.Duration) {
	b.Helper()
	for _, t := range list {
		var batch pgx.Batch
		for _, s := range t.list {
			batch.Queue(s.sql, s.args...)
		}
		at := time.Now()
		if err := c.SendBatch(b.Context(), &batch).Close(); err != nil {
			b.Fatal(err)
		}
		took += time.Since(at)
	}
	return took
}
