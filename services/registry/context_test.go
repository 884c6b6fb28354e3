package registry_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// inGroup is a message of the group g1, whose id is its key.
func inGroup(key, peer, text string) *registryv1.InboundMessage {
	return &registryv1.InboundMessage{Key: key, Kind: "group", SessionId: "g1", PeerId: peer, PeerName: strings.ToUpper(peer), Text: text, MessageId: key}
}

// heard are the texts of the context that a claim has, with a mark at edits.
func heard(begun *registryv1.BeginTurnResponse) (out []string) {
	for _, e := range begun.GetTail() {
		if e.GetType() == "record" {
			_, text, _ := strings.Cut(e.GetContent(), `"text":"`)
			text, _, _ = strings.Cut(text, `"`)
			if strings.Contains(e.GetContent(), `"edited":true`) {
				text += " (edited)"
			}
			out = append(out, text)
		}
	}
	return out
}

// S4-06: messages of a group that do not address the agent are context: they are stored once, start no turn, and precede the
// next message that does, the newest of them, those since the last reply. So are messages of bots that are not listed.
func TestContext(t *testing.T) { backendtest.Each(t, testContext) }

func testContext(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("main")
	const home = `agents: {list: [{id: main, group_chat: {mention_patterns: ['^max\b', '\bmarlene$'], history_limit: 3}}]}
channels:
  wh: {type: webhook, dm: open, allow_from: [friendly], groups: {allow: ['*'], mode: %s}}
`
	setHome(t, o, w, fmt.Sprintf(home, "mention"))
	bot := func(m *registryv1.InboundMessage) *registryv1.InboundMessage {
		m.Bot = true
		return m
	}
	mention := func(m *registryv1.InboundMessage) *registryv1.InboundMessage {
		m.Mentioned = true
		return m
	}
	renamed := inGroup("2", "bob", "other words")
	renamed.PeerName = "Robert"
	dm := inbound("10", "loop", "hello")
	for _, c := range []struct {
		m    *registryv1.InboundMessage
		want registryv1.AcceptOutcome
	}{
		{inGroup("1", "ann", "first"), noted},
		{inGroup("2", "bob", "second"), noted},
		{inGroup("2", "bob", "second"), duplicate},
		{renamed, duplicate},
		{inGroup("3", "ann", "third, to [max](https://example.com/max)"), noted},
		{inGroup("4", "ann", "see https://example.com/ for marlene's"), noted},
		{mention(bot(inGroup("5", "robot", "fifth"))), noted},
		{bot(dm), refused},
		{inGroup("6", "ann", "_*Max*_, what did Bob say?"), accepted},
		{inGroup("7", "ann", "I ask MARLENE"), accepted},
		{mention(bot(inGroup("8", "friendly", "hello"))), accepted},
	} {
		got := accept(t, w, c.m)
		if got.GetOutcome() != c.want || c.want == noted && (got.GetThreadId() != "threads/sessions/webhook.group-g1" || got.GetSessionKey() != "agent:main:webhook:group:g1" || got.GetInboxId() != 0) {
			t.Errorf("%s: %v", c.m.GetText(), got)
		}
	}
	if n := len(inboxOf(t, w, "main")); n != 3 {
		t.Errorf("%d messages in the inbox", n)
	}
	turns := claimed(t, w, "main")
	if got := heard(turns[0]); !slices.Equal(got, []string{"third, to [max](https://example.com/max)", "see https://example.com/ for marlene's", "fifth"}) {
		t.Errorf("before the first: %q", got)
	}
	if got := heard(turns[1]); len(got) != 0 {
		t.Errorf("after a reply: %q", got)
	}
	// Context starts no work, and is a repeat also when it would be accepted now.
	accept(t, w, inGroup("11", "ann", "later"))
	status, err := w.Agents.GetAgentStatus(t.Context(), &registryv1.GetAgentStatusRequest{AgentId: "main"})
	if s := backendtest.Must(t, status, err).GetInbox(); s.GetPending() != 0 || len(inboxOf(t, w, "main")) != 3 {
		t.Errorf("work for context: %v", s)
	}
	setHome(t, o, w, fmt.Sprintf(home, "always"))
	if got := accept(t, w, inGroup("11", "ann", "later")); got.GetOutcome() != duplicate || got.GetInboxId() != 0 {
		t.Errorf("context again, in another mode: %v", got)
	}
	if got := accept(t, w, inGroup("12", "ann", "now")); got.GetOutcome() != accepted {
		t.Errorf("in mode always: %v", got)
	}
	if got := heard(claimed(t, w, "main")[0]); !slices.Equal(got, []string{"later"}) {
		t.Errorf("before the last: %q", got)
	}
	// The size of context is bounded, whatever its escapes are.
	setHome(t, o, w, fmt.Sprintf(home, "mention"))
	for i, text := range []string{strings.Repeat("☺", 9000), strings.Repeat("\"\n", 9000)} {
		long := accept(t, w, inGroup(fmt.Sprint("long", i), "ann", text))
		p, err := w.Threads.PeekEvents(t.Context(), &registryv1.PeekEventsRequest{Thread: &registryv1.ThreadRef{AgentId: "main", ThreadId: long.GetThreadId()}, Tail: true, Limit: 1})
		if e := backendtest.Must(t, p, err).GetEvents()[0]; len(e.GetContent()) > 8<<10 || len(e.GetContent()) < 4<<10 || !strings.Contains(e.GetContent(), "000 characters; the rest was cut]") {
			t.Errorf("%d bytes: %.200s", len(e.GetContent()), e.GetContent())
		}
	}
	// A conversation that is not the group's own gets no context.
	setHome(t, o, w, "routing: {groups: same}\n"+fmt.Sprintf(home, "mention"))
	if got := accept(t, w, inGroup("13", "ann", "hello")); got.GetOutcome() != refused || got.GetReason() != fault.NotAddressed {
		t.Errorf("with routing.groups same: %v", got)
	}
}

