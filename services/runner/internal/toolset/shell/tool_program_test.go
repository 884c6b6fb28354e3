package shell_test

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/sandbox"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/toolset"
	"github.com/theclaw/agents/services/runner/internal/toolset/shell"
	"github.com/theclaw/agents/services/runner/internal/toolset/toolsettest"
)

const wordSchema = `{"additionalProperties":false,"properties":{"word":{"type":"string"}},"required":["word"],"type":"object"}`

// printer is a program of the home that prints a word.
func printer() *registrypb.ProgramTool {
	return &registrypb.ProgramTool{
		Name: "print_word", Description: "Prints a word.", Argv: []string{"printf", "%s", "--", "{word}"}, Schema: wordSchema, Class: "effect",
		Timeout: durationpb.New(time.Minute),
	}
}

// programOf is the tool that a program of the home is, in a sandbox.
func programOf(c *registrypb.TurnConfig, b shell.Sandbox, p *registrypb.ProgramTool) toolset.Tool {
	c.Programs = &registrypb.ProgramTools{List: []*registrypb.ProgramTool{p}, Exec: c.GetPrograms().GetExec()}
	return (&shell.Tool{Sandbox: func(string) (shell.Sandbox, error) { return b, nil }}).Programs(c)[0]
}

func TestProgramTool(t *testing.T) {
	config := &registrypb.TurnConfig{Workdir: t.TempDir()}
	toolsettest.Run(t, programOf(config, silent{}, printer()), toolsettest.Cases{
		Good: []string{`{"word":"a"}`, `{"word":"-x"}`}, Bad: []string{`{}`, `{"word":1}`, `{"word":"a","x":1}`, `[]`, `{"word":"a\u0000"}`}, Config: config,
	})
}

// S3-58: what the sandbox is given: words and no line, input, network and time of the program, and the class of its
// settings.
func TestProgramCommand(t *testing.T) {
	printf := []string{"/usr/bin/printf", "%s", "--"}
	for name, c := range map[string]struct {
		change  func(*registrypb.TurnConfig, *registrypb.ProgramTool)
		argv    []string
		stdin   string
		network bool
		hosts   bool
		class   toolset.Class
	}{
		"words":             {func(*registrypb.TurnConfig, *registrypb.ProgramTool) {}, append(printf, "$(id) 'x'"), "", false, false, toolset.Effect},
		"network of agents": {func(c *registrypb.TurnConfig, _ *registrypb.ProgramTool) { c.SandboxNetwork = true }, append(printf, "$(id) 'x'"), "", false, false, toolset.Effect},
		"hosts of agents":   {func(c *registrypb.TurnConfig, _ *registrypb.ProgramTool) { c.NetworkHosts = []string{"a.org"} }, append(printf, "$(id) 'x'"), "", false, false, toolset.Effect},
		"its hosts":         {func(_ *registrypb.TurnConfig, p *registrypb.ProgramTool) { p.NetworkHosts = []string{"a.org"} }, append(printf, "$(id) 'x'"), "", false, true, toolset.Effect},
		"its network": {func(c *registrypb.TurnConfig, p *registrypb.ProgramTool) {
			p.Network, p.Class = true, "idempotent"
			c.Programs = &registrypb.ProgramTools{Exec: &registrypb.ExecPolicy{Security: "full", Ask: "off"}}
		}, append(printf, "$(id) 'x'"), "", true, false, toolset.Idempotent},
		"input": {func(_ *registrypb.TurnConfig, p *registrypb.ProgramTool) {
			p.Stdin, p.Argv, p.Class = true, []string{"/usr/bin/cat", "{word}"}, "read"
		}, []string{"/usr/bin/cat", "{word}"}, `{"word":"$(id) 'x'"}` + "\n", false, false, toolset.Read},
		"a workspace to read": {func(c *registrypb.TurnConfig, _ *registrypb.ProgramTool) {
			c.Sandbox = &registrypb.Sandbox{Access: "ro", Scratch: filepath.Join(c.GetWorkdir(), "scratch")}
			c.SandboxMode = "required"
		}, nil, "", false, false, toolset.Effect},
		"a program that is not there": {func(_ *registrypb.TurnConfig, p *registrypb.ProgramTool) { p.Argv[0] = "no-such-program" }, []string{"no-such-program", "%s", "--", "$(id) 'x'"}, "", false, false, toolset.Effect},
	} {
		t.Run(name, func(t *testing.T) {
			place, p, b := at(t), printer(), &box{}
			c.change(place.Config, p)
			tool := programOf(place.Config, b, p)
			call := toolset.Call{Key: "k:tool:1:1", Name: "print_word", Args: json.RawMessage(`{"word":"$(id) 'x'"}`), Place: place}
			if got := tool.Class(call); got != c.class {
				t.Errorf("class %v", got)
			}
			if r := tool.Run(t.Context(), call); r.IsError || b.got == nil {
				t.Fatalf("%+v", r)
			}
			if c.argv == nil {
				c.argv = slices.Concat([]string{"/bin/sh", "-c", `cd -- "$1" && shift && exec "$@"`, "sh", place.Config.GetWorkdir()}, printf, []string{"$(id) 'x'"})
			}
			stdin := ""
			if b.got.Stdin != nil {
				all, err := io.ReadAll(b.got.Stdin)
				if err != nil {
					t.Fatal(err)
				}
				stdin = string(all)
			}
			if !slices.Equal(b.got.Argv, c.argv) || b.got.Shell != "" || stdin != c.stdin || b.got.Network != c.network || (b.got.Serve != nil) != c.hosts || b.got.Timeout != time.Minute {
				t.Errorf("%+v, input %q", b.got, stdin)
			}
		})
	}
}

