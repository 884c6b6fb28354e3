package sqlite

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/theclaw/agents/internal/filter"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/conn"
	"github.com/theclaw/agents/internal/thread"
)

// counted is a connection with every row that leaves SQLite counted. What SQLite
// looks at on the way is TestNoQueryScans' to show.
type counted struct {
	conn.Conn
	rows *atomic.Int64
}

func (c counted) Prepare(q string) (conn.Stmt, error) {
	s, err := c.Conn.Prepare(q)
	return countedStmt{s, c.rows}, err
}

type countedStmt struct {
	conn.Stmt
	rows *atomic.Int64
}

func (s countedStmt) Row(args, dest []any) (bool, error) {
	ok, err := s.Stmt.Row(args, dest)
	if ok {
		s.rows.Add(1)
	}
	return ok, err
}

func (s countedStmt) Each(args []any, fn func(func(...any) error) error) error {
	return s.Stmt.Each(args, func(scan func(...any) error) error {
		s.rows.Add(1)
		return fn(scan)
	})
}

// The context of a turn costs the same whatever came before it: the rows that a
// claim reads, and those that a digest reads, do not grow with the thread.
func TestContextReadsTheTailOnly(t *testing.T) {
	var rowsRead atomic.Int64
	e := New(Options{Path: layout(home(t, "a")), Live: anyLease, Connect: func(path string) (conn.Conn, error) {
		c, err := conn.Open(path)
		return counted{c, &rowsRead}, err
	}})
	defer func() { _ = e.Close() }()
	ctx, run := t.Context(), store.Fence{Resource: "agent/a", Token: 1}
	want := int64(0)
	for _, size := range []int{10, 100, 1000, 10_000, 100_000} {
		r := store.Ref{Agent: "a", Thread: fmt.Sprintf("threads/n%d", size)}
		if _, err := e.Ensure(ctx, r, "t"); err != nil {
			t.Fatal(err)
		}
		sub := thread.SubtypeToolcall
		for left := size; left > 0; left -= 1000 {
			batch := make([]store.NewEvent, min(left, 1000))
			for i := range batch {
				batch[i] = store.NewEvent{Source: thread.SourceSelf, Type: thread.TypeMessage, Content: "{}"}
				if i%4 == 3 {
					batch[i].Type, batch[i].Subtype = thread.TypeRecord, &sub
				}
			}
			if _, err := e.Append(ctx, r, batch, store.AppendOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		mark := store.MemoryMark{Layer: "memory/l.md", Digested: int64(size) - 8}
		if _, err := e.Compact(ctx, r, run, store.Compaction{Mark: mark, Decision: store.Decision{Key: "c", Content: "{}"}}); err != nil {
			t.Fatal(err)
		}
		rowsRead.Store(0)
		b, err := e.Begin(ctx, r, run, store.Begin{
			Event: thread.Event{ID: 1, Source: "s", Type: thread.TypeMessage, Content: "{}"}, Key: "k", Tail: 6, Layers: []string{mark.Layer},
		})
		if err != nil || len(b.Tail) != 6 || b.Memory[0].Digested != mark.Digested {
			t.Fatalf("%d: %v, %d in the tail, %v", size, err, len(b.Tail), b.Memory)
		}
		claim := rowsRead.Swap(0)
		f, err := filter.Parse(fmt.Sprintf("type = 'message' AND id <= %d", b.Inbound.ID-1))
		if err != nil {
			t.Fatal(err)
		}
		p, err := e.Read(ctx, r, store.Query{After: mark.Digested, Filter: f, Tail: true, Limit: 1000})
		if err != nil || len(p.Events) != 6 {
			t.Fatalf("%d: %v, %d to digest", size, err, len(p.Events))
		}
		digest := rowsRead.Load()
		fmt.Fprintf(os.Stdout, "context events=%d rows_claim=%d rows_digest=%d\n", size, claim, digest)
		if want == 0 {
			want = claim + digest
		}
		if claim+digest != want {
			t.Errorf("%d events: %d rows, want %d as with 10", size, claim+digest, want)
		}
	}
}
