//go:build proof

package runner_test

import (
	"os"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/testing/overlay"
)

// copied is a copy of the repository with a test of this package in it.
func copied(t *testing.T, test string) *overlay.Copy {
	t.Helper()
	c := overlay.NewCopy(t, "../..")
	data, err := os.ReadFile(test)
	if err != nil {
		t.Fatal(err)
	}
	c.Write("services/runner/toy_test.go", data)
	return c
}

// A model driver is one package and one line. The example of CONTRIBUTING.md passes the suite
// of all drivers and answers a message in a runner.
func TestDriverExample(t *testing.T) {
	c := copied(t, "testdata/toy/acme/runner_test.txt")
	c.Add("services/runner/internal/model/acme/acme.go")
	c.Add("services/runner/internal/model/acme/acme_test.go")
	c.Line("services/runner/internal/model/provider/drivers.go", "\tapiAnthropic: func", "services/runner/internal/model/acme")
	c.Test("^(TestToy|TestConformance)", 3, "./services/runner", "./services/runner/internal/model/acme")
	c.Test("^Test(Layers|BelowProgramsNothingSpeaks|PackageDocs|DocsMap)$", 4, ".", "-args", "-write-map") // as make map
}

// A method is an edit of the contract, of an access table and of a command, and a function.
// The example of CONTRIBUTING.md is generated, passes what checks the contract, and answers
// the command.
func TestRPCExample(t *testing.T) {
	c := copied(t, "testdata/toy/offered/runner_test.txt")
	c.Tools()
	c.Edit("proto/theclaw/runner/v1/runner.proto")
	c.Edit("services/runner/policy.go")
	c.Add("services/runner/offered.go")
	c.Add("cmd/agentctl/internal/setting/tools.go")
	c.Edit("cmd/agentctl/internal/setting/context.go")
	c.Edit("cmd/agentctl/output_test.go")
	c.Run(".", "make", "generate", "lint-proto")
	c.Run(".", ".bin/buf", "breaking", "--against", c.Original())
	c.Test("^(TestToy|TestEveryCallRefusesEveryWrongCaller$)", 2, "./services/runner", "./internal/testing/world")
	c.Test("^(TestHelp|TestOutputs)$", 2, "./cmd/agentctl", "-args", "-update")
	help, err := os.ReadFile(c.Path("cmd/agentctl/testdata/golden/help.txt"))
	if err != nil || !strings.Contains(string(help), "\n  agentctl context tools ID ") {
		t.Errorf("the help texts do not have the command: %v", err)
	}
}
