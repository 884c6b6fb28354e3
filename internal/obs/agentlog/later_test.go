package agentlog_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/obs/agentlog"
)

// Lines that wait are all written, in order and with the time at which they were
// handed over; closing waits for them.
func TestLater(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	log := agentlog.New(nil)
	log.Delay(time.Hour)
	const n = 600 // more than wait at once
	for i := range n {
		log.Later(dir, func(err error) { t.Error(err) }, agentlog.Line{Text: fmt.Sprint("line ", i)})
	}
	before := time.Now()
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	lines, _ := logs(t, dir)
	if len(lines) != n {
		t.Fatalf("%d lines, want %d", len(lines), n)
	}
	for i, line := range lines {
		if !strings.HasSuffix(line, fmt.Sprint("line ", i)) || line > "["+before.UTC().Format("2006-01-02T15:04:05.999Z") {
			t.Errorf("line %d is %q", i, line)
		}
	}
}
