//go:build proof

package catalog

import (
	"testing"

	"github.com/theclaw/agents/internal/testing/overlay"
)

// A channel is one file, and one line in a list. The example in testdata/toy is built into the
// services and delivers a reply there.
func TestExtensions(t *testing.T) {
	o := overlay.New(t)
	o.Add("../logfile/logfile.go", "testdata/toy/logfile.go")
	o.Line("catalog.go", "\twebhook.Type,", "\tlogfile.Type,", "internal/channel/logfile")
	o.Add("../../testing/world/toy_channel_test.go", "testdata/toy/world_test.txt")
	o.Test("../../testing/world", 2)
}
