package turn

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// S7: the log has all of it, everybody else only what the runtime itself says.
func TestReportPanic(t *testing.T) {
	none := []int{}
	for name, c := range map[string]struct {
		breaks func()
		told   string
	}{
		"a text":        {func() { panic("hush") }, "the runner's log says what"},
		"an error":      {func() { panic(errors.New("hush")) }, "the runner's log says what"},
		"the runtime's": {func() { _ = none[len(none)] }, "runtime error: index out of range [0] with length 0"},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			defer func() {
				p := recover()
				told := reportPanic(slog.New(slog.NewTextHandler(&log, nil)), p, "agent_id", "a1")
				if told != c.told {
					t.Errorf("told %q", told)
				}
				for _, want := range []string{"agent_id=a1", "panic_test.go"} {
					if !strings.Contains(log.String(), want) {
						t.Errorf("the log lacks %q: %s", want, log.String())
					}
				}
				if _, ours := p.(interface{ RuntimeError() }); !ours && !strings.Contains(log.String(), "hush") {
					t.Errorf("the log does not say what: %s", log.String())
				}
			}()
			c.breaks()
		})
	}
}

// S7: the log has the stack of the goroutine that panicked, and not that of the turn.
func TestReportRemotePanic(t *testing.T) {
	var log bytes.Buffer
	p := remotePanic{"broken", []byte("tool.go:7")}
	if why := reportPanic(slog.New(slog.NewTextHandler(&log, nil)), p); why != "the runner's log says what" {
		t.Errorf("reported %q", why)
	}
	if got := log.String(); !strings.Contains(got, "panic=broken") || !strings.Contains(got, "stack=tool.go:7\n") {
		t.Errorf("the log has %s", got)
	}
}
