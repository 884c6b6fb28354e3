//go:build proof

package runner_test

import (
	"testing"

	"github.com/theclaw/agents/internal/testing/overlay"
)

// What extends a runner is one file, and one line in a list. The examples in testdata/toy
// are built into a runner and answer a message there.
func TestExtensions(t *testing.T) {
	o := overlay.New(t)
	o.Add("internal/toolset/reverse/reverse.go", "testdata/toy/reverse/reverse.go")
	o.Line("tools.go", "\t\tmessage.Tool{},", "\t\treverse.Tool{},", "services/runner/internal/toolset/reverse")
	o.Add("toy_tool_test.go", "testdata/toy/reverse/runner_test.txt")
	o.Add("internal/motto/motto.go", "testdata/toy/motto/motto.go")
	o.Line("sources.go", "\t)", "\t\tmotto.Source{},", "services/runner/internal/motto")
	o.Add("toy_source_test.go", "testdata/toy/motto/runner_test.txt")
	o.Test(".", 3)
}
