package home_test

import (
	"testing"
	"time"

	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/home"
	"github.com/theclaw/agents/internal/store/postgres/leases"
	"github.com/theclaw/agents/internal/store/storetest"
)

// Cursors and pairings among several registries.
func TestChannels(t *testing.T) {
	_, pool := opened(t)
	storetest.Cursors(t, func(*testing.T) store.Cursors { return home.New(pool) })
	storetest.Pairings(t, func(*testing.T) store.Pairings { return home.New(pool) })
	table, term := leases.New(pool, nil), lease.Record{Resource: lease.ChannelResource("late")}
	storetest.Readers(t, home.New(pool), func() store.Fence {
		if term.Token > 0 {
			if err := table.Release(t.Context(), term.Resource, term.Token); err != nil {
				t.Fatal(err)
			}
		}
		var err error
		term, err = table.Acquire(t.Context(), lease.AcquireRequest{Resource: term.Resource, Holder: "gateway", RequestID: "r", TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return store.Fence{Resource: term.Resource, Token: term.Token}
	})
}
