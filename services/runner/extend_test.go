//go:build proof

package runner_test

import (
	"testing"

	"github.com/theclaw/agents/internal/testing/overlay"
)

// What extends a runner is one file, and one line in a list. The examples of CONTRIBUTING.md
// are built into a runner and answer a message there.
func TestExtensions(t *testing.T) {
	o := overlay.New(t)
	page := o.Page("../../CONTRIBUTING.md")
	page.Add("internal/toolset/reverse/reverse.go", "services/runner/internal/toolset/reverse/reverse.go")
	page.Line("tools.go", "services/runner/tools.go", "\t\tmessage.Tool{},", "services/runner/internal/toolset/reverse")
	o.Add("toy_tool_test.go", "testdata/toy/reverse/runner_test.txt")
	page.Add("internal/motto/motto.go", "services/runner/internal/motto/motto.go")
	page.Line("sources.go", "services/runner/sources.go", "\t)", "services/runner/internal/motto")
	o.Add("toy_source_test.go", "testdata/toy/motto/runner_test.txt")
	o.Test(".", 3)
}
