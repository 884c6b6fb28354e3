package schema_test

import (
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/store/postgres/schema"
)

// Registries that start at once migrate once; a newer format is refused untouched.
func TestMigrate(t *testing.T) {
	url := pgtest.Start(t).Database(t)
	migrate := func() (int, error) {
		c, err := pgx.Connect(t.Context(), url)
		if err != nil {
			return 0, err
		}
		defer func() { _ = c.Close(t.Context()) }()
		return schema.Migrate(t.Context(), c)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if format, err := migrate(); err != nil || format < 1 {
				t.Errorf("format %d, %v", format, err)
			}
		})
	}
	wg.Wait()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(t.Context()) }()
	if _, err := c.Exec(t.Context(), "UPDATE format SET version = 1000"); err != nil {
		t.Fatal(err)
	}
	if _, err := migrate(); !fault.Is(err, fault.FormatMismatch) {
		t.Errorf("a newer format: %v", err)
	}
}
