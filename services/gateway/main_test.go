package gateway_test

import (
	"os"
	"testing"

	"github.com/theclaw/agents/internal/sandbox"
)

func TestMain(m *testing.M) {
	sandbox.Main()
	os.Exit(m.Run())
}
