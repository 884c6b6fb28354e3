package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/broker"
)

// S0-21, S0-136: `agent init` in a sandbox has the words of agentctl, and says what is
// wrong with them or with the socket.
func TestInitInASandbox(t *testing.T) {
	t.Chdir(t.TempDir()) // asking changes it
	socket := filepath.Join(t.TempDir(), ".broker", "gone")
	for line, want := range map[string]int{
		"": 2, "../x": 2, "A": 2, "bob eve": 2, "bob --kind root": 2, "bob --model": 2, "--provider a b\x1b": 2, "bob --json": 2,
		"bob": 1, "--kind system bob --model m": 1,
	} {
		var out, errs bytes.Buffer
		code := Main(append([]string{"init"}, strings.Fields(line)...), nil, &out, &errs, func(name string) string { return map[string]string{broker.Variable: socket}[name] })
		if code != want || out.Len() > 0 || !errorLine.MatchString(errs.String()) {
			t.Errorf("agent init %s: exit %d, want %d\nstdout %q\nstderr %q", line, code, want, &out, &errs)
		}
		if want == 1 && !strings.Contains(errs.String(), "nobody answers on the socket for new agents") {
			t.Errorf("agent init %s: %s", line, &errs)
		}
	}
}
