package lease

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// childEnv makes the test binary a holder that lives until its stdin closes or
// it is killed; the value is the holder directory.
const childEnv = "LEASE_TEST_HOLDER_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		h, err := NewHolder(dir, "runner")
		if err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		fmt.Println(h.ID())
		_, _ = io.Copy(io.Discard, os.Stdin)
		if err := h.Close(); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// memLedger is a disk that survives the Table above it.
type memLedger struct {
	mu    sync.Mutex
	rows  map[string]Record
	saves int
	// hook runs before a save, without the lock; an error fails the save, and
	// torn writes it nevertheless.
	hook func(Record) error
	torn bool
}

func newLedger() *memLedger { return &memLedger{rows: make(map[string]Record)} }

func (l *memLedger) Load(context.Context) ([]Record, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.rows)), nil
}

func (l *memLedger) Save(_ context.Context, r Record) error {
	var err error
	if l.hook != nil {
		err = l.hook(r)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.saves++
	if old := l.rows[r.Resource]; r.Token < old.Token {
		return fmt.Errorf("save of token %d after %d", r.Token, old.Token)
	}
	if err == nil || l.torn {
		l.rows[r.Resource] = r
	}
	return err
}

func (l *memLedger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.saves
}

var errDisk = errors.New("no space")

func newTable(t testing.TB, l Ledger, dead func(string) bool) *Table {
	t.Helper()
	table, err := NewTable(context.Background(), l, dead)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func mustAcquire(t testing.TB, table *Table, req AcquireRequest) Record {
	t.Helper()
	r, err := table.Acquire(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// ask is a request for agent/a by a holder, with a request id of its own.
func ask(holder, request string) AcquireRequest {
	return AcquireRequest{Resource: AgentResource("a"), Holder: holder, Address: "unix:" + holder, RequestID: request}
}
