package need

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
)

// recorder notes how a test ended.
type recorder struct {
	testing.TB
	skipped, failed string
}

func (r *recorder) Helper() {}

func (r *recorder) Skip(args ...any) {
	r.skipped = fmt.Sprint(args...)
	runtime.Goexit()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failed = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// try runs what asks for something in a test of its own.
func try(t *testing.T, ask func(testing.TB)) *recorder {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		ask(r)
	}()
	<-done
	return r
}

// What is missing skips with what to do, or fails where nothing may be missing; what is
// there does neither.
func TestMissing(t *testing.T) {
	asks := map[string]func(testing.TB){
		"install the package nothing":          func(t testing.TB) { Program(t, "no-such-program", "nothing") },
		"it needs root: take it out of":        Root,
		"it needs postgres: take it out of":    func(t testing.TB) { Postgres(t) },
		"it needs bubblewrap: take it out of":  Bubblewrap,
		"it needs tmux: take it out of":        Tmux,
		"it needs namespaces: take it out of":  func(t testing.TB) { Namespaces(t) },
		"it needs mount: take it out of":       func(t testing.TB) { Disk(t, "size=1m") },
		"it needs mount: take it out of THECL": func(t testing.TB) { ReadOnly(t, t.TempDir()) },
	}
	t.Setenv(Without, "root,postgres,bubblewrap,tmux,namespaces,mount")
	t.Setenv(Variable, "")
	for want, ask := range asks {
		if r := try(t, ask); !strings.Contains(r.skipped, want) || r.failed != "" {
			t.Errorf("want %q: %+v", want, r)
		}
	}
	t.Setenv(Variable, "all")
	for want, ask := range asks {
		if r := try(t, ask); !strings.Contains(r.failed, want) || r.skipped != "" {
			t.Errorf("want %q: %+v", want, r)
		}
	}
	if r := try(t, func(t testing.TB) { Inapplicable(t, "another topology") }); r.skipped != "another topology" || r.failed != "" {
		t.Errorf("not applicable: %+v", r)
	}
	t.Setenv(Without, "")
	if r := try(t, func(t testing.TB) { Program(t, "sh", "dash") }); r.skipped+r.failed != "" {
		t.Errorf("sh is there: %+v", r)
	}
	if r := try(t, Root); (r.failed == "") != (os.Geteuid() == 0) {
		t.Errorf("root, as %d: %+v", os.Geteuid(), r)
	}
}
