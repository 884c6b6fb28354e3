package running

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/theclaw/agents/internal/invariant"
)

// Resources is what a process holds. Goroutines are known of this process only.
// Databases are the descriptors of the databases of agents and of their mirrors, which
// a registry keeps open at rest; Descriptors are all others.
type Resources struct{ Goroutines, Descriptors, Databases, Children, TempFiles int }

// Measure answers what process pid holds now (0: this one), with the files in
// temp; a directory that is not there has none.
func Measure(pid int, temp string) (Resources, error) {
	r := Resources{}
	if pid == 0 {
		pid, r.Goroutines = os.Getpid(), runtime.NumGoroutine()
	}
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	fds, err := os.ReadDir(filepath.Join(proc, "fd"))
	if err != nil {
		return r, fmt.Errorf("count descriptors: %w", err)
	}
	for _, fd := range fds {
		// One that cannot be read was closed meanwhile, or is that of the list itself.
		if to, err := os.Readlink(filepath.Join(proc, "fd", fd.Name())); err == nil && strings.HasPrefix(filepath.Base(to), "events.") {
			r.Databases++
		}
	}
	r.Descriptors = len(fds) - r.Databases
	tasks, err := filepath.Glob(filepath.Join(proc, "task", "*", "children"))
	if err != nil {
		return r, err
	}
	for _, t := range tasks {
		if b, err := os.ReadFile(t); err == nil { // else a thread that ended
			r.Children += len(strings.Fields(string(b)))
		}
	}
	if temp != "" {
		if files, err := os.ReadDir(temp); err == nil {
			r.TempFiles = len(files)
		}
	}
	return r, nil
}

// Compare is I19: after a batch everything is back at the baseline. slack is how
// much more a busy runtime may hold of each.
func Compare(base, now, slack Resources) []invariant.Finding {
	var out []invariant.Finding
	for _, r := range []struct {
		what             string
		base, now, slack int
	}{
		{"goroutines", base.Goroutines, now.Goroutines, slack.Goroutines},
		{"descriptors", base.Descriptors, now.Descriptors, slack.Descriptors},
		{"descriptors of databases", base.Databases, now.Databases, slack.Databases},
		{"children", base.Children, now.Children, slack.Children},
		{"temporary files", base.TempFiles, now.TempFiles, slack.TempFiles},
	} {
		if r.now > r.base+r.slack {
			out = append(out, invariant.Finding{Invariant: "I19", What: fmt.Sprintf("%d %s, %d before the batch", r.now, r.what, r.base), Fix: "report it", Severity: invariant.Violation})
		}
	}
	return out
}
