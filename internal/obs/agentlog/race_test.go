package agentlog_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/theclaw/agents/internal/obs/agentlog"
)

// S0-141, at the one place where it is hard: eight writers that share nothing but
// the file (as processes do) all arrive when one line of room is left.
func TestLogRotatesOnceAtTheBorder(t *testing.T) {
	for round := range 30 {
		dir := filepath.Join(t.TempDir(), strconv.Itoa(round))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "agent.log"), []byte(strings.Repeat("x\n", 9999)), 0o600); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		gate := make(chan struct{})
		for range 8 {
			wg.Go(func() {
				log := agentlog.New(nil)
				<-gate
				for range 3 {
					if err := log.Append(dir, agentlog.Line{Text: "y"}); err != nil {
						t.Error(err)
					}
				}
				if err := log.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		close(gate)
		wg.Wait()
		current, rotated := logs(t, dir)
		if len(rotated) != 1 || len(current) != 23 {
			t.Fatalf("round %d: %d rotated files, %d lines left", round, len(rotated), len(current))
		}
		for name, lines := range rotated {
			if len(lines) != 10000 {
				t.Fatalf("round %d: %s has %d lines", round, name, len(lines))
			}
		}
	}
}
