package shell_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/broker"
	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/internal/sandbox/docker"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/toolset"
	"github.com/theclaw/agents/services/runner/internal/toolset/shell"
)

// S4-41, S4-62: a command leaves the sandbox when the author of the message may have that, in the modes on and ask by the
// policy and in the mode full unasked, unless text from outside is part of the turn; and in no other case.
func TestElevated(t *testing.T) {
	const elevated = `{"command":"mkdir a","elevated":true}`
	full, lists := &registrypb.ExecPolicy{Security: "full", Ask: "off"}, &registrypb.ExecPolicy{Security: "allowlist", Ask: "on-miss"}
	deny := &registrypb.ExecPolicy{Security: "deny"}
	may := func(mode string, p *registrypb.ExecPolicy) *registrypb.Elevated {
		return &registrypb.Elevated{Mode: mode, Allowed: true, Exec: p}
	}
	for name, c := range map[string]struct {
		elevated *registrypb.Elevated
		args     string
		outside  bool
		ranIn    string // empty: it does not run
		asks     bool
		why      string
	}{
		"not enabled":           {nil, elevated, false, "", false, "tools.elevated.enabled"},
		"another author, off":   {&registrypb.Elevated{Mode: "off", Exec: full}, elevated, false, "", false, "allow_from"},
		"another author, on":    {&registrypb.Elevated{Mode: "on", Exec: full}, elevated, false, "", false, "allow_from"},
		"another author, ask":   {&registrypb.Elevated{Mode: "ask", Exec: full}, elevated, false, "", false, "allow_from"},
		"another author, full":  {&registrypb.Elevated{Mode: "full", Exec: full}, elevated, false, "", false, "allow_from"},
		"off":                   {may("off", full), elevated, false, "", false, "are off"},
		"on, policy full":       {may("on", full), elevated, false, "off", false, ""},
		"on, policy lists":      {may("on", lists), elevated, false, "", true, "approve"},
		"ask, policy full":      {may("ask", full), elevated, false, "off", false, ""},
		"ask, policy lists":     {may("ask", lists), elevated, false, "", true, "approve"},
		"full, policy lists":    {may("full", lists), elevated, false, "off", false, ""},
		"full, policy deny":     {may("full", deny), elevated, false, "", false, "security deny"},
		"full, outside":         {may("full", lists), elevated, true, "", true, "approve"},
		"on, outside":           {may("on", full), elevated, true, "", true, "approve"},
		"not elevated":          {may("full", full), `{"command":"mkdir a"}`, false, "required", false, ""},
		"not elevated, outside": {may("full", full), `{"command":"mkdir a"}`, true, "required", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			place := at(t)
			place.Config.SandboxMode, place.Config.Elevated = "required", c.elevated
			place.Config.ExternalGuard = &registrypb.ExternalGuard{Host: true}
			ran := ""
			b := &box{}
			tool := (&shell.Tool{Sandbox: func(mode string) (shell.Sandbox, error) {
				ran = mode
				return b, nil
			}}).In(place.Config, func(string) bool { return true })
			offered := c.elevated.GetAllowed() && c.elevated.GetMode() != "off"
			if got := strings.Contains(string(tool.Spec().Schema), `"elevated"`); got != offered {
				t.Errorf("the argument is offered: %t", got)
			}
			call := toolset.Call{Key: "k:tool:1:1", Name: shell.Name, Args: []byte(c.args), Place: place, Outside: c.outside}
			if got := tool.(toolset.Asker).Asks(call); got != c.asks {
				t.Errorf("asks: %t", got)
			}
			r := tool.Run(t.Context(), call) // without a person to ask, which is a no
			if b.got == nil {
				ran = ""
			}
			if ran != c.ranIn || !strings.Contains(r.Text, c.why) || r.IsError != (c.ranIn == "") {
				t.Errorf("ran in %q: %s", ran, r.Text)
			}
		})
	}
}

// With text from outside in the turn, a command on the host asks whatever the policy allows, and one in the sandbox does not.
func TestGuard(t *testing.T) {
	for _, c := range []struct {
		mode           string
		guard, outside bool
		asks           bool
	}{
		{"off", true, true, true}, {"off", true, false, false}, {"off", false, true, false}, {"required", true, true, false},
	} {
		place := at(t)
		place.Config.SandboxMode, place.Config.SandboxNetwork = c.mode, true
		place.Config.Exec = &registrypb.ExecPolicy{Security: "full", Ask: "off"}
		place.Config.ExternalGuard = &registrypb.ExternalGuard{Host: c.guard, Mcp: true}
		call := toolset.Call{Key: "k:tool:1:1", Name: shell.Name, Args: []byte(`{"command":"mkdir a"}`), Place: place, Outside: c.outside}
		if got := (&shell.Tool{}).Asks(call); got != c.asks {
			t.Errorf("%+v: asks %t", c, got)
		}
	}
}

