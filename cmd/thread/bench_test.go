package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/testing/need"
)

// BenchmarkThreadStart measures whole processes of the program `thread`, which
// is started for each message, beside the least that a Go program and a Node
// program take. CPU time is the figure that a busy machine leaves alone.
func BenchmarkThreadStart(b *testing.B) {
	dir := b.TempDir()
	bin := filepath.Join(built(b), "thread")
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty+".go", []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-o", empty, empty+".go").CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	t := filepath.Join(dir, "t")
	for _, args := range [][]string{{"init", t}, {"push", "--thread", t, "--source", "s", "--type", "message", "--content", "x"}} {
		if out, err := exec.Command(bin, args...).CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
	}
	for _, c := range []struct {
		name   string
		debian string // what has the program
		argv   []string
	}{
		{"empty", "", []string{empty}},
		{"peek", "", []string{bin, "peek", "--thread", t, "--last-event-id", "0"}},
		{"info", "", []string{bin, "info", "--thread", t}},
		{"push", "", []string{bin, "push", "--thread", t, "--source", "s", "--type", "message", "--content", "x"}},
		{"node", "nodejs", []string{"node", "-e", "0"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			need.Program(b, c.argv[0], c.debian)
			least := time.Hour
			for b.Loop() {
				p := exec.Command(c.argv[0], c.argv[1:]...)
				if err := p.Run(); err != nil {
					b.Fatal(err)
				}
				least = min(least, p.ProcessState.UserTime()+p.ProcessState.SystemTime())
			}
			b.ReportMetric(float64(least.Microseconds())/1000, "least-cpu-ms")
		})
	}
}
