package leasetest_test

import (
	"path/filepath"
	"testing"

	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/lease/authority"
	"github.com/theclaw/agents/internal/lease/leasetest"
	"github.com/theclaw/agents/internal/store/sqlite/homedb"
)

// The table of one registry, above the ledger that it has.
func TestEmbedded(t *testing.T) {
	leasetest.Run(t, func(t *testing.T, dead func(string) bool) (authority.Authority, func() authority.Authority) {
		db, err := homedb.Open(t.Context(), filepath.Join(t.TempDir(), "registry.db"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		open := func() authority.Authority {
			table, err := lease.NewTable(t.Context(), db, dead)
			if err != nil {
				t.Fatal(err)
			}
			return authority.Of(table)
		}
		return open(), open
	})
}
