package toolset

import (
	"strconv"
	"strings"

	"github.com/theclaw/agents/internal/toolpolicy"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

func layerOf(l *registrypb.ToolLayer) toolpolicy.Layer {
	return toolpolicy.Layer{
		Number: int(l.GetNumber()), Name: l.GetName(), Origin: l.GetOrigin(), Allow: l.GetAllow(), Deny: l.GetDeny(), Provider: l.GetProvider(),
	}
}

// ForModel leaves those layers in the settings of a turn that hold for its model. Without it, the layers
// of all providers deny tools.
func ForModel(c *registrypb.TurnConfig, provider, model string) {
	all := make([]toolpolicy.Layer, len(c.GetToolLayers()))
	for n, l := range c.GetToolLayers() {
		all[n] = layerOf(l)
	}
	c.ToolLayers = nil
	for _, l := range toolpolicy.ForModel(all, provider, model) {
		c.ToolLayers = append(c.ToolLayers, &registrypb.ToolLayer{Number: int32(l.Number), Name: l.Name, Origin: l.Origin, Allow: l.Allow, Deny: l.Deny})
	}
}

// titled is a layer for people, such as: 3 home.
func titled(l toolpolicy.Layer) string {
	if l.Number == 0 {
		return l.Name
	}
	return strconv.Itoa(l.Number) + " " + l.Name
}

// decided is a decision of a layer for people, with the setting that has the rule.
func decided(l toolpolicy.Layer, rule string) string {
	title := titled(l)
	if l.Number > 0 {
		title = "layer " + title
	}
	if l.Origin == "" {
		return title + ": " + rule
	}
	if list, ok := strings.CutPrefix(rule, "deny "); ok {
		return title + ": " + l.Origin + ".deny " + list
	}
	return title + ": no entry of " + l.Origin + ".allow"
}

// allowedBy are the layers that allow a tool, for people.
func (s Set) allowedBy(n int) (names []string) {
	t := policyTool(s.all.specs[n])
	for _, l := range s.layers {
		if toolpolicy.New([]toolpolicy.Layer{l}).Decide(t).Allowed {
			names = append(names, titled(l))
		}
	}
	return names
}

// policyTool is what policies know of a tool.
func policyTool(s Spec) toolpolicy.Tool {
	t := toolpolicy.Tool{Name: toolpolicy.Canonical(s.Name), Group: s.Group}
	if s.Server != "" {
		t.Group = toolpolicy.GroupMCP
	}
	return t
}
