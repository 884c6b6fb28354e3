package leases_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/theclaw/agents/internal/lease/authority"
	"github.com/theclaw/agents/internal/lease/leasetest"
	"github.com/theclaw/agents/internal/store/postgres/leases"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/store/postgres/pool"
)

// database answers an empty one with its tables.
func database(t testing.TB, c *pgtest.Cluster) *pgxpool.Pool {
	t.Helper()
	db, err := pgxpool.New(t.Context(), c.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	if err := db.AcquireFunc(t.Context(), func(c *pgxpool.Conn) error {
		_, err := pool.Migrate(t.Context(), c.Conn())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return db
}

func TestAuthority(t *testing.T) {
	c := pgtest.Shared(t)
	leasetest.Run(t, func(t *testing.T, dead func(string) bool) (authority.Authority, func() authority.Authority) {
		db := database(t, c)
		return leases.New(db, dead), func() authority.Authority { return leases.New(db, dead) }
	})
}
