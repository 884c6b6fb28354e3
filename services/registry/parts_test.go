package registry_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// S1-53, S4-40, S1-48: an owner in a direct conversation gets arguments, results and thinking before a reply, other
// people the names of the tools, and what is no person on a channel gets the reply alone. With anything before it a
// reply is not sent in blocks.
func TestReplyParts(t *testing.T) { backendtest.Each(t, testReplyParts) }

func testReplyParts(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("main")
	w.Create("a2")
	n := 0
	via := func(m *registryv1.InboundMessage, peer string) func() {
		return func() {
			n++
			m := &registryv1.InboundMessage{Key: fmt.Sprint(n), Kind: m.GetKind(), SessionId: m.GetSessionId(), PeerId: peer, PeerName: peer, Text: "x", MessageId: fmt.Sprint(n)}
			if got := accept(t, w, m); got.GetOutcome() != accepted {
				t.Fatal(got)
			}
		}
	}
	from := func(source string) func() {
		return func() {
			t.Helper()
			backendtest.Must2(w.Threads.PushEvents(t.Context(), &registryv1.PushEventsRequest{
				Thread: &registryv1.ThreadRef{AgentId: "main", ThreadId: "inbox"}, Events: []*registryv1.NewEvent{{Source: source, Type: "message", Content: `{"text":"x"}`}},
			}))
		}
	}
	senders := map[string]func(){
		"owner":        via(&registryv1.InboundMessage{Kind: "dm", SessionId: "boss"}, "boss"),
		"guest":        via(&registryv1.InboundMessage{Kind: "dm", SessionId: "ann"}, "ann"),
		"owner, group": via(&registryv1.InboundMessage{Kind: "group", SessionId: "g1"}, "boss"),
		"guest, group": via(&registryv1.InboundMessage{Kind: "group", SessionId: "g1"}, "ann"),
		"xgw owner":    from("external:telegram:main:dm:b7:b7"),
		"xgw group":    from("external:telegram:main:group:g:b7"),
		"console":      from("external:console:cli:dm:cli:cli"),
		"agent":        from("internal:dm:default:a2"),
		"schedule":     from("external:schedule:daily:dm:daily:daily"),
	}
	for _, c := range []struct{ set, from, want string }{
		{"off off", "owner", "off off blocks"},
		{"on off", "owner", "on off"},
		{"full stream", "owner", "full stream"},
		{"full block", "owner", "full block"},
		{"off block", "owner", "off block"},
		{"off stream", "owner", "off stream blocks"},
		{"off stream", "guest", "off stream blocks"},
		{"full block", "guest", "names off"},
		{"on stream", "guest", "names stream"},
		{"off block", "guest", "off off blocks"},
		{"full block", "owner, group", "names off"},
		{"full block", "guest, group", "names off"},
		{"full block", "xgw owner", "full block"},
		{"full block", "xgw group", "names off"},
		{"full block", "console", "off stream"},
		{"on off", "console", "off off"},
		{"full block", "agent", "off off"},
		{"on stream", "agent", "off stream"},
		{"full block", "schedule", "off off"},
	} {
		verbose, reasoning, _ := strings.Cut(c.set, " ")
		setHome(t, o, w, fmt.Sprintf("verbose_default: %s\nreasoning_default: %s\nreply: {blocks: on}\nowners: ['webhook:boss', 'telegram:b7']\n", verbose, reasoning)+
			"channels:\n  wh: {type: webhook, dm: open, groups: {allow: ['*'], mode: always}, rate: 0}\n")
		senders[c.from]()
		conf := claimed(t, w, "main")[0].GetConfig()
		got := conf.GetParts().GetVerbose() + " " + conf.GetParts().GetReasoning()
		if conf.GetBlocks() != nil {
			got += " blocks"
		}
		if got != c.want {
			t.Errorf("%s for %s: %s, want %s", c.set, c.from, got, c.want)
		}
	}
}

// S4-40, S1-48, S1-07: /verbose and /reasoning hold in their conversation, over the settings, until they are as the settings
// say again; who has a part of the effect is told.
func TestVerboseAndReasoning(t *testing.T) { backendtest.Each(t, testVerboseAndReasoning) }

