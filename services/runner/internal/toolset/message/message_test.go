package message_test

import (
	"context"
	"encoding/json"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/theclaw/agents/internal/fault"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/toolset"
	"github.com/theclaw/agents/services/runner/internal/toolset/message"
	"github.com/theclaw/agents/services/runner/internal/toolset/toolsettest"
)

func TestTool(t *testing.T) {
	toolsettest.Run(t, message.Tool{}, toolsettest.Cases{
		Good: []string{`{"text":"half way"}`, `{"text":"NO_REPLY\nbut this"}`},
		Bad: []string{
			`{}`, `{"text":7}`, `{"text":" \n"}`, `{"text":"NO_REPLY"}`,
			`{"text":"x","to":"1207"}`, `{"text":"x","channel":"tg"}`, `{"text":"x","action":"edit","message_id":"5"}`, // without accounts
		},
		Config: &registrypb.TurnConfig{MessageTool: true},
	})
}

// S4-68: with accounts the tool has addresses and actions.
func TestAddressedTool(t *testing.T) {
	config := &registrypb.TurnConfig{MessageTool: true, Accounts: []string{"tg", "sl"}}
	toolsettest.Run(t, message.Tool{}.In(config, nil), toolsettest.Cases{
		Good: []string{
			`{"text":"half way"}`, `{"action":"send","text":"x","to":"1207"}`, `{"text":"x","channel":"tg","to":"1207"}`,
			`{"action":"edit","text":"y","message_id":"5"}`, `{"action":"react","text":"\ud83d\udc4d"}`, `{"action":"react","message_id":"5"}`, `{"action":"delete","message_id":"5"}`,
		},
		Bad: []string{
			`{}`, `{"text":7}`, `{"text":"NO_REPLY","to":"1207"}`, `{"action":"forward","text":"x"}`, `{"text":"x","channel":"other"}`,
			`{"action":"edit","message_id":"5"}`, `{"text":"x","chat":"1207"}`, `{"text":"x","to":1207}`,
		},
		Config: config,
	})
}

// A message is what is left without the word of silence; the setting decides who has the
// tool.
func TestMessages(t *testing.T) {
	r := message.Tool{}.Run(t.Context(), toolset.Call{Args: json.RawMessage(`{"text":"NO_REPLY\nbut <this>"}`)})
	if len(r.Messages) != 1 || r.Messages[0].Text != "but <this>" || string(r.JSON) != `{"sent":true}` || r.IsError {
		t.Errorf("%+v", r)
	}
	tools, err := toolset.New(message.Tool{})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(tools.Set(&registrypb.TurnConfig{}).Offered()); n != 0 {
		t.Errorf("%d tools are offered without the setting", n)
	}
}

// S4-68: a call with an address is one saying for the registry, under the key of its step; only a plain message counts as
// sent to the peer. Without accounts the schema has the text alone, byte for byte.
func TestSayings(t *testing.T) {
	for _, c := range []struct {
		args   string
		saying *registrypb.Saying // nil: to the peer
		result string
	}{
		{`{"text":"half way"}`, nil, `{"sent":true,"message_id":"turn:tool:1:1"}`},
		{`{"action":"send","text":"x","channel":"tg","to":"1207"}`, &registrypb.Saying{Text: "x", Channel: "tg", To: "1207"}, `{"queued":"send","message_id":"turn:tool:1:1"}`},
		{`{"action":"edit","text":"y","message_id":"turn:tool:1:1"}`, &registrypb.Saying{Text: "y", Action: "edit", MessageId: "turn:tool:1:1"}, `{"queued":"edit"}`},
		{`{"action":"react","text":"+"}`, &registrypb.Saying{Text: "+", Action: "react"}, `{"queued":"react"}`},
		{`{"action":"delete","text":"ignored","message_id":"5"}`, &registrypb.Saying{Action: "delete", MessageId: "5"}, `{"queued":"delete"}`},
	} {
		calls, j := toolsettest.Calls(t, &registrypb.TurnConfig{Accounts: []string{"tg"}}, message.Tool{})
		got, err := toolsettest.Use(t.Context(), calls, "tool:1:1", model.ToolCall{Name: "message_send", Arguments: json.RawMessage(c.args)}, false)
		if err != nil || got != c.result {
			t.Errorf("%s: %s %v", c.args, got, err)
		}
		said := len(message.Tool{}.Sent(json.RawMessage(c.args)))
		if c.saying == nil {
			if len(j.Addressed) != 0 || len(j.Said) != 1 || said != 1 {
				t.Errorf("%s: %q %v %d", c.args, j.Said, j.Addressed, said)
			}
			continue
		}
		if c.saying.StepKey = "tool:1:1"; len(j.Addressed) != 1 || !proto.Equal(j.Addressed[0], c.saying) || len(j.Said) != 0 || said != 0 {
			t.Errorf("%s: %q %v %d", c.args, j.Said, j.Addressed, said)
		}
	}
	plain := `{"type":"object","properties":{"text":{"type":"string","description":"the message"}},"required":["text"]}`
	if got := string(message.Tool{}.In(&registrypb.TurnConfig{}, nil).Spec().Schema); got != plain {
		t.Error(got)
	}
}

// What the registry refuses is an error that says what to do, and nothing is sent.
func TestRefused(t *testing.T) {
	calls, j := toolsettest.Calls(t, &registrypb.TurnConfig{Accounts: []string{"tg"}}, message.Tool{})
	calls.Place.CheckSaying = func(context.Context, *registrypb.Saying) error {
		return fault.New(codes.InvalidArgument, fault.InvalidArgument, "the agent has no conversation 99", "name one that it has")
	}
	got, err := toolsettest.Use(t.Context(), calls, "tool:1:1", model.ToolCall{Name: "message_send", Arguments: json.RawMessage(`{"text":"x","to":"99"}`)}, false)
	if want := `{"error":"nothing was sent: the agent has no conversation 99: name one that it has"}`; err != nil || got != want || len(j.Addressed)+len(j.Said) != 0 {
		t.Errorf("%s %v %v", got, err, j.Addressed)
	}
}
