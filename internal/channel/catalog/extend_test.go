//go:build proof

package catalog

import (
	"testing"

	"github.com/theclaw/agents/internal/testing/overlay"
)

// A channel is one file, and one line in a list. The example of CONTRIBUTING.md is built into
// the services and delivers a reply there.
func TestExtensions(t *testing.T) {
	o := overlay.New(t)
	page := o.Page("../../../CONTRIBUTING.md")
	page.Add("../logfile/logfile.go", "internal/channel/logfile/logfile.go")
	page.Line("catalog.go", "internal/channel/catalog/catalog.go", "\twebhook.Type,", "internal/channel/logfile")
	o.Add("../../testing/world/toy_channel_test.go", "testdata/toy/world_test.txt")
	o.Test("../../testing/world", 2)
}