// S3-58: where commands run in a container, a program of the home runs in the sandbox of the runner, with its own input,
// network and directories: a container can give it none of them.
func TestProgramOutsideOfContainer(t *testing.T) {
	for _, access := range []string{"rw", "ro"} {
		place, p, b := at(t), printer(), &box{}
		p.Argv, p.Stdin, p.NetworkHosts = []string{"cat"}, true, []string{"a.org"}
		workdir, scratch := place.Config.GetWorkdir(), filepath.Join(t.TempDir(), "scratch")
		place.Config.SandboxMode = "required"
		place.Config.Sandbox = &registrypb.Sandbox{Access: access, Docker: &registrypb.DockerSandbox{Workdir: "/workspace"}}
		want := [2]string{workdir, ""}
		if access == "ro" {
			place.Config.Sandbox.Scratch, want = scratch, [2]string{scratch, workdir}
		}
		call := toolset.Call{Key: "k:tool:1:1", Name: "print_word", Args: json.RawMessage(`{"word":"a"}`), Place: place}
		if r := programOf(place.Config, b, p).Run(t.Context(), call); r.IsError || b.got == nil {
			t.Fatalf("%s: %+v", access, r)
		}
		c := b.got
		if c.Serve == nil || c.Stdin == nil || !slices.Contains(c.Argv, "/usr/bin/cat") || [2]string{c.Workdir, c.Workspace} != want {
			t.Errorf("%s: %+v", access, c)
		}
	}
}

