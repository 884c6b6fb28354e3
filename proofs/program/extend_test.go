//go:build proof

package program

import (
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/testing/example"
)

// A proof is one file and one target. The example of CONTRIBUTING.md is run by make and
// prints its figures.
func TestExtensions(t *testing.T) {
	c := example.NewTree(t, "../..")
	c.Add("proofs/program/push_test.go")
	c.Edit("Makefile")
	if out := c.Run(".", "make", "--no-print-directory", "push-twice", "N=2"); !strings.HasSuffix(out, "push-twice n=2 replies=2\n") {
		t.Errorf("printed %q", out)
	}
}
