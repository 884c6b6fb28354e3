//go:build linux

package sandbox

import (
	"os/exec"
	"testing"
)

// BenchmarkSpawn is the price of one program by driver; plain is without any wall.
func BenchmarkSpawn(b *testing.B) {
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			if err := exec.Command("bash", "-c", "true").Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, l := range []Level{LevelFull, LevelBubblewrap, LevelPrivileged, LevelReduced, LevelOff} {
		b.Run(string(l), func(b *testing.B) {
			s := with(b, l, Options{})
			dir := workdir(b, l)
			b.ResetTimer()
			for b.Loop() {
				r, err := s.Run(b.Context(), Command{Shell: "true", Workdir: dir})
				if err != nil || r.ExitCode != 0 {
					b.Fatalf("code %d, %v: %s", r.ExitCode, err, r.Stderr)
				}
			}
		})
	}
}
