package registry_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

const (
	bobsThread = "threads/peers/main-bob"
	bobsSource = "external:telegram:main:dm:bob:bob"
)

// command pushes one, as the owner's services do.
func pushCommand(ctx context.Context, w *backendtest.World, from, name, args string) (*registryv1.PushEventsResponse, error) {
	return w.Threads.PushEvents(ctx, &registryv1.PushEventsRequest{
		Thread: &registryv1.ThreadRef{AgentId: "a1", ThreadId: "inbox"},
		Events: []*registryv1.NewEvent{{
			Source: from, Type: "message", Content: `{"text":"/` + name + ` <` + args + `>","more":1}`, Command: &registryv1.ChatCommand{Name: name, Args: args},
		}},
	})
}

// A command is a turn without a model. The conversation gets a record in place of the message, the
// change of the session with it, and one answer; none of them is in the next prompt.
func TestCommands(t *testing.T) { backendtest.Each(t, testCommands) }

func testCommands(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	replaceConfig(t, o, w, "a1", func(old string) string {
		return old + "\nmodel: {primary: work/m1, fallbacks: [work/m2, other/m3, third/m3]}\ntools: {elevated: {enabled: true, allow_from: ['telegram:carol']}}\n"
	})
	run := func(from, name, args string) *registryv1.BeginTurnResponse {
		t.Helper()
		backendtest.Must2(pushCommand(t.Context(), w, from, name, args))
		return claimed(t, w, "a1")[0]
	}
	w.Push("a1", "bob", "one", "")
	first := claimed(t, w, "a1")[0]
	if first.GetCommand() != nil || first.GetAnswer() != "" {
		t.Errorf("a message is the command %v", first.GetCommand())
	}
	for _, c := range []struct{ name, args, answer string }{
		{"model", "", "Model: as the settings of the agent say.\nModels: work/m1, work/m2, other/m3, third/m3."},
		{"model", "other/m3", "Model: other/m3."},
		{"model", "default", "Model: as the settings of the agent say."},
		{"model", "m2", "Model: work/m2."},
		{"model", "m3", "\"m3\" is none of the models that can be chosen.\nModels: work/m1, work/m2, other/m3, third/m3."},
		{"model", "", "Model: work/m2.\nModels: work/m1, work/m2, other/m3, third/m3."},
		{"think", "2048", "Thinking: 2048."},
		{"think", "much", "Thinking is \"much\": write off, minimal, low, medium, high, xhigh, adaptive or a number of tokens from 1024, or nothing for what the settings say."},
		{"think", "", "Thinking: 2048."},
		{"think", "high", "Thinking: high."},
		{"elevated", "on", "You may not change this: tools.elevated.allow_from of the settings says who may."},
		{"elevated", "default", "You may not change this: tools.elevated.allow_from of the settings says who may."},
		{"elevated", "", "Elevated: as the settings of the agent say."},
		{"think", "default", "Thinking: as the settings of the agent say."},
		{"compact", "", ""}, // the runner's
		{"stop", "", ""},
	} {
		if got := run(bobsSource, c.name, c.args); got.GetAnswer() != c.answer || got.GetCommand().GetName() != c.name || got.GetCommand().GetArgs() != c.args {
			t.Errorf("/%s %s: %v\n%q, want\n%q", c.name, c.args, got.GetCommand(), got.GetAnswer(), c.answer)
		}
	}
	s := session(t, w, bobsKey).GetOverrides()
	if s.GetModel() != "work/m2" || s.GetThinking() != "" || s.GetElevated() != "" {
		t.Errorf("the session: %v", s)
	}
	w.Push("a1", "bob", "two", "")
	next := claimed(t, w, "a1")[0]
	if n := len(next.GetTail()); n != 3 || next.GetConfig().GetModel() != "m2" || next.GetSessionId() != first.GetSessionId() {
		t.Errorf("the next message has %d events before it, want 3: %v", n, next.GetTail())
	}
	if got := run("external:telegram:main:dm:carol:carol", "elevated", "ask"); got.GetAnswer() != "Elevated: ask." {
		t.Errorf("who may: %q", got.GetAnswer())
	}

	fresh := run(bobsSource, "new", "")
	if fresh.GetSessionId() == first.GetSessionId() || !strings.HasPrefix(fresh.GetAnswer(), "New session.") || len(fresh.GetTail()) != 0 {
		t.Errorf("/new: %v", fresh)
	}
	again := run(bobsSource, "new", "a <b>\u2028")
	if again.GetSessionId() == fresh.GetSessionId() || again.GetCommand() != nil || again.GetAnswer() != "" || len(again.GetTail()) != 1 ||
		again.GetInbound().GetType() != "message" || again.GetInbound().GetContent() != `{"more":1,"text":"a <b>\u2028"}` {
		t.Errorf("/new TEXT: %v", again)
	}
	reset := run(bobsSource, "reset", "x")
	if reset.GetSessionId() == again.GetSessionId() || reset.GetAnswer() == "" {
		t.Errorf("/reset: %v", reset)
	}
	var kinds, epochs []string
	for _, e := range threadOf(t, w, "a1", bobsThread) {
		kind := e.GetType()
		if e.GetSubtype() != "" {
			kind += "/" + e.GetSubtype()
		}
		if e.GetSource() == "self" {
			kind = "self " + kind
		}
		switch kind {
		case "self record/session":
			epochs = append(epochs, e.GetContent()[strings.Index(e.GetContent(), `"reason"`):])
		case "record/command":
			if !strings.HasPrefix(e.GetContent(), `{"command":{"name":"`) || !strings.Contains(e.GetContent(), `"more":1,"text":"/`) || e.GetSource() != bobsSource {
				t.Errorf("recorded %s of %s", e.GetContent(), e.GetSource())
			}
		}
		kinds = append(kinds, kind)
	}
	all := strings.Join(kinds, ", ")
	if want := strings.Repeat("record/command, self message/command, ", 15); !strings.Contains(all, want+"message, self message, self record/session, record/command") {
		t.Errorf("the conversation: %s", all)
	}
	if want := "self record/session, record/command, self message/command, self record/session, message, self message, self record/session, record/command, self message/command"; !strings.HasSuffix(all, want) {
		t.Errorf("the epochs: %s", all)
	}
	if got := strings.Join(epochs, " "); got != `"reason":"new","by":"command"} "reason":"new","by":"command"} "reason":"reset","by":"command"}` {
		t.Errorf("the epochs: %s", got)
	}
}

