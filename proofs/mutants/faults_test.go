//go:build proof

package mutants_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/proofs/drill"
)

// within is how long a fault may stay unfound.
const within = "60s"

// TestFaults seeds faults in the state machine, one after another, and lets the fuzz
// target that compares it with the oracle look for each, from an empty corpus: all, or
// FAULTS of them chosen by SEED. The times printed are those of the search alone.
func TestFaults(t *testing.T) {
	root, err := filepath.Abs("../..")
	check(t, err)
	data, err := os.ReadFile("testdata/faults.json")
	check(t, err)
	var all []mutant
	check(t, json.Unmarshal(data, &all))
	seed, chance := drill.Seed(t)
	chance.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	there := len(all)
	if os.Getenv("FAULTS") != "all" {
		all = all[:min(drill.Size(t, "FAULTS", 1), there)]
	}
	found, longest := 0, time.Duration(0)
	for _, m := range all {
		t.Run(m.Name, func(t *testing.T) {
			text, took := m.search(t, root)
			said := firstLine(text, "fuzz_test.go:")
			if said == "" {
				t.Fatalf("not found within %s:\n%s", within, text)
			}
			found, longest = found+1, max(longest, took)
			drill.Line("%s: found after %v: %s", m.Name, took.Round(10*time.Millisecond), said)
		})
	}
	drill.Line("fuzz-faults found=%d/%d of=%d longest=%v within=%s seed=%d", found, len(all), there, longest.Round(10*time.Millisecond), within, seed)
}

// search fuzzes the machine with a fault in it and answers what that printed.
func (m mutant) search(t *testing.T, root string) (string, time.Duration) {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "fuzz.test")
	// Our own packages alone are led by coverage: what they import need not be compiled again.
	build := exec.Command("go", "test", "-c", "-vet=off", "-overlay", m.overlay(t, root), "-gcflags=github.com/theclaw/agents/...=-d=libfuzzer", "-o", program, "./internal/store/machine")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	fuzz := exec.Command(program, "-test.run", "^$", "-test.fuzz", "^FuzzMachine$", "-test.fuzztime", within, "-test.fuzzminimizetime", "0x", "-test.parallel", "2", "-test.fuzzcachedir", filepath.Join(dir, "cache"))
	fuzz.Dir = dir // it writes what it found below it
	begun := time.Now()
	out, err := fuzz.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--- FAIL: FuzzMachine") {
		t.Fatalf("not found within %s, or another end: %v\n%s", within, err, out)
	}
	return string(out), time.Since(begun)
}

// firstLine is the first line that holds some words.
func firstLine(text, words string) string {
	for line := range strings.Lines(text) {
		if _, after, ok := strings.Cut(line, words); ok {
			return strings.TrimSpace(after)
		}
	}
	return ""
}
