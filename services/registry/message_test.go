package registry_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// messageHome has two accounts of Telegram, one to which programs post, one that only receives, and two owners. The
// direct conversations of agent shared are one.
const messageHome = `owners: ['telegram:boss', 'telegram:ann']
agents: {list: [{id: main, default: true}, {id: other}, {id: shared, session: {dm_scope: main}}]}
bindings:
  - {agent_id: other, match: {channel: telegram, account_id: tg, peer: {kind: dm, id: eve}}}
  - {agent_id: shared, match: {channel: telegram, account_id: tg2}}
channels:
  tg: {type: telegram, token: "env:TG", dm: open, groups: {allow: ['*'], mode: always}}
  tg2: {type: telegram, token: "env:TG2", dm: open}
  push: {type: webhook, url: "https://example.com/in", dm: open}
  in: {type: webhook, dm: open}
`

// turnOf is a turn under way.
type turnOf struct {
	ctx             context.Context
	w               *backendtest.World
	agent, key, thr string
	lease           *registryv1.Lease
	config          *registryv1.TurnConfig
}

// through takes in a message over an account.
func through(t *testing.T, w *backendtest.World, account string, m *registryv1.InboundMessage) {
	t.Helper()
	r, err := w.Channels.AcceptMessages(t.Context(), &registryv1.AcceptMessagesRequest{Account: account, Messages: []*registryv1.InboundMessage{m}})
	if got := backendtest.Must(t, r, err).GetResults()[0]; got.GetOutcome() != accepted {
		t.Fatal(got)
	}
}

// underWay begins the turn of the message that waits.
func underWay(t *testing.T, w *backendtest.World, agent string) turnOf {
	t.Helper()
	due := w.Due(backendtest.KindRun, "r1", time.Minute)
	i := slices.IndexFunc(due, func(d *registryv1.DueWork) bool { return d.GetAgentId() == agent })
	if i < 0 {
		t.Fatalf("due %v", due)
	}
	lease := due[i].GetLease()
	ctx := backendtest.Under(t.Context(), lease)
	b, err := w.Turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: agent})
	p := backendtest.Must(t, b, err).GetEvents()[0]
	return turnOf{ctx, w, agent, p.GetKey(), p.GetThreadId(), lease, begin(ctx, t, w, agent, p).GetConfig()}
}

// record writes the result of a call with a saying; check only asks.
func (u turnOf) record(said *registryv1.Saying, check bool) error {
	req := &registryv1.RecordStepRequest{AgentId: u.agent, ThreadId: u.thr, Key: u.key, Says: []*registryv1.Saying{said}, Check: check}
	if !check {
		req.Steps = []*registryv1.Step{{Seq: 1, Kind: registryv1.StepKind_STEP_KIND_TOOL, Key: said.GetStepKey(), State: registryv1.StepState_STEP_STATE_DONE, Class: registryv1.ToolClass_TOOL_CLASS_IDEMPOTENT, Name: "message", Result: []byte("{}")}}
	}
	_, err := u.w.Turns.RecordStep(u.ctx, req)
	return err
}

// S4-68: an agent writes over an account of the home in the conversations that it has there, and to owners. What
// else it names is refused with what to do, before anything is stored.
func TestAddress(t *testing.T) { backendtest.Each(t, testAddress) }