func testVerboseAndReasoning(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("main")
	setHome(t, o, w, "verbose_default: on\nowners: ['webhook:boss']\nchannels:\n  wh: {type: webhook, dm: open, rate: 0}\n")
	n := 0
	turn := func(peer, name, args string) *registryv1.BeginTurnResponse {
		t.Helper()
		n++
		m := inbound(fmt.Sprint(n), peer, "hello")
		if name != "" {
			m.Text, m.Command = "/"+name+" "+args, &registryv1.ChatCommand{Name: name, Args: args}
		}
		if got := accept(t, w, m); got.GetOutcome() != accepted {
			t.Fatal(got)
		}
		return claimed(t, w, "main")[0]
	}
	const details, block = " Arguments and results are shown to owners, in direct conversations.", " A block is shown to owners, in direct conversations."
	for _, c := range []struct{ peer, name, args, answer, parts string }{
		{"boss", "verbose", "", "Verbose: as the settings of the agent say.", "on off"},
		{"boss", "verbose", "FULL", "Verbose: full.", "full off"},
		{"boss", "reasoning", "block", "Reasoning: block.", "full block"},
		{"boss", "verbose", "loud", `Verbose is "loud": write one of off, on, full, or nothing for what the settings say.`, "full block"},
		{"boss", "reasoning", "on", `Reasoning is "on": write one of off, stream, block, or nothing for what the settings say.`, "full block"},
		{"boss", "reasoning", "", "Reasoning: block.", "full block"},
		{"boss", "verbose", "off", "Verbose: off.", "off block"},
		{"boss", "reasoning", "default", "Reasoning: as the settings of the agent say.", "off off"},
		{"boss", "verbose", "default", "Verbose: as the settings of the agent say.", "on off"},
		{"ann", "verbose", "full", "Verbose: full." + details, "names off"},
		{"ann", "reasoning", "block", "Reasoning: block." + block, "names off"},
		{"ann", "reasoning", "", "Reasoning: block.", "names off"},
		{"ann", "reasoning", "stream", "Reasoning: stream." + block, "names stream"},
	} {
		got := turn(c.peer, c.name, c.args)
		if got.GetAnswer() != c.answer {
			t.Errorf("/%s %s of %s: %q, want %q", c.name, c.args, c.peer, got.GetAnswer(), c.answer)
		}
		p := turn(c.peer, "", "").GetConfig().GetParts()
		if got := p.GetVerbose() + " " + p.GetReasoning(); got != c.parts {
			t.Errorf("after /%s %s of %s: %s, want %s", c.name, c.args, c.peer, got, c.parts)
		}
	}
}

// S1-53: what precedes a reply is sent with it, and the event says where the agent's own text begins. An event that
// cannot hold both has the text.
func TestReplyBehindItsParts(t *testing.T) { backendtest.Each(t, testReplyBehindItsParts) }

func testReplyBehindItsParts(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	before := "`exec \"ls\"`: ok\n> é"
	for _, c := range []struct {
		before, text string
		size         int // of the text before
	}{
		{"", "hi", 0}, {before, "hi <b>", len(before) + 2}, {strings.Repeat("b", 1000), strings.Repeat("x", 1<<20-700), 0},
	} {
		w.Push("a1", "bob", "one", fmt.Sprint(len(c.before), len(c.text)))
		due := w.Due(backendtest.KindRun, "r1", time.Minute)[0].GetLease()
		ctx := backendtest.Under(t.Context(), due)
		p := backendtest.Must2(w.Turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: "a1"})).GetEvents()[0]
		begin(ctx, t, w, "a1", p)
		req := &registryv1.FinishTurnRequest{
			AgentId: "a1", InboxId: p.GetEvent().GetId(), Key: p.GetKey(), ThreadId: p.GetThreadId(), Fate: registryv1.Fate_FATE_REPLIED, Text: c.text, Before: c.before,
		}
		fin := backendtest.Must2(w.Turns.FinishTurn(ctx, req))
		req.Before = "another life"
		if again := backendtest.Must2(w.Turns.FinishTurn(ctx, req)); again.GetReplyEventId() != fin.GetReplyEventId() {
			t.Errorf("finished again: %v, want %v", again, fin)
		}
		req.Before = strings.Repeat("x", 1<<16+1)
		if _, err := w.Turns.FinishTurn(ctx, req); !fault.Is(err, fault.InvalidArgument) {
			t.Errorf("more than there may be before a reply: %v", err)
		}
		w.Release(due)
		list := threadOf(t, w, "a1", bobsThread)
		last := list[len(list)-1]
		var content struct {
			Text       string `json:"text"`
			AnswerFrom int    `json:"answer_from"`
		}
		if err := json.Unmarshal([]byte(last.GetContent()), &content); err != nil || last.GetId() != fin.GetReplyEventId() {
			t.Fatal(err, last.GetId())
		}
		want := c.text
		if c.size > 0 {
			want = c.before + "\n\n" + c.text
		}
		if content.Text != want || content.AnswerFrom != c.size || content.Text[content.AnswerFrom:] != c.text {
			t.Errorf("%.80q from %d, want %.80q from %d", content.Text, content.AnswerFrom, want, c.size)
		}
		got := backendtest.Must2(w.Turns.GetTurn(t.Context(), &registryv1.GetTurnRequest{AgentId: "a1", Key: p.GetKey(), WithReply: true}))
		if got.GetReply() != want {
			t.Errorf("the account has the reply %.80q", got.GetReply())
		}
	}
}
