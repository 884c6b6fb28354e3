package agentlog_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/obs/agentlog"
)

// Lines that wait are all written, in order; closing waits for them.
func TestLater(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	log := agentlog.New(nil)
	log.Delay(time.Hour)
	const n = 600 // more than wait at once
	for i := range n {
		log.Later(dir, func(err error) { t.Error(err) }, agentlog.Line{Text: fmt.Sprint("line ", i)})
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	lines, _ := logs(t, dir)
	if len(lines) != n {
		t.Fatalf("%d lines, want %d", len(lines), n)
	}
	for i, line := range lines {
		if !strings.HasSuffix(line, fmt.Sprint("line ", i)) {
			t.Errorf("line %d is %q", i, line)
		}
	}
}