func testAddress(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	for _, id := range []string{"main", "other", "shared"} {
		w.Create(id)
	}
	setHome(t, o, w, messageHome)
	for n, agent := range []string{"main", "other", "shared"} {
		account, peer := []string{"tg", "tg", "tg2"}[n], []string{"bob", "eve", "sue"}[n]
		through(t, w, account, inbound("1"+peer, peer, "hello"))
		claimed(t, w, agent)
	}
	through(t, w, "tg2", inbound("tim", "tim", "hello")) // in the conversation with Sue
	claimed(t, w, "shared")
	for _, id := range []string{"g1", "g2"} {
		group := inGroup(id, "ann", "hello")
		group.SessionId = id
		through(t, w, "tg", group)
		claimed(t, w, "main")
	}
	through(t, w, "tg", inbound("2", "ann", "hello"))
	u := underWay(t, w, "main")
	if got := fmt.Sprint(u.config.GetAccounts()); got != "[tg tg2 push]" {
		t.Errorf("accounts %s", got)
	}
	ask := func(said *registryv1.Saying) error {
		said.StepKey = "tool:1:1"
		return u.record(said, true)
	}
	const key, none = "agent:main:telegram:tg:dm:bob", "the agent has no conversation"
	for _, c := range []struct {
		said *registryv1.Saying
		why  string // empty: it is taken
	}{
		{&registryv1.Saying{Text: "x", To: "bob"}, ""},
		{&registryv1.Saying{Text: "x", To: key}, ""},
		{&registryv1.Saying{Text: "x", Channel: "tg", To: "g1"}, ""},
		{&registryv1.Saying{Text: "x", To: "agent:main:telegram:group:g2"}, ""},
		{&registryv1.Saying{Text: "x", Channel: "tg"}, ""},
		{&registryv1.Saying{Text: "x", To: "boss"}, ""},
		{&registryv1.Saying{Text: "x", Channel: "tg2", To: "boss"}, ""},
		{&registryv1.Saying{Action: "react", Text: "+"}, ""},
		{&registryv1.Saying{Action: "react", Text: "+", To: "bob", MessageId: "17"}, ""},
		{&registryv1.Saying{Action: "edit", Text: "x", MessageId: "17"}, ""},
		{&registryv1.Saying{Action: "delete", MessageId: "17"}, ""},

		{&registryv1.Saying{Text: "x", To: "eve"}, none}, // of another agent
		{&registryv1.Saying{Text: "x", To: "agent:other:telegram:tg:dm:eve"}, "to is a conversation of another agent"},
		{&registryv1.Saying{Text: "x", To: "agent:main:telegram:tg:dm:eve"}, none}, // under the name of this one
		{&registryv1.Saying{Text: "x", Channel: "tg2", To: "bob"}, none},           // at another account
		{&registryv1.Saying{Text: "x", Channel: "tg2", To: key}, none},
		{&registryv1.Saying{Text: "x", To: "sue"}, none},
		{&registryv1.Saying{Text: "x", To: "../main"}, none},
		{&registryv1.Saying{Text: "x", To: "bob' OR '1'='1"}, none},
		{&registryv1.Saying{Text: "x", Channel: "push", To: "boss"}, none}, // an owner of another type
		{&registryv1.Saying{Text: "x", Channel: "in", To: "bob"}, `there is no account "in" that sends`},
		{&registryv1.Saying{Text: "x", Channel: "no\nne", To: "bob"}, "there is no account"},
		{&registryv1.Saying{Text: "x", Channel: "tg2"}, "to is missing"},
		{&registryv1.Saying{Text: "x", To: "bob", MessageId: "17"}, "message_id is of no use without an action"},
		{&registryv1.Saying{Action: "react", Text: "+", To: "bob"}, "message_id is missing"},
		{&registryv1.Saying{Action: "edit", Text: "x"}, "message_id is missing"},
		{&registryv1.Saying{Action: "edit", Text: " \n", MessageId: "17"}, "text is missing"},
		{&registryv1.Saying{Action: "edit", MessageId: "17"}, "text is missing"},
		{&registryv1.Saying{Action: "delete", MessageId: "1\n7"}, "message_id is no id of a message"},
		{&registryv1.Saying{Action: "forward", MessageId: "17"}, "says[0].action"},
	} {
		err := ask(c.said)
		switch f := fault.From(err); {
		case c.why == "" && err != nil:
			t.Errorf("%v: %v", c.said, err)
		case c.why != "" && (err == nil || f.Reason != fault.InvalidArgument || !strings.HasPrefix(f.What, c.why) && len(f.Fields) == 0 || f.Fix == "" && len(f.Fields) == 0):
			t.Errorf("%v: %v, not %q", c.said, err, c.why)
		}
	}
	before := len(eventsOf(t, w, "main", u.thr))
	if err := u.record(&registryv1.Saying{StepKey: "tool:1:1", Text: "x", To: "eve"}, false); fault.From(err).Reason != fault.InvalidArgument || len(eventsOf(t, w, "main", u.thr)) != before {
		t.Errorf("recorded without an allowed address: %v", err)
	}
	w.Config("main", "outbound", "[]")
	if err := ask(&registryv1.Saying{Text: "x", To: "bob"}); err == nil || !strings.Contains(err.Error(), "the setting outbound") {
		t.Errorf("with rules for all that is sent: %v", err)
	}
	w.Release(u.lease)

	// For a person who is no owner: in the conversation of the turn alone.
	through(t, w, "tg", inbound("2eve", "eve", "hello"))
	u = underWay(t, w, "other")
	for _, said := range []*registryv1.Saying{{Text: "x", To: "ann"}, {Text: "x", Channel: "tg2", To: "boss"}, {Action: "delete", MessageId: "17", To: "ann"}} {
		if err := ask(said); err == nil || !strings.Contains(err.Error(), "only for an owner") {
			t.Errorf("%v: %v", said, err)
		}
	}
	for _, said := range []*registryv1.Saying{{Action: "react", Text: "+"}, {Text: "x", To: "eve"}} {
		if err := ask(said); err != nil {
			t.Errorf("%v: %v", said, err)
		}
	}
	w.Release(u.lease)

	// In a conversation of several people each is found by the own messages.
	through(t, w, "tg2", inbound("3", "ann", "hello"))
	u = underWay(t, w, "shared")
	for n, said := range []*registryv1.Saying{{Text: "x", To: "sue"}, {Text: "x", Channel: "tg2", To: "agent:shared:main"}} {
		said.StepKey = fmt.Sprint("tool:1:", n+1)
		if err := u.record(said, false); err != nil {
			t.Fatal(err)
		}
		list := eventsOf(t, w, "shared", u.thr)
		c, err := channel.ParseContent(json.RawMessage(list[len(list)-1].GetContent()))
		if want := []string{"sue", "ann"}[n]; err != nil || c.ReplyContext.SessionID() != want || c.ReplyContext.ChannelID() != "tg2" || c.ReplyContext.ReplyToID() != "" || c.Text != "x" {
			t.Errorf("%+v %v", c, err)
		}
	}
}

