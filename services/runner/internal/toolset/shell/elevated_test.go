package shell_test

import (
	"strings"
	"testing"

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
