//go:build proof

package catalog

import (
	"testing"

	"github.com/theclaw/agents/internal/testing/example"
)

// A channel is one package, and one line in a list. The example of CONTRIBUTING.md is built
// into the services and delivers a reply there.
func TestExtensions(t *testing.T) {
	c := example.NewTree(t, "../../..")
	c.Add("internal/channel/logfile/logfile.go")
	c.Line("internal/channel/catalog/catalog.go", "\twebhook.Type,", "internal/channel/logfile")
	c.Copy("internal/testing/world/toy_channel_test.go", "testdata/toy/world_test.txt")
	c.Test("^TestToy", 2, "./internal/testing/world")
}