// eventsOf are those of a conversation.
func eventsOf(t *testing.T, w *backendtest.World, agent, threadID string) []*registryv1.Event {
	t.Helper()
	r, err := w.Threads.PeekEvents(t.Context(), &registryv1.PeekEventsRequest{Thread: &registryv1.ThreadRef{AgentId: agent, ThreadId: threadID}, Limit: 100})
	return backendtest.Must(t, r, err).GetEvents()
}

// S4-68: a change of what an earlier step has sent goes where that went, and its deliverer gets the id that the
// platform gave it; none when that was not sent, or in parts. A repeat of the call stores nothing more.
func TestChangedMessage(t *testing.T) { backendtest.Each(t, testChangedMessage) }

func testChangedMessage(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("main")
	setHome(t, o, w, "owners: ['telegram:ann']\nchannels:\n  tg: {type: telegram, token: \"env:TG\", dm: open}\n")
	through(t, w, "tg", inbound("1", "bob", "hello"))
	claimed(t, w, "main")
	through(t, w, "tg", inbound("2", "ann", "hello"))
	u := underWay(t, w, "main")
	for _, said := range []*registryv1.Saying{
		{StepKey: "tool:1:1", Text: "one"},
		{StepKey: "tool:1:2", Text: "two", To: "bob"},
		{StepKey: "tool:1:3", Text: "in parts"},
		{StepKey: "tool:1:4", Text: "refused"},
		{StepKey: "tool:2:1", Action: "edit", Text: "1", MessageId: u.key + ":tool:1:1"},
		{StepKey: "tool:2:2", Action: "delete", MessageId: u.key + ":tool:1:2"},
		{StepKey: "tool:2:3", Action: "react", Text: "+", MessageId: u.key + ":tool:1:3"},
		{StepKey: "tool:2:4", Action: "delete", MessageId: u.key + ":tool:1:4"},
		{StepKey: "tool:2:5", Action: "react", Text: "+"},
	} {
		for range 2 {
			if err := u.record(said, false); err != nil {
				t.Fatalf("%v: %v", said, err)
			}
		}
	}
	if err := u.record(&registryv1.Saying{StepKey: "tool:3:1", Action: "edit", Text: "x", MessageId: u.key + ":tool:2:1"}, true); err == nil || !strings.Contains(err.Error(), "message_id names no message that was sent") {
		t.Errorf("a change of a change: %v", err)
	}
	due := w.Due(backendtest.KindDeliver, "d1", time.Minute)
	if len(due) != 1 {
		t.Fatalf("due %v", due)
	}
	ctx := backendtest.Under(t.Context(), due[0].GetLease())
	var got []string
	b, err := w.Deliveries.BeginDelivery(ctx, &registryv1.BeginDeliveryRequest{AgentId: "main", ThreadId: u.thr})
	for n := 1; backendtest.Must(t, b, err).GetOutcome() == registryv1.BeginDeliveryOutcome_BEGIN_DELIVERY_OUTCOME_SEND; n++ {
		c, err := channel.ParseContent(json.RawMessage(b.GetEvent().GetContent()))
		if err != nil || b.GetAccount().GetName() != "tg" {
			t.Fatal(b, err)
		}
		got = append(got, strings.TrimSpace(fmt.Sprint(c.ReplyContext.SessionID(), " ", c.Text, " ", c.Action, " ", c.MessageID, b.GetMessageId())))
		f := &registryv1.FinishDeliveryRequest{
			AgentId: "main", ThreadId: u.thr, EventId: b.GetEvent().GetId(), Outcome: registryv1.DeliveryOutcome_DELIVERY_OUTCOME_SENT, Channel: "tg", ProviderId: fmt.Sprint(100 + n), Next: true,
		}
		switch c.Text {
		case "refused":
			f.Outcome, f.ProviderId = registryv1.DeliveryOutcome_DELIVERY_OUTCOME_REJECTED, ""
		case "in parts":
			part := &registryv1.FinishDeliveryRequest{AgentId: "main", ThreadId: u.thr, EventId: f.GetEventId(), Outcome: registryv1.DeliveryOutcome_DELIVERY_OUTCOME_PART, Channel: "tg", ProviderId: "99", Parts: 1, Reach: 3}
			if _, err := w.Deliveries.FinishDelivery(ctx, part); err != nil {
				t.Fatal(err)
			}
		}
		r, err := w.Deliveries.FinishDelivery(ctx, f)
		b = backendtest.Must(t, r, err).GetNext()
	}
	want := []string{"ann one", "bob two", "ann in parts", "ann refused", "ann 1 edit 101", "bob  delete 102", "ann + react", "ann  delete", "ann + react 2"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%q\nnot\n%q", got, want)
	}
}
