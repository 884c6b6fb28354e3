package home_test

import (
	"testing"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/home"
	"github.com/theclaw/agents/internal/store/storetest"
)

// S3-59: tools of MCP servers among several registries.
func TestPins(t *testing.T) {
	_, pool := opened(t)
	storetest.Pins(t, func(*testing.T) store.Pins { return home.New(pool) })
}
