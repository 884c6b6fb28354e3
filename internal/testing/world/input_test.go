package world_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// What must not come in is refused with the right code and a reason, and changes
// nothing (S0-05, S0-53, S0-55, S0-64, S0-68).
func TestBadInput(t *testing.T) {
	w := world.Start(t, quick())
	w.Create(t, "a1", "outbound: []")
	ok := say(t, w, "a1", "bob", "fine")[0]
	push := func(agent string, events ...*registryv1.NewEvent) error {
		_, err := w.Threads.PushEvents(t.Context(), &registryv1.PushEventsRequest{Thread: &registryv1.ThreadRef{AgentId: agent, ThreadId: "inbox"}, Events: events})
		return err
	}
	event := func(content string) *registryv1.NewEvent {
		return &registryv1.NewEvent{Source: world.Peer("bob"), Type: "message", Content: content}
	}
	peek := func(filter string) error {
		_, err := w.Threads.PeekEvents(t.Context(), &registryv1.PeekEventsRequest{Thread: &registryv1.ThreadRef{AgentId: "a1", ThreadId: "inbox"}, Filter: filter})
		return err
	}
	create := func(id string) error {
		_, err := w.Agents.CreateAgent(t.Context(), &registryv1.CreateAgentRequest{AgentId: id})
		return err
	}
	long := strings.Repeat("a", 65)
	for _, c := range []struct {
		name   string
		err    error
		code   codes.Code
		reason string
	}{
		{"over 1 MiB", push("a1", event(strings.Repeat("x", 1<<20+1))), codes.InvalidArgument, fault.EventTooLarge},
		{"1 MiB in a batch over 3 MiB", push("a1", event(strings.Repeat("x", 1<<20)), event(strings.Repeat("x", 1<<20)), event(strings.Repeat("x", 1<<20))), codes.InvalidArgument, fault.EventTooLarge},
		{"one bad in a batch", push("a1", event("{}"), &registryv1.NewEvent{Source: world.Peer("bob"), Type: "rumour", Content: "{}"}), codes.InvalidArgument, fault.InvalidArgument},
		{"not UTF-8", push("a1", event("\xff\xfe")), codes.Internal, fault.Internal}, // the wire format refuses it
		{"no source", push("a1", &registryv1.NewEvent{Type: "message", Content: "{}"}), codes.InvalidArgument, fault.InvalidArgument},
		{"somebody else's word", push("a1", &registryv1.NewEvent{Source: "self", Type: "message", Content: "{}"}), codes.PermissionDenied, fault.SourceForbidden},
		{"nobody", push("nobody", event("{}")), codes.NotFound, fault.AgentNotFound},
		{"long id, push", push(long, event("{}")), codes.InvalidArgument, fault.InvalidArgument},
		{"long id", create(long), codes.InvalidArgument, fault.InvalidArgument},
		{"path as id", create("../a2"), codes.InvalidArgument, fault.InvalidArgument},
		{"empty id", create(""), codes.InvalidArgument, fault.InvalidArgument},
		{"sub-select", peek("id IN (SELECT id FROM events)"), codes.InvalidArgument, fault.FilterInvalid},
		{"second statement", peek("1=1; DROP TABLE events"), codes.InvalidArgument, fault.FilterInvalid},
		{"column of ours", peek("content = 'x'"), codes.InvalidArgument, fault.FilterInvalid},
	} {
		if f := fault.From(c.err); c.err == nil || f.Code != c.code || f.Reason != c.reason {
			t.Errorf("%s: %v %s, want %v %s: %v", c.name, f.Code, f.Reason, c.code, c.reason, c.err)
		} else if f.What == "" || len(f.What) > 500 {
			t.Errorf("%s: says %q", c.name, f.What)
		}
	}
	if n := len(w.Events(t, "a1", "inbox", "")); n != 1 {
		t.Errorf("%d events in the inbox", n)
	}
	list, err := w.Agents.ListAgents(t.Context(), &registryv1.ListAgentsRequest{})
	if err != nil || len(list.GetAgents()) != 1 {
		t.Errorf("agents %v, %v", list, err)
	}
	// The largest that is allowed gets its fate, and the next is answered.
	big := w.Say(t, "a1", world.Peer("bob"), strings.Repeat("y", 1<<20-len(`{"text":""}`)))
	if big.GetFate() != replied || big.GetThreadId() != ok.GetThreadId() {
		t.Errorf("1 MiB: %v, %s", big.GetFate(), big.GetError())
	}
	say(t, w, "a1", "bob", "after")
}

// A program that writes to the inbox file itself can leave what no caller could
// push: it is dead with a reason, at once, and the next message is answered.
func TestForeignNonsense(t *testing.T) {
	w := world.Start(t, quick())
	w.Create(t, "a1", "outbound: []")
	bob := world.Peer("bob")
	for _, c := range []struct {
		name, source, typ, content string
		fate                       registryv1.Fate
	}{
		{"not UTF-8", bob, "message", "CAST(X'7B2274657874223A22FFFE227D' AS TEXT)", deadTurn},
		{"a blob", bob, "message", "X'00FF'", deadTurn},
		{"source not UTF-8", "'||CAST(X'65787465726E616C3AFF' AS TEXT)||'", "message", "'{}'", deadTurn},
		{"no source", "", "message", "'{}'", deadTurn},
		{"the agent's own word", "self", "message", "'{}'", deadTurn},
		{"a record", bob, "record", "'{}'", registryv1.Fate_FATE_NOT_A_MESSAGE},
		{"over 1 MiB", bob, "message", "hex(zeroblob(600000))", deadTurn},
		{"no JSON", bob, "message", "'plain words'", replied},
	} {
		id := w.InsertOutside(t, "a1", "INSERT INTO events(source,type,content) VALUES('"+c.source+"','"+c.typ+"',"+c.content+")")
		turn := w.Await(t, "a1", id)
		if turn.GetFate() != c.fate || (c.fate == deadTurn) != (turn.GetError() != "") {
			t.Errorf("%s: told %v", c.name, turn)
		}
	}
	say(t, w, "a1", "bob", "after")
	if n := len(w.Events(t, "a1", "inbox", "")); n != 9 { // all can be read
		t.Errorf("%d events", n)
	}
}

const deadTurn = registryv1.Fate_FATE_DEAD
