// Package cluster_test tests several registries over one database: what one of them does
// for a caller of another, and what the tables hold. Tests that hold for any storage are in
// package registry_test, over both implementations.
package cluster_test

import (
	"path/filepath"
	"testing"

	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/testing/backendtest"
	"github.com/theclaw/agents/services/registry"
)

// beside are two registries over one database.
func beside(t *testing.T) (url string, w, other *backendtest.World) {
	t.Helper()
	url = pgtest.Database(t)
	one := func() *backendtest.World {
		return backendtest.Options{Home: filepath.Join(t.TempDir(), "h"), DSN: url}.Start(t, registry.Config{})
	}
	return url, one(), one()
}
