//go:build linux

package sandbox

import (
	"fmt"
	"sync"
	"testing"
)

// Programs at the same time do not see each other's workdirs, output or end.
func TestConcurrent(t *testing.T) {
	eachLevel(t, func(t *testing.T, l Level) {
		s := only(t, l)
		var all sync.WaitGroup
		for i := range 8 {
			dir := workdir(t, l)
			all.Go(func() {
				r, err := s.Run(t.Context(), Command{Shell: fmt.Sprintf("echo %d >n; cat n; exit %d", i, i), Workdir: dir})
				if err != nil || string(r.Stdout) != fmt.Sprintf("%d\n", i) || r.ExitCode != i {
					t.Errorf("%d: got %q, %d, %v %s", i, r.Stdout, r.ExitCode, err, r.Stderr)
				}
			})
		}
		all.Wait()
	})
}
