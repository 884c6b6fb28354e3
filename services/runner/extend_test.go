//go:build proof

package runner_test

import (
	"os"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/testing/example"
)

// added adds a test of testdata/toy to this package of a copy.
func added(c *example.Tree, name string) {
	c.Copy("services/runner/toy_"+name+"_test.go", "testdata/toy/"+name+"/runner_test.txt")
}

// What extends a runner is one package, and one line in a list. The examples of
// CONTRIBUTING.md pass the suites of their ports, are built into a runner and answer a
// message there; what checks the tree as a whole has nothing against them.
func TestExtensions(t *testing.T) {
	c := example.NewTree(t, "../..")
	c.Add("services/runner/internal/toolset/reverse/reverse.go")
	c.Add("services/runner/internal/toolset/reverse/reverse_test.go")
	c.Line("services/runner/tools.go", "\t\tmessage.Tool{},", "services/runner/internal/toolset/reverse")
	added(c, "reverse")
	c.Add("services/runner/internal/motto/motto.go")
	c.Line("services/runner/sources.go", "\t)", "services/runner/internal/motto")
	added(c, "motto")
	c.Add("services/runner/internal/model/acme/acme.go")
	c.Add("services/runner/internal/model/acme/acme_test.go")
	c.Line("services/runner/internal/model/provider/drivers.go", "\tapiAnthropic: func", "services/runner/internal/model/acme")
	added(c, "acme")
	c.Test("^(TestToy|TestTool$|TestDriver$)", 6, "./services/runner", "./services/runner/internal/toolset/reverse", "./services/runner/internal/model/acme")
	c.Test("^Test(Layers|BelowProgramsNothingSpeaks|PackageDocs|EveryToolRunsTheSuite|NobodyComparesNamesOfTools|DocsMap)$", 6,
		".", "-args", "-write-map") // as make map
}

// A method is an edit of the contract, of an access table and of a command, and a function.
// The example of CONTRIBUTING.md is generated, passes what checks the contract, and answers
// the command.
func TestRPCExample(t *testing.T) {
	c := example.NewTree(t, "../..")
	buf := c.Buf()
	c.Edit("proto/theclaw/runner/v1/runner.proto")
	c.Edit("services/runner/policy.go")
	c.Add("services/runner/offered.go")
	added(c, "offered")
	c.Add("cmd/agentctl/internal/setting/tools.go")
	c.Edit("cmd/agentctl/internal/setting/context.go")
	c.Edit("cmd/agentctl/output_test.go")
	for _, args := range [][]string{ // as make generate, lint-proto and breaking; make would install tools that look old
		{"format", "-w", "proto"}, {"generate"}, {"lint"}, {"format", "-d", "--exit-code", "proto"}, {"breaking", "--against", c.Original()},
	} {
		c.Run(".", buf, args...)
	}
	c.Test("^(TestToy|TestEveryCallRefusesEveryWrongCaller$)", 2, "./services/runner", "./internal/testing/world")
	c.Test("^(TestHelp|TestOutputs)$", 2, "./cmd/agentctl", "-args", "-update")
	help, err := os.ReadFile(c.Path("cmd/agentctl/testdata/golden/help.txt"))
	if err != nil || !strings.Contains(string(help), "\n  agentctl context tools ID ") {
		t.Errorf("the help texts do not have the command: %v", err)
	}
}