// A command that was claimed before changes nothing a second time, and its account says that it is one.
func TestCommandClaimedAgain(t *testing.T) { backendtest.Each(t, testCommandClaimedAgain) }

func testCommandClaimedAgain(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	w.Push("a1", "bob", "one", "")
	claimed(t, w, "a1")
	id := backendtest.Must2(pushCommand(t.Context(), w, bobsSource, "think", "2048")).GetEventIds()[0]
	first := w.Due(backendtest.KindRun, "r1", 0)[0].GetLease()
	ctx := backendtest.Under(t.Context(), first)
	p := backendtest.Must2(w.Turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: "a1"})).GetEvents()[0]
	if p.GetCommand().GetName() != "think" || p.GetFromOwner() || p.GetSessionKey() != bobsKey {
		t.Errorf("the batch has %v", p)
	}
	begun := begin(ctx, t, w, "a1", p)
	backendtest.Must2(w.Sessions.PatchSession(t.Context(), &registryv1.PatchSessionRequest{Key: bobsKey, Thinking: new("off")}))
	again := backendtest.Must2(w.Turns.BeginTurn(ctx, &registryv1.BeginTurnRequest{
		AgentId: "a1", InboxId: p.GetEvent().GetId(), Key: p.GetKey(), ThreadId: p.GetThreadId(), Alone: true,
	}))
	if begun.GetAnswer() != "Thinking: 2048." || again.GetAnswer() != "Thinking: off." || again.GetInbound().GetId() != begun.GetInbound().GetId() {
		t.Errorf("first %q, again %q", begun.GetAnswer(), again.GetAnswer())
	}
	backendtest.Must2(w.Turns.FinishTurn(ctx, &registryv1.FinishTurnRequest{
		AgentId: "a1", InboxId: id, Key: p.GetKey(), ThreadId: p.GetThreadId(), Fate: registryv1.Fate_FATE_REPLIED, Text: "answer",
	}))
	turn := backendtest.Must2(w.Turns.GetTurn(t.Context(), &registryv1.GetTurnRequest{AgentId: "a1", InboxId: id})).GetTurn()
	if turn.GetDelivery().GetEventId() != turn.GetReplyEventId() || turn.GetReplyEventId() == 0 {
		t.Errorf("the answer is not delivered: %v", turn)
	}
	if turn.GetCommand().GetName() != "think" || turn.GetCommand().GetArgs() != "2048" {
		t.Errorf("the account has %v", turn.GetCommand())
	}
}