// The later version of a message is context of its conversation, of a direct one too; that of a message that is not stored is
// refused, and it starts no turn.
func TestEdits(t *testing.T) { backendtest.Each(t, testEdits) }

func testEdits(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("main")
	setHome(t, o, w, account)
	edit := func(m *registryv1.InboundMessage, of string) *registryv1.InboundMessage {
		m.EditOf = of
		return m
	}
	for _, c := range []struct {
		m    *registryv1.InboundMessage
		want registryv1.AcceptOutcome
	}{
		{inbound("1", "ann", "tea"), accepted},
		{edit(inbound("1:e1", "ann", "coffee"), "1"), noted},
		{edit(inbound("1:e1", "ann", "coffee"), "1"), duplicate},
		{edit(inbound("2:e1", "ann", "milk"), "2"), refused},
		{inGroup("3", "bob", "wine"), noted},
		{edit(inGroup("3:e1", "bob", "beer"), "3"), noted},
		{inbound("4", "ann", "so?"), accepted},
	} {
		if got := accept(t, w, c.m); got.GetOutcome() != c.want || c.want == noted && got.GetThreadId() == "" {
			t.Errorf("%s: %v", c.m.GetKey(), got)
		}
	}
	turns := claimed(t, w, "main")
	if len(turns) != 2 || !slices.Equal(heard(turns[0]), []string{"coffee (edited)"}) {
		t.Errorf("the turns of ann: %d, with %q", len(turns), heard(turns[0]))
	}
	mention := inGroup("5", "bob", "well?")
	mention.Mentioned = true
	accept(t, w, mention)
	if got := heard(claimed(t, w, "main")[0]); !slices.Equal(got, []string{"wine", "beer (edited)"}) {
		t.Errorf("in the group: %q", got)
	}
}

// I21: context that is delivered again after its binding changed is found where it was.
func TestContextAfterRebinding(t *testing.T) { backendtest.Each(t, testContextAfterRebinding) }

func testContextAfterRebinding(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a0")
	w.Create("a1")
	setHome(t, o, w, account)
	bind(t, w, binding("a0", &registryv1.BindingMatch{AccountId: "*"}))
	first := accept(t, w, inGroup("1", "ann", "hello"))
	bind(t, w, binding("a1", &registryv1.BindingMatch{AccountId: "*"}))
	again := accept(t, w, inGroup("1", "ann", "hello"))
	if first.GetOutcome() != noted || again.GetOutcome() != duplicate || again.GetAgentId() != "a0" || again.GetSessionKey() != first.GetSessionKey() || again.GetThreadId() != first.GetThreadId() {
		t.Errorf("first %v, again %v", first, again)
	}
}

// Export and erase of a peer cover what the peer wrote in a group without addressing the agent, and its pairing, and
// nothing of others; one who is blocked stays blocked.
func TestErasedContext(t *testing.T) { backendtest.Each(t, testErasedContext) }

func testErasedContext(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("main")
	setHome(t, o, w, "channels:\n  wh: {type: webhook, groups: {allow: ['*']}}\n")
	for _, who := range []string{"ann", "bob", "eve"} {
		m := inbound("dm of "+who, who, "hello")
		m.PeerName = "name of " + who
		code := accept(t, w, m).GetCode()
		decision := pairApprove
		if who == "eve" {
			decision = pairBlock
		}
		if _, err := resolve(t, w, &registryv1.ResolvePairingRequest{Code: code, Decision: decision}); err != nil {
			t.Fatal(err)
		}
	}
	accept(t, w, inGroup("1", "ann", "words of ann"))
	accept(t, w, inGroup("2", "bob", "words of bob"))
	out := string(w.Export("main", "bob"))
	if !strings.Contains(out, "words of bob") || !strings.Contains(out, "name of bob") || strings.Contains(out, "of ann") {
		t.Errorf("exported: %s", out)
	}
	w.StopAgent("main")
	for range 2 {
		if _, err := w.Erase("main", "bob", true); err != nil && !fault.Is(err, fault.ThreadNotFound) {
			t.Fatal(err)
		}
	}
	p, err := w.Threads.PeekEvents(t.Context(), &registryv1.PeekEventsRequest{Thread: &registryv1.ThreadRef{AgentId: "main", ThreadId: "threads/sessions/webhook.group-g1"}})
	events := backendtest.Must(t, p, err).GetEvents()
	if len(events) != 2 || !strings.Contains(events[0].GetContent(), "words of ann") || events[1].GetContent() != "[erased]" {
		t.Errorf("erased: %v", events)
	}
	if got := pairings(t, w); !slices.Equal(got, []string{"eve blocked 1", "ann approved 1"}) {
		t.Errorf("pairings %q", got)
	}
	if o.DSN == "" {
		searchFiles(t, o.Home, "name of bob")
	}
}
