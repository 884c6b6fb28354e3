// Package standalone_test tests the registry that serves a home alone: directories and
// databases as people, other programs and 'agentctl fsck' find them, a full disk, files
// that cannot be written, and writes of another program. Tests that hold for any storage
// are in package registry_test, over both implementations.
package standalone_test

import (
	"testing"

	"github.com/theclaw/agents/internal/testing/backendtest"
	"github.com/theclaw/agents/services/registry"
)

// world is a registry with what only these tests ask of it.
type world struct{ *backendtest.World }

func start(t *testing.T, o backendtest.Options, cfg registry.Config) *world {
	t.Helper()
	return &world{o.Start(t, cfg)}
}