// Only commands that an agent carries out are events, of people, in an inbox; what is refused is not stored.
func TestRefusedCommands(t *testing.T) { backendtest.Each(t, testRefusedCommands) }

func testRefusedCommands(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	for _, c := range []struct {
		source, name, args string
		code               codes.Code
	}{
		{bobsSource, "notify", "", codes.InvalidArgument},
		{bobsSource, "exec", "ls", codes.InvalidArgument},
		{bobsSource, "system", "", codes.InvalidArgument},
		{bobsSource, "status", "", codes.InvalidArgument},
		{bobsSource, "approve", "ap-1", codes.InvalidArgument},
		{bobsSource, "nothing", "", codes.InvalidArgument},
		{bobsSource, "", "", codes.InvalidArgument},
		{bobsSource, "New", "", codes.InvalidArgument},
		{bobsSource, "new", strings.Repeat("x", 64<<10+1), codes.InvalidArgument},
		{"internal:dm:default:a1", "new", "", codes.PermissionDenied},
	} {
		if _, err := pushCommand(t.Context(), w, c.source, c.name, c.args); status.Code(err) != c.code || fault.From(err).Fix == "" {
			t.Errorf("/%s of %s: %v", c.name, c.source, err)
		}
	}
	_, err := w.Threads.PushEvents(t.Context(), &registryv1.PushEventsRequest{
		Thread: &registryv1.ThreadRef{AgentId: "a1", ThreadId: "inbox"},
		Events: []*registryv1.NewEvent{{Source: bobsSource, Type: "record", Content: "{}", Command: &registryv1.ChatCommand{Name: "new"}}},
	})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("a record: %v", err)
	}
	if n := len(threadOf(t, w, "a1", "inbox")); n != 0 {
		t.Errorf("%d events were stored", n)
	}
}

// Erasing a peer takes their commands out of the inbox and of the conversation that others share.
func TestCommandsAreErased(t *testing.T) { backendtest.Each(t, testCommandsAreErased) }

func testCommandsAreErased(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	replaceConfig(t, o, w, "a1", func(old string) string { return old + "\noutbound: []\n" })
	const key, group = "agent:a1:telegram:group:g1", "threads/sessions/telegram.group-g1"
	for _, e := range []*registryv1.NewEvent{
		{Content: `{"text":"hello"}`},
		{Content: `{"text":"/model sesame"}`, Command: &registryv1.ChatCommand{Name: "model", Args: "sesame"}},
		{Content: `{"text":"/new open sesame"}`, Command: &registryv1.ChatCommand{Name: "new", Args: "open sesame"}},
	} {
		e.Source, e.Type, e.SessionKey = "external:telegram:main:group:g1:bob", "message", key
		backendtest.Must2(w.Threads.PushEvents(t.Context(), &registryv1.PushEventsRequest{
			Thread: &registryv1.ThreadRef{AgentId: "a1", ThreadId: "inbox"}, Events: []*registryv1.NewEvent{e},
		}))
		claimed(t, w, "a1")
	}
	has := func() (n int) {
		for _, id := range []string{"inbox", group} {
			for _, e := range threadOf(t, w, "a1", id) {
				n += strings.Count(e.GetContent(), "sesame")
			}
		}
		for id := int64(1); id <= 3; id++ {
			turn := backendtest.Must2(w.Turns.GetTurn(t.Context(), &registryv1.GetTurnRequest{AgentId: "a1", InboxId: id})).GetTurn()
			n += strings.Count(turn.GetCommand().GetArgs(), "sesame")
		}
		return n
	}
	if n := has(); n != 7 {
		t.Errorf("stored %d times, want 7", n)
	}
	w.StopAgent("a1")
	backendtest.Must2(w.Erase("a1", "bob", true))
	if n := has(); n != 0 {
		t.Errorf("%d times after it was erased", n)
	}
}
