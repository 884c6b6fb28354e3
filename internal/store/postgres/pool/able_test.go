package pool_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/store/postgres/pool"
)

// A database that takes connections and answers nothing is able still, whether it is known
// or not; one that takes none is not, and one that is back is again.
func TestAble(t *testing.T) {
	db := pgtest.Start(t, "fsync = off")
	url := db.Database(t)
	p, err := pool.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	probe := pool.NewProbe(p)
	defer probe.Close()
	able := func(patience time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		return probe.Able(ctx)
	}
	const plenty, little = time.Minute, 100 * time.Millisecond
	if err := able(plenty); err != nil {
		t.Fatal(err)
	}
	freeze := func(how syscall.Signal) {
		t.Helper()
		for _, pid := range db.Pids() {
			if err := syscall.Kill(pid, how); err != nil {
				t.Fatal(err)
			}
		}
	}
	freeze(syscall.SIGSTOP)
	for _, what := range []string{"a connection that is there", "a new one"} {
		if err := able(little); err != nil {
			t.Errorf("frozen, asked by %s: %v", what, err)
		}
	}
	freeze(syscall.SIGCONT)
	if err := able(plenty); err != nil {
		t.Errorf("it goes on: %v", err)
	}
	db.Kill(t)
	for range 2 { // the first finds the connection broken
		if err := able(plenty); err == nil {
			t.Error("a database that is gone is able")
		}
	}
	db.Up(t)
	if err := able(plenty); err != nil {
		t.Errorf("it is back: %v", err)
	}
}