// S2-15: on the host and with the network of the host the policy decides on the words of a program, as on a command. In the
// sandbox without the network it does not.
func TestProgramPolicy(t *testing.T) {
	list := func(pattern string) *registrypb.ExecPolicy {
		return &registrypb.ExecPolicy{Security: "allowlist", Ask: "on-miss", Allowlist: []*registrypb.ExecEntry{{Pattern: "/usr/bin/env"}, {Pattern: pattern, Args: []string{"%s"}}}}
	}
	for name, c := range map[string]struct {
		mode    string
		network bool
		exec    *registrypb.ExecPolicy
		outside bool
		class   toolset.Class
		asks    bool
		runs    bool
	}{
		"sandbox":                       {"required", false, nil, true, toolset.Effect, false, true},
		"sandbox, policy deny":          {"required", false, &registrypb.ExecPolicy{Security: "deny"}, false, toolset.Effect, false, true},
		"network, no policy":            {"required", true, nil, false, toolset.Effect, true, false},
		"network, deny":                 {"required", true, &registrypb.ExecPolicy{Security: "deny"}, false, toolset.Read, false, false},
		"network, full":                 {"required", true, &registrypb.ExecPolicy{Security: "full", Ask: "off"}, true, toolset.Effect, false, true},
		"network, always":               {"required", true, &registrypb.ExecPolicy{Security: "full", Ask: "always"}, false, toolset.Effect, true, false},
		"network, in the list":          {"required", true, list("/usr/bin/printf"), false, toolset.Effect, false, true},
		"network, not in the list":      {"required", true, list("/usr/bin/cat"), false, toolset.Effect, true, false},
		"host, no policy":               {"off", false, nil, false, toolset.Effect, true, false},
		"host, full":                    {"off", false, &registrypb.ExecPolicy{Security: "full", Ask: "off"}, false, toolset.Effect, false, true},
		"host, full, text from outside": {"off", false, &registrypb.ExecPolicy{Security: "full", Ask: "off"}, true, toolset.Effect, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			place, p, b := at(t), printer(), &box{}
			p.Network = c.network
			place.Config.SandboxMode, place.Config.ExternalGuard = c.mode, &registrypb.ExternalGuard{Host: true}
			place.Config.Programs = &registrypb.ProgramTools{Exec: c.exec}
			place.Config.Exec = &registrypb.ExecPolicy{Security: "full", Ask: "off"} // it is for commands
			tool := programOf(place.Config, b, p)
			call := toolset.Call{Key: "k:tool:1:1", Name: "print_word", Args: json.RawMessage(`{"word":"a; id"}`), Place: place, Outside: c.outside}
			if class, asks := tool.Class(call), tool.(toolset.Asker).Asks(call); class != c.class || asks != c.asks {
				t.Errorf("class %v, asks %t", class, asks)
			}
			r := tool.Run(t.Context(), call) // without a person to ask, which is a no
			if (b.got != nil) != c.runs || r.IsError == c.runs {
				t.Errorf("ran %v: %+v", b.got, r)
			}
			if used := r.ExecUse.GetEntries(); strings.HasSuffix(name, "in the list") && c.runs && (len(used) != 1 || used[0].GetPattern() != "/usr/bin/printf") {
				t.Errorf("let by %v", used)
			}
		})
	}
}

// A program runs where the sandbox shows it, in the working directory, and no word of a call is read by a shell.
func TestProgramRuns(t *testing.T) {
	s, err := sandbox.New(t.Context(), sandbox.Options{Mode: sandbox.Off, ScratchDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	place := at(t)
	place.Config.SandboxMode = "off"
	place.Config.Programs = &registrypb.ProgramTools{Exec: &registrypb.ExecPolicy{Security: "full", Ask: "off"}}
	if err := os.MkdirAll(place.Config.GetWorkdir(), 0o700); err != nil {
		t.Fatal(err)
	}
	p := printer()
	p.Argv = []string{"touch", "--", "{word}"}
	const name = "a b; touch c && $(touch d)\n`touch e`"
	args, err := json.Marshal(map[string]string{"word": name})
	if err != nil {
		t.Fatal(err)
	}
	r := programOf(place.Config, s, p).Run(t.Context(), toolset.Call{Key: "k:tool:1:1", Name: "print_word", Args: args, Place: place})
	if r.IsError || !strings.Contains(string(r.JSON), `"exitCode":0`) {
		t.Fatalf("%+v", r)
	}
	made, err := os.ReadDir(place.Config.GetWorkdir())
	if err != nil || len(made) != 1 || made[0].Name() != name {
		t.Errorf("%v %v", made, err)
	}
}
