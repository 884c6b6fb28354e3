package turns

import (
	"testing"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// S4-41, S4-62, X-41: who may have elevated commands is judged by the source of the message: an owner, a person who is
// listed, and no one else, in each of the modes; the mode comes from the conversation, else from the settings. S4-93: the
// end of a process is text of an outsider when an outsider's message started it.
func TestSpeaker(t *testing.T) {
	sources := []struct {
		from, content string
		owner, listed bool
		outsider      bool
	}{
		{from: "external:telegram:work:dm:1207:1207", owner: true},
		{from: "external:telegram:work:group:-100:1207", owner: true},
		{from: "external:console:cli:dm:cli:cli", owner: true},
		{from: "external:telegram:work:dm:31:31", listed: true, outsider: true},
		{from: "external:telegram:work:dm:99:99", outsider: true},
		{from: "external:slack:work:dm:1207:1207", outsider: true},
		{from: "external:telegram:work:dm:telegram:1207:x:1207", outsider: true}, // no address
		{from: "internal:dm:default:other", outsider: true},
		{from: "internal:process:p-1:a1", content: `{"from":"external:telegram:work:dm:1207:1207"}`},
		{from: "internal:process:p-1:a1", content: `{"from":"external:console:cli:dm:cli:cli"}`},
		{from: "internal:process:p-1:a1", content: `{"from":"external:telegram:work:dm:99:99"}`, outsider: true},
		{from: "internal:process:p-1:a1", content: `{"from":"internal:process:p-1:a1"}`, outsider: true},
		{from: "internal:process:p-1:a1", content: "text", outsider: true},
		{from: "external:telegram:work:dm:99:99", content: `{"from":"external:telegram:work:dm:1207:1207"}`, outsider: true},
		{from: "self", outsider: true},
		{from: "", outsider: true},
	}
	for _, mode := range []string{"off", "on", "ask", "full"} {
		for _, allow := range [][]string{nil, {config.FromOwners}, {"telegram:31"}, {config.FromOwners, "telegram:31"}} {
			for _, s := range sources {
				set := &agentdir.Agent{Owners: []string{"telegram:1207"}}
				set.Config.Tools.Elevated.AllowFrom = allow
				for _, se := range []*store.Session{nil, {}, {Elevated: mode}} {
					c := &registryv1.TurnConfig{Elevated: &registryv1.Elevated{Mode: mode}, ExternalGuard: &registryv1.ExternalGuard{Host: true}}
					if se != nil && se.Elevated != "" {
						c.Elevated.Mode = "off"
					}
					setForSpeaker(c, set, thread.Event{Source: s.from, Content: s.content}, se)
					want := false
					for _, a := range allow {
						want = want || a == config.FromOwners && s.owner || a == "telegram:31" && s.listed
					}
					if e := c.GetElevated(); e.GetAllowed() != want || e.GetMode() != mode {
						t.Errorf("%q, allow_from %q: allowed %t in mode %s, want %t in %s", s.from, allow, e.GetAllowed(), e.GetMode(), want, mode)
					}
					if got := c.GetExternalGuard().GetOutsider(); got != s.outsider {
						t.Errorf("%q is an outsider: %t (%s)", s.from, got, s.content)
					}
				}
			}
		}
	}
	c := &registryv1.TurnConfig{}
	setForSpeaker(c, &agentdir.Agent{}, thread.Event{Source: "external:console:cli:dm:cli:cli"}, &store.Session{Elevated: "full"})
	if c.GetElevated() != nil || c.GetExternalGuard() != nil {
		t.Errorf("settings without either have %v, %v", c.GetElevated(), c.GetExternalGuard())
	}
}
