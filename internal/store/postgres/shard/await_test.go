package shard_test

import (
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/store/postgres/shard"
)

// A start waits for a database that is being started, and tells so once.
func TestAwait(t *testing.T) {
	c := pgtest.Start(t, "fsync = off")
	urls := []string{c.Database(t), c.Database(t)}
	c.Kill(t)
	told, opened := make(chan error, 100), make(chan error, 1)
	go func() {
		s, err := shard.Await(t.Context(), urls, func(err error) { told <- err })
		if err == nil {
			s.Close()
		}
		opened <- err
	}()
	if err := <-told; !strings.Contains(err.Error(), "open database 1 of 2") {
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
	if _, err := shard.Await(t.Context(), []string{strings.Replace(url, "claw1", "nosuch", 1)}, told); !fault.Is(err, fault.RegistryUnavailable) || !strings.Contains(err.Error(), "nosuch") {
		t.Errorf("a database that is not there: %v", err)
	}
	c.Kill(t)
	if _, err := shard.Open(t.Context(), []string{url}); err == nil {
		t.Errorf("a server that is not there: %v", err)
	}
}
