//go:build proof

package program

import (
	"testing"

	"github.com/theclaw/agents/internal/testing/overlay"
)

// A proof is one file. The example of CONTRIBUTING.md is built and passes.
func TestExtensions(t *testing.T) {
	o := overlay.New(t)
	o.Page("../../CONTRIBUTING.md").Add("once_test.go", "proofs/program/once_test.go")
	o.Test(".", 1)
}
