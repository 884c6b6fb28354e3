package agentlog_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/obs/agentlog"
)

// The end of a log is told over its rotation, and a torn line is not.
func TestTail(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	if got, err := agentlog.Tail(dir, 5); err != nil || len(got) != 0 {
		t.Errorf("no directory: %q, %v", got, err)
	}
	log := agentlog.New(nil)
	fill(t, log, dir, 10_002)
	for n, want := range map[int]string{1: "fill 10001", 3: "fill 9999", 10_002: "fill 0", 20_000: "fill 0"} {
		got, err := agentlog.Tail(dir, n)
		if err != nil || len(got) != min(n, 10_002) || !strings.HasSuffix(got[0], want) || !strings.HasSuffix(got[len(got)-1], "fill 10001") {
			t.Errorf("%d: %d lines, %v", n, len(got), err)
		}
	}
}
