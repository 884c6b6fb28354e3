package world_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/testing/world"
)

// architecture is the page with the tables of steps.
const architecture = "../../../docs/architecture.md"

// maxSteps is the most rows between a push and its reply that a reader is asked to follow.
const maxSteps = 12

// step is one row of a table of steps.
type step struct {
	labels   []string // T1, D3, ...; none: the row is a call that workers make on their own goroutines
	file, fn string
}

var (
	stepRow   = regexp.MustCompile("^\\| ([^|]+) \\| `([^`:]+\\.go):([A-Za-z0-9]+)` \\| [^|]+ \\|$")
	stepLabel = regexp.MustCompile(`\b([TD])(\d)(?: to [TD](\d))?\b`)
)

// steps reads the tables of steps: those of a message and those of its delivery.
func steps(t *testing.T) (message, delivery []step) {
	t.Helper()
	raw, err := os.ReadFile(filepath.FromSlash(architecture))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		m := stepRow.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		s := step{file: m[2], fn: m[3]}
		for _, l := range stepLabel.FindAllStringSubmatch(m[1], -1) {
			first, _ := strconv.Atoi(l[2])
			last := first
			if l[3] != "" {
				last, _ = strconv.Atoi(l[3])
			}
			for n := first; n <= last; n++ {
				s.labels = append(s.labels, l[1]+strconv.Itoa(n))
			}
		}
		if strings.Contains(m[1], "D") {
			delivery = append(delivery, s)
		} else {
			message = append(message, s)
		}
	}
	return message, delivery
}

// frame is one function on a stack.
type frame struct{ file, fn string }

// is tells whether a frame is in a function of a file, or in a function literal there.
func (f frame) is(s step) bool {
	_, name, _ := strings.Cut(f.fn[strings.LastIndexByte(f.fn, '/')+1:], ".")
	return strings.HasSuffix(f.file, "/"+s.file) && slices.Contains(strings.Split(strings.ReplaceAll(name, "[...]", ""), "."), s.fn)
}

func (f frame) String() string { return f.fn + " (" + f.file + ")" }

// stack answers the frames of the caller, innermost first.
func stack() (out []frame) {
	pcs := make([]uintptr, 256)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		f, more := frames.Next()
		out = append(out, frame{f.File, f.Function})
		if !more {
			return out
		}
	}
}

// The tables of steps in docs/architecture.md are what happens: whenever a message or its
// delivery passes one of the labels of a row, the stack has the function of the row. The
// workers call the registry as in `agentd all`, so a stack goes through both services.
func TestSteps(t *testing.T) {
	var mu sync.Mutex
	stacks := map[string][][]frame{} // by label without .before and .after
	fault.SetPoint(func(label string) {
		name, _, _ := strings.Cut(label, ".")
		mu.Lock()
		defer mu.Unlock()
		stacks[name] = append(stacks[name], stack())
	})
	defer fault.SetPoint(nil)
	calls := prometheus.NewRegistry()
	o := quick()
	o.Direct, o.Metrics = true, calls
	w, sink := world.Start(t, o), world.NewSink(t)
	w.Create(t, "a1", sink.Config())
	turn := w.Say(t, "a1", world.Peer("bob"), "run: echo hello")
	w.Say(t, "a1", world.Peer("bob"), "say: "+world.Refused)
	drain(t, w, "a1", turn.GetThreadId())
	w.Stop() // nothing passes a label after this

	message, delivery := steps(t)
	if n := len(message); n == 0 || n > maxSteps {
		t.Errorf("%s shows %d steps of a message, at most %d are wanted", architecture, n, maxSteps)
	}
	named, last := map[string]bool{}, ""
	for _, s := range slices.Concat(message, delivery) {
		if len(s.labels) == 0 {
			if !called(t, calls, s.fn) {
				t.Errorf("nobody called %s", s.fn)
			}
			continue
		}
		if first := s.labels[0]; first[0] == 'T' && first < last {
			t.Errorf("%s:%s of %s stands behind %s", s.file, s.fn, first, last)
		} else {
			last = first
		}
		for _, label := range s.labels {
			named[label] = true
			if len(stacks[label]) == 0 {
				t.Errorf("nothing passed %s", label)
			}
			for _, st := range stacks[label] {
				if !slices.ContainsFunc(st, func(f frame) bool { return f.is(s) }) {
					t.Errorf("%s does not pass %s:%s but\n%s", label, s.file, s.fn, text(st))
					break
				}
			}
		}
	}
	for _, label := range fault.Steps {
		if !named[label] && label != "T9" {
			t.Errorf("no step of %s names %s", architecture, label)
		}
	}
}

// text is a stack without what is not of this module.
func text(st []frame) string {
	var b strings.Builder
	for _, f := range st {
		if strings.HasPrefix(f.fn, "github.com/theclaw/agents/") && !strings.Contains(f.fn, "/internal/rpc/") {
			fmt.Fprintf(&b, "\t%s\n", f)
		}
	}
	return b.String()
}

// called tells whether the services answered a call of this method.
func called(t *testing.T, calls prometheus.Gatherer, method string) bool {
	t.Helper()
	families, err := calls.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "grpc_method" && l.GetValue() == method {
					return true
				}
			}
		}
	}
	return false
}
