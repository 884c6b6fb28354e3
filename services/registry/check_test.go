package registry_test

import (
	"testing"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// A check says what would become of a message or a command, and stores nothing; commands are for those
// who may use them.
func TestCheck(t *testing.T) { backendtest.Each(t, testCheck) }

func testCheck(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("main")
	setHome(t, o, w, private)
	ask := func(check bool, peer, key string, command *registryv1.ChatCommand) *registryv1.AcceptedMessage {
		t.Helper()
		r, err := w.Channels.AcceptMessages(t.Context(), &registryv1.AcceptMessagesRequest{Account: "wh", Check: check, Messages: []*registryv1.InboundMessage{{
			Key: key, Kind: "dm", SessionId: peer, PeerId: peer, PeerName: peer, Text: "hello", MessageId: key, Command: command,
		}}})
		return backendtest.Must(t, r, err).GetResults()[0]
	}
	for _, c := range []struct {
		name, peer string
		check      bool
		command    string
		outcome    registryv1.AcceptOutcome
		reason     string
		owner      bool
	}{
		{"a message", "ann", true, "", registryv1.AcceptOutcome_ACCEPT_OUTCOME_ACCEPTED, "", false},
		{"of an owner", "boss", true, "", registryv1.AcceptOutcome_ACCEPT_OUTCOME_ACCEPTED, "", true},
		{"of a stranger", "eve", true, "", paired, fault.PeerRefused, false},
		{"a command", "ann", true, "status", registryv1.AcceptOutcome_ACCEPT_OUTCOME_ACCEPTED, "", false},
		{"a command of owners", "ann", true, "approve", registryv1.AcceptOutcome_ACCEPT_OUTCOME_REFUSED, fault.CommandForbidden, false},
		{"the same by one", "boss", true, "approve", registryv1.AcceptOutcome_ACCEPT_OUTCOME_ACCEPTED, "", true},
		{"what the gateway answers is not stored", "ann", false, "status", registryv1.AcceptOutcome_ACCEPT_OUTCOME_REFUSED, fault.InvalidArgument, false},
		{"what is no command", "ann", false, "notify", registryv1.AcceptOutcome_ACCEPT_OUTCOME_REFUSED, fault.InvalidArgument, false},
	} {
		var command *registryv1.ChatCommand
		if c.command != "" {
			command = &registryv1.ChatCommand{Name: c.command}
		}
		r := ask(c.check, c.peer, c.name, command)
		if r.GetOutcome() != c.outcome || r.GetReason() != c.reason || r.GetOwner() != c.owner || r.GetInboxId() != 0 || r.GetCode() != "" {
			t.Errorf("%s: %v", c.name, r)
		}
		if c.reason == fault.CommandForbidden && !r.GetNotify() {
			t.Errorf("%s: the person is not answered", c.name)
		}
	}
	if list := pairings(t, w); len(list) != 0 {
		t.Errorf("a check has paired %q", list)
	}
	turns, err := w.Turns.ListTurns(t.Context(), &registryv1.ListTurnsRequest{AgentId: "main", PageSize: 100})
	if n := len(backendtest.Must(t, turns, err).GetTurns()); n != 0 {
		t.Errorf("%d messages are stored", n)
	}
	stop := &registryv1.ChatCommand{Name: "stop"}
	if first, again, check := ask(false, "ann", "k", stop), ask(false, "ann", "k", stop), ask(true, "ann", "k", stop); first.GetOutcome() != registryv1.AcceptOutcome_ACCEPT_OUTCOME_ACCEPTED ||
		again.GetOutcome() != registryv1.AcceptOutcome_ACCEPT_OUTCOME_DUPLICATE || check.GetOutcome() != registryv1.AcceptOutcome_ACCEPT_OUTCOME_DUPLICATE || again.GetRunId() != first.GetRunId() {
		t.Errorf("%v\n%v\n%v", first, again, check)
	}
	p, err := w.Turns.ListTurns(t.Context(), &registryv1.ListTurnsRequest{AgentId: "main", PageSize: 100})
	if n := len(backendtest.Must(t, p, err).GetTurns()); n != 1 {
		t.Errorf("%d messages are stored", n)
	}
}

// The settings of the home decide who may use a command.
func TestCommandsAllow(t *testing.T) { backendtest.Each(t, testCommandsAllow) }

func testCommandsAllow(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("main")
	setHome(t, o, w, private+"commands: {allow: {approve: none, elevated: allowed, model: owners}}\n")
	for _, c := range []struct {
		command string
		owner   bool // may
		other   bool
	}{{"approve", false, false}, {"elevated", true, true}, {"model", true, false}, {"deny", true, false}, {"status", true, true}} {
		for peer, may := range map[string]bool{"boss": c.owner, "ann": c.other} {
			r, err := w.Channels.AcceptMessages(t.Context(), &registryv1.AcceptMessagesRequest{Account: "wh", Check: true, Messages: []*registryv1.InboundMessage{{
				Key: c.command + peer, Kind: "dm", SessionId: peer, PeerId: peer, PeerName: peer, Text: "/" + c.command, MessageId: c.command, Command: &registryv1.ChatCommand{Name: c.command},
			}}})
			got := backendtest.Must(t, r, err).GetResults()[0]
			if may != (got.GetOutcome() == registryv1.AcceptOutcome_ACCEPT_OUTCOME_ACCEPTED) || !may && got.GetReason() != fault.CommandForbidden {
				t.Errorf("/%s of %s: %v", c.command, peer, got)
			}
		}
	}
}
