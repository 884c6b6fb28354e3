package postgres

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/thread"
)

// writers is how many agents are written at once.
const writers = 16

// BenchmarkUnit is a message that is pushed and settled, which is two transactions of
// the engine, beside two bare ones that write as many rows; all durable. The engine
// also takes locks, compares the fence, hashes, and looks for what is open.
func BenchmarkUnit(b *testing.B) {
	b.Run("engine", func(b *testing.B) {
		e, c := bench(b)
		f := store.Fence{Resource: "agent", Token: 1}
		each(b, c, func(agent string) error {
			out, err := e.Append(b.Context(), store.Inbox(agent), []store.NewEvent{message}, store.AppendOptions{Key: "k" + fmt.Sprint(serial.Add(1)), MaxPending: 100})
			if err != nil {
				return err
			}
			_, err = e.Settle(b.Context(), agent, f, store.Settlement{InboxID: out.IDs[0], Key: "key", Thread: "threads/x", Fate: store.FateReplied})
			return err
		})
	})
	b.Run("bare", func(b *testing.B) {
		e, c := bench(b)
		sum := make([]byte, 32)
		each(b, c, func(agent string) error {
			for range 2 {
				t := &pgx.Batch{}
				t.Queue("BEGIN")
				t.Queue("UPDATE thread SET head = head + 1, chain = $3, last_at = $4 WHERE agent_id = $1 AND thread_id = $2", agent, thread.Inbox, sum, "now")
				t.Queue("INSERT INTO event(agent_id, thread_id, id, created_at, source, type, subtype, content, prev, sha256) VALUES($1,$2,$3,$4,$5,$6,$7,$8,$9,$10)",
					agent, thread.Inbox, serial.Add(1), "now", message.Source, message.Type, message.Subtype, message.Content, sum, sum)
				t.Queue("INSERT INTO dedupe(agent_id, thread_id, key, event_id, token) VALUES($1,$2,$3,$4,0)", agent, thread.Inbox, fmt.Sprint(serial.Add(1)), 1)
				t.Queue("COMMIT")
				if err := e.Pool().SendBatch(b.Context(), t).Close(); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// BenchmarkOneInbox is many who push to one agent at once: they stand in line.
func BenchmarkOneInbox(b *testing.B) {
	e, c := bench(b)
	each(b, c, func(string) error {
		_, err := e.Append(b.Context(), store.Inbox("w0"), []store.NewEvent{message}, store.AppendOptions{})
		return err
	})
}

var (
	serial  atomic.Int64
	message = store.NewEvent{Source: "external:tui:t:dm:c:alice", Type: thread.TypeMessage, Content: "What is the weather like today, and what will it be tomorrow?"}
)

// bench is an engine over a durable server, with an agent for each writer.
func bench(b *testing.B) (*Engine, *pgtest.Cluster) {
	c := cluster(b)
	e := open(b, Options{DSN: c.Database(b), Live: anyLease})
	b.Cleanup(func() {
		if err := e.Close(); err != nil {
			b.Error(err)
		}
	})
	for i := range writers {
		agents(b, e, fmt.Sprint("w", i))
	}
	return e, c
}

// each runs do at once for different agents. The time a machine takes says much of
// what else it does; the processor time that both sides use, little.
func each(b *testing.B, c *pgtest.Cluster, do func(agent string) error) {
	b.SetParallelism(max(writers/runtime.GOMAXPROCS(0), 1))
	warm(b, do)
	var n atomic.Int64
	before, own := c.CPU(), ownCPU()
	b.ResetTimer()
	b.RunParallel(func(p *testing.PB) {
		agent := fmt.Sprint("w", (n.Add(1)-1)%writers)
		for p.Next() {
			if err := do(agent); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64((c.CPU()-before).Microseconds())/float64(b.N), "server-µs/op")
	b.ReportMetric(float64((ownCPU()-own).Microseconds())/float64(b.N), "own-µs/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "units/s")
}

// warm lets each connection prepare what it will run.
func warm(b *testing.B, do func(agent string) error) {
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for range 50 {
				if err := do(fmt.Sprint("w", i)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// ownCPU is the processor time of this process.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