// With a container in the settings commands run in it, but for those that leave the sandbox. It has the directories and
// the lease of the turn, and the PATH of its image: one of this machine is for what runs here, where `agent` is found.
func TestContainer(t *testing.T) {
	for arguments, contained := range map[string]bool{
		`{"command":"pwd"}`: true, `{"command":"pwd","cwd":"/workspace/sub"}`: true, `{"command":"pwd","elevated":true}`: false,
	} {
		place := at(t)
		place.Config.SandboxMode, place.Config.CreatesAgents = "required", true
		place.Config.Elevated = &registrypb.Elevated{Mode: "full", Allowed: true, Exec: &registrypb.ExecPolicy{Security: "full", Ask: "off"}}
		place.Config.Sandbox = &registrypb.Sandbox{Access: "ro", Scratch: "/scratch", Docker: &registrypb.DockerSandbox{Workdir: "/workspace"}}
		host, container := &box{}, &box{}
		var got docker.Box
		tool := (&shell.Tool{
			Agent:   "/opt/theclaw/agent",
			Sandbox: func(string) (shell.Sandbox, error) { return host, nil },
			Container: func(b docker.Box) shell.Sandbox {
				got = b
				return container
			},
		}).In(place.Config, func(string) bool { return true })
		if r := tool.Run(t.Context(), toolset.Call{Key: "k:tool:1:1", Name: shell.Name, Args: []byte(arguments), Place: place}); r.IsError {
			t.Errorf("%s: %s", arguments, r.Text)
		}
		if (container.got != nil) != contained || (host.got != nil) == contained {
			t.Errorf("%s: in the container %v, outside %v", arguments, container.got, host.got)
		}
		if !contained {
			if path := host.got.Env["PATH"]; path != sandbox.Path+":/opt/theclaw" {
				t.Errorf("%s: PATH %q", arguments, path)
			}
			continue
		}
		if got.Dir != place.Config.GetWorkdir() || !got.ReadOnly || got.Temp != "/scratch" || got.Fence != "agent/a1=3" {
			t.Errorf("container %+v", got)
		}
		if c := container.got; c.Workspace != "" {
			t.Errorf("command %+v", c)
		}
		for _, name := range []string{"PATH", "TMPDIR", broker.Variable} {
			if value, ok := container.got.Env[name]; ok {
				t.Errorf("%s: %s is %q", arguments, name, value)
			}
		}
		if c := container.got; strings.Contains(arguments, "cwd") && !strings.HasPrefix(c.Shell, "cd -- 'sub' ") {
			t.Errorf("command %q", c.Shell)
		}
	}
}

// S2-15, S4-72: the lists of the policy are paths of this machine, and allow no command in a container. What runs there is
// the line as it was written, also where this machine has a program of that name.
func TestContainerPolicy(t *testing.T) {
	allow := []*registrypb.ExecEntry{{Pattern: "/**"}}
	for name, c := range map[string]struct {
		exec  *registrypb.ExecPolicy
		runs  bool
		class toolset.Class
		asks  bool
	}{
		"no network":         {nil, true, toolset.Effect, false},
		"full":               {&registrypb.ExecPolicy{Security: "full", Ask: "off"}, true, toolset.Effect, false},
		"full, on-miss":      {&registrypb.ExecPolicy{Security: "full", Ask: "on-miss", Allowlist: allow}, true, toolset.Effect, false},
		"full, always":       {&registrypb.ExecPolicy{Security: "full", Ask: "always", Allowlist: allow}, false, toolset.Effect, true},
		"allowlist, on-miss": {&registrypb.ExecPolicy{Security: "allowlist", Ask: "on-miss", Allowlist: allow}, false, toolset.Effect, true},
		"allowlist, off":     {&registrypb.ExecPolicy{Security: "allowlist", Ask: "off", Allowlist: allow, SafeBins: []string{"wc"}}, false, toolset.Read, false},
		"deny":               {&registrypb.ExecPolicy{Security: "deny", Ask: "always", Allowlist: allow}, false, toolset.Read, false},
	} {
		for _, line := range []string{"mkdir a", "/usr/bin/mkdir a", "./build.sh", "wc"} {
			place := at(t)
			place.Config.SandboxMode, place.Config.Exec = "required", c.exec
			place.Config.Sandbox = &registrypb.Sandbox{Access: "rw", Docker: &registrypb.DockerSandbox{Workdir: "/workspace"}}
			if err := os.MkdirAll(place.Config.GetWorkdir(), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(place.Config.GetWorkdir(), "build.sh"), nil, 0o700); err != nil {
				t.Fatal(err)
			}
			container := &box{}
			tool := &shell.Tool{Container: func(docker.Box) shell.Sandbox { return container }}
			call := toolset.Call{Key: "k:tool:1:1", Name: shell.Name, Args: []byte(`{"command":"` + line + `"}`), Place: place}
			if class, asks := tool.Class(call), tool.Asks(call); class != c.class || asks != c.asks {
				t.Errorf("%s, %s: class %v, asks %t", name, line, class, asks)
			}
			r := tool.Run(t.Context(), call) // without a person to ask, which is a no
			if r.IsError == c.runs || (container.got != nil) != c.runs || c.runs && container.got.Shell != line || r.ExecUse != nil {
				t.Errorf("%s, %s: ran %+v, %+v", name, line, container.got, r)
			}
		}
	}
}
