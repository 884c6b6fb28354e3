package pool_test

import (
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/store/postgres/pool"
)

// A start waits for a database that is being started, and tells so once.
func TestAwait(t *testing.T) {
	c := pgtest.Start(t, "fsync = off")
	url := c.Database(t)
	c.Kill(t)
	told, opened := make(chan error, 100), make(chan error, 1)
	go func() {
		p, err := pool.Await(t.Context(), url, func(err error) { told <- err })
		if err == nil {
			p.Close()
		}
		opened <- err
	}()
	if err := <-told; !strings.Contains(err.Error(), "open database") {
		t.Errorf("told of %v", err)
	}
	c.Up(t)
	if err := <-opened; err != nil {
		t.Error(err)
	}
	if n := len(told); n > 0 {
		t.Errorf("told %d times more", n)
	}
}

// What another try would not change is said at once, and so is all to whoever does not
// wait.
func TestAwaitNot(t *testing.T) {
	c := pgtest.Start(t, "fsync = off")
	url := c.Database(t)
	told := func(err error) { t.Errorf("waits: %v", err) }
	if _, err := pool.Await(t.Context(), strings.Replace(url, "claw1", "nosuch", 1), told); !fault.Is(err, fault.RegistryUnavailable) || !strings.Contains(err.Error(), "nosuch") {
		t.Errorf("a database that is not there: %v", err)
	}
	c.Kill(t)
	if _, err := pool.Open(t.Context(), url); err == nil {
		t.Errorf("a server that is not there: %v", err)
	}
}
