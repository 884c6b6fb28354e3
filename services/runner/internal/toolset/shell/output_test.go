package shell_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/internal/sandbox/docker"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/toolset/shell"
)

// S3-103: a program of the settings runs where commands of the agent run: in its directory, with its network, in its
// container. Nothing of its output is stored elsewhere.
func TestOutput(t *testing.T) {
	for name, c := range map[string]struct {
		change    func(*registrypb.TurnConfig)
		argv      []string
		network   bool
		serve     bool
		workspace bool
		contained bool
	}{
		"sandbox": {func(*registrypb.TurnConfig) {}, []string{"/usr/bin/cat", "x"}, false, false, false, false},
		"network": {func(c *registrypb.TurnConfig) { c.SandboxNetwork = true }, []string{"/usr/bin/cat", "x"}, true, false, false, false},
		"hosts":   {func(c *registrypb.TurnConfig) { c.NetworkHosts = []string{"a.org"} }, []string{"/usr/bin/cat", "x"}, false, true, false, false},
		"read only": {func(c *registrypb.TurnConfig) {
			c.Sandbox = &registrypb.Sandbox{Access: "ro", Scratch: c.GetWorkdir() + "-scratch"}
		}, []string{"/usr/bin/cat", "x"}, false, false, true, false},
		"container": {func(c *registrypb.TurnConfig) {
			c.Sandbox = &registrypb.Sandbox{Docker: &registrypb.DockerSandbox{Workdir: "/workspace"}}
		}, []string{"cat", "x"}, false, false, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			place, inside, outside := at(t), &box{result: sandbox.Result{Stdout: []byte("a\x1b[1m b\u202e\n"), Stderr: []byte("noise")}}, &box{}
			place.Config.SandboxMode = "required"
			workdir := place.Config.GetWorkdir()
			c.change(place.Config)
			tool := &shell.Tool{Sandbox: func(mode string) (shell.Sandbox, error) { return inside, nil }, Container: func(docker.Box) shell.Sandbox { return inside }}
			got, err := tool.Output(t.Context(), place, "k:transcribe:1", []string{"cat", "x"}, time.Minute)
			if err != nil || got != "a b\n" || outside.got != nil {
				t.Fatalf("%q, %v", got, err)
			}
			b := inside.got
			if !slices.Equal(b.Argv, c.argv) || b.Network != c.network || (b.Serve != nil) != c.serve || (b.Workspace == workdir) != c.workspace || (b.Workdir == workdir) == c.workspace {
				t.Errorf("%+v", b)
			}
			if b.Timeout != time.Minute || b.SpillDir != "" || b.Env["TOOL_IDEMPOTENCY_KEY"] != "k:transcribe:1" || b.Stdin != nil {
				t.Errorf("%+v", b)
			}
		})
	}
}

// What goes wrong is an error of its own.
func TestOutputFails(t *testing.T) {
	for want, r := range map[string]sandbox.Result{
		"exit code 3: no model file": {ExitCode: 3, Stdout: []byte("half"), Stderr: []byte("loading\nno model\x07 file\n")},
		"exit code 137: ":            {ExitCode: 137, Signal: "SIGKILL"},
		shell.ErrOutOfTime.Error():   {TimedOut: true, ExitCode: 137},
	} {
		b := &box{result: r}
		tool := &shell.Tool{Sandbox: func(string) (shell.Sandbox, error) { return b, nil }}
		if got, err := tool.Output(t.Context(), at(t), "k", []string{"x"}, time.Second); err == nil || err.Error() != want || got != "" {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	tool := &shell.Tool{Sandbox: func(string) (shell.Sandbox, error) { return nil, errors.New("no sandbox here") }}
	if _, err := tool.Output(t.Context(), at(t), "k", []string{"x"}, time.Second); err == nil {
		t.Error("it ran without a sandbox")
	}
	b := &box{err: errors.New("not started")}
	tool.Sandbox = func(string) (shell.Sandbox, error) { return b, nil }
	if _, err := tool.Output(t.Context(), at(t), "k", []string{"x"}, time.Second); err == nil || strings.Contains(err.Error(), "exit") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the lease is lost")
	cancel(cause)
	if _, err := tool.Output(ctx, at(t), "k", []string{"x"}, time.Second); !errors.Is(err, cause) {
		t.Errorf("%v, want the cause", err)
	}
}
