package shell_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/sandbox"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/toolset"
	"github.com/theclaw/agents/services/runner/internal/toolset/shell"
	"github.com/theclaw/agents/services/runner/internal/toolset/toolsettest"

	"google.golang.org/grpc"
)

// nothing is a registry without processes.
type nothing struct{}

func (nothing) RecordProcess(context.Context, *registrypb.RecordProcessRequest, ...grpc.CallOption) (*registrypb.RecordProcessResponse, error) {
	return &registrypb.RecordProcessResponse{}, nil
}

func (nothing) ListProcesses(_ context.Context, in *registrypb.ListProcessesRequest, _ ...grpc.CallOption) (*registrypb.ListProcessesResponse, error) {
	if in.GetId() != "" {
		return nil, fault.New(codes.NotFound, fault.ProcessNotFound, "no process of this id", "")
	}
	return &registrypb.ListProcessesResponse{}, nil
}

func processes() *shell.Processes {
	return shell.NewProcesses(nothing{}, func(context.Context, string) (shell.Held, error) {
		return shell.Held{}, fault.New(codes.Unavailable, fault.ServiceUnavailable, "no lease", "")
	}, slog.New(slog.DiscardHandler))
}

func TestProcessTool(t *testing.T) {
	tool := shell.Process{Processes: processes()}
	toolsettest.Run(t, tool, toolsettest.Cases{
		Good: []string{`{"action":"list"}`},
		Bad: []string{
			`{}`, `{"action":"start"}`, `{"action":"poll"}`, `{"action":"poll","id":"p-1","wait_seconds":61}`, `{"action":"poll","id":"p-1","offset":-1}`,
			`{"action":"kill","id":7}`, `{"action":"write","id":"p-none","text":"x"}`,
		},
	})
	for action, want := range map[string]toolset.Class{"list": toolset.Read, "poll": toolset.Read, "write": toolset.Effect, "kill": toolset.Idempotent, "": toolset.Read} {
		if got := tool.Class(toolset.Call{Args: json.RawMessage(`{"action":"` + action + `"}`)}); got != want {
			t.Errorf("%q is of class %v", action, got)
		}
	}
}

func TestPythonTool(t *testing.T) {
	toolsettest.Run(t, shell.Python{Tool: &shell.Tool{Sandbox: func(string) (shell.Sandbox, error) { return silent{}, nil }}}, toolsettest.Cases{
		Good:   []string{`{"code":"print(1)"}`, `{"code":"print(1)","timeout":1500}`},
		Bad:    []string{`{}`, `{"code":7}`, `{"code":" "}`, `{"code":"x","timeout":0}`, `{"code":"x","timeout":3600001}`},
		Config: &registrypb.TurnConfig{Workdir: t.TempDir()},
	})
}

// S3-53: code is run by python3 in the working directory, whatever is in it, and its file is gone
// after that; the time is in milliseconds. S3-43: the exit code is in the result.
func TestPython(t *testing.T) {
	s, err := sandbox.New(t.Context(), sandbox.Options{Mode: sandbox.Off, ScratchDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b := &box{}
	place := at(t)
	call := func(with shell.Sandbox, args map[string]any) (r toolset.Output) {
		t.Helper()
		encoded, err := json.Marshal(args)
		if err != nil {
			t.Fatal(err)
		}
		python := shell.Python{Tool: &shell.Tool{Sandbox: func(string) (shell.Sandbox, error) { return with, nil }}}
		out := python.Run(t.Context(), toolset.Call{Key: "k:tool:1:1", Name: "python", Args: encoded, Place: place})
		if err := json.Unmarshal(out.JSON, &r); err != nil {
			t.Fatalf("%+v: %v", out, err)
		}
		return r
	}
	call(b, map[string]any{"code": "print(1)", "timeout": 1500})
	if b.got.Timeout != 1500*time.Millisecond || !strings.Contains(b.got.Shell, "\nprint(1)\n") {
		t.Errorf("ran %+v", b.got)
	}
	code := "import os, sys\nprint('it\\'s $HOME `x`', os.getcwd() == os.environ['PWD'])\nprint(__file__)\nEND = '''\nEND_\nEOF\n'''\nsys.exit(4)"
	r := call(s, map[string]any{"code": code})
	lines := strings.Split(r.Stdout, "\n")
	if r.ExitCode != 4 || lines[0] != "it's $HOME `x` True" || r.Stderr != "" {
		t.Fatalf("%+v", r)
	}
	if _, err := os.Stat(lines[1]); !os.IsNotExist(err) {
		t.Errorf("the file of the code %q is there: %v", lines[1], err)
	}
	if left, err := filepath.Glob(filepath.Join(place.Config.GetWorkdir(), "*")); err != nil || len(left) > 0 {
		t.Errorf("left in the working directory: %q %v", left, err)
	}
}

// What the tool for commands offers follows the set: the background with process alone, and the time
// of the settings. With the defaults it is what it always was, byte for byte.
func TestSpecInASet(t *testing.T) {
	run := &shell.Tool{Processes: processes()}
	plain := string(run.Spec().Schema)
	config := func(profile string) *registrypb.TurnConfig {
		c := &registrypb.TurnConfig{Processes: &registrypb.ProcessLimits{Max: 8}}
		for _, allow := range strings.Fields(profile) {
			c.ToolLayers = append(c.ToolLayers, &registrypb.ToolLayer{Name: "p", Allow: strings.Split(allow, ",")})
		}
		return c
	}
	tools, err := toolset.New(run, shell.Process{Processes: processes()})
	if err != nil {
		t.Fatal(err)
	}
	if got := string(tools.Set(config("exec")).Offered()[0].Schema); got != plain || strings.Contains(got, "background") || !strings.Contains(got, "600 unless given") {
		t.Errorf("alone: %s", got)
	}
	both := config("exec,process")
	if got := string(tools.Set(both).Offered()[0].Schema); !strings.Contains(got, `"background"`) || !strings.Contains(got, `"yield_seconds"`) {
		t.Errorf("with process: %s", got)
	}
	both.Processes.Max = 0
	if got := string(tools.Set(both).Offered()[0].Schema); got != plain {
		t.Errorf("without processes: %s", got)
	}
}
