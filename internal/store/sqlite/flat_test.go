package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/theclaw/agents/internal/filter"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// counted is our driver with every row that leaves SQLite counted. What SQLite
// looks at on the way is TestNoQueryScans' to show.
type counted struct{ driver.Driver }

var rowsRead atomic.Int64

var register = sync.OnceFunc(func() {
	s, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		panic(err)
	}
	sql.Register("sqlite-counted", counted{s.Driver()})
	_ = s.Close()
})

func (d counted) Open(name string) (driver.Conn, error) {
	c, err := d.Driver.Open(name)
	return countedConn{c}, err
}

type countedConn struct{ driver.Conn }

func (c countedConn) PrepareContext(ctx context.Context, q string) (driver.Stmt, error) {
	s, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, q)
	return countedStmt{s}, err
}

func (c countedConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, o)
}

func (c countedConn) ExecContext(ctx context.Context, q string, args []driver.NamedValue) (driver.Result, error) {
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, q, args)
}

func (c countedConn) QueryContext(ctx context.Context, q string, args []driver.NamedValue) (driver.Rows, error) {
	r, err := c.Conn.(driver.QueryerContext).QueryContext(ctx, q, args)
	return countedRows{r}, err
}

type countedStmt struct{ driver.Stmt }

func (s countedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
}

func (s countedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	r, err := s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
	return countedRows{r}, err
}

type countedRows struct{ driver.Rows }

func (r countedRows) Next(dest []driver.Value) error {
	err := r.Rows.Next(dest)
	if err == nil {
		rowsRead.Add(1)
	}
	return err
}

// The context of a turn costs the same whatever came before it: the rows that a
// claim reads, and those that a digest reads, do not grow with the thread.
func TestContextReadsTheTailOnly(t *testing.T) {
	register()
	e := New(Options{Path: layout(home(t, "a")), Live: anyLease, Driver: "sqlite-counted"})
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
