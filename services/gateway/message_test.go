package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/channel/slack/slacktest"
	"github.com/theclaw/agents/internal/channel/telegram/telegramtest"
	"github.com/theclaw/agents/internal/testing/world"
	gatewayv1 "github.com/theclaw/agents/proto/gen/theclaw/gateway/v1"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// S4-68: over all services, the tool message writes to its peer, in another conversation and to an owner, and edits,
// marks and deletes what it has sent; it does not write to others. A change whose answer was lost is made again and
// shown once. One that the platform refuses is a dead letter that says why.
func TestMessageTool(t *testing.T) {
	each(t, func(t *testing.T, o world.Options) {
		api, ws := botAPI(t), workspace(t)
		h := open(t, o, fmt.Sprintf("  tg: {type: telegram, token: \"env:TG\", api: %q, dm: open}\n  sl: {type: slack, token: \"env:SLACK_BOT\", app_token: \"env:SLACK_APP\", api: %q, dm: open}\nowners: [\"slack:%s\", \"telegram:%d\"]\n",
			api.URL(), ws.URL(), slackBob.ID, ann.ID))
		h.state(t, "tg", gatewayv1.ChannelState_CHANNEL_STATE_UP)
		h.state(t, "sl", gatewayv1.ChannelState_CHANNEL_STATE_UP)
		h.configure(t, "reply: {message_tool: true}")
		said := 0 // by Ann
		// call has Ann let the agent call the tool, and returns the result, which is also the answer to her.
		call := func(args map[string]string) (result struct {
			Sent, Queued any
			MessageID    string `json:"message_id"`
			Error        string
		},
		) {
			t.Helper()
			b, _ := json.Marshal(args)
			api.Say(telegramtest.Message{Chat: telegramtest.Private(ann), From: &ann, Text: "call: message_send " + string(b)})
			said++
			var text string
			awaitAll(t, api, func() bool {
				list := slices.DeleteFunc(replies(api, ann.ID), func(s string) bool { return !strings.HasPrefix(s, "offline: ") })
				if len(list) == said {
					text = list[said-1]
				}
				return text != ""
			})
			_, raw, _ := strings.Cut(text, "\n")
			if err := json.Unmarshal([]byte(raw), &result); err != nil { // Markdown has no backslash in front of a quote
				result.Error = strings.TrimPrefix(raw, `{"error":"`)
			}
			return result
		}
		api.Say(telegramtest.Message{Chat: telegramtest.Private(bob), From: &bob, Text: "say: hello"})
		awaitReplies(t, api, bob.ID, 1)

		draft := call(map[string]string{"text": "draft"})
		if draft.Sent != true || draft.MessageID == "" {
			t.Fatalf("%+v", draft)
		}
		api.Fail(telegramtest.Fault{Method: "editMessageText", Cut: telegramtest.CutAfter})
		if r := call(map[string]string{"action": "edit", "message_id": draft.MessageID, "text": "final"}); r.Queued != "edit" || r.Error != "" {
			t.Errorf("%+v", r)
		}
		if m := api.Messages(ann.ID)[0]; m.Text != "final" || m.Edits != 1 {
			t.Errorf("%+v", m)
		}
		if n := len(api.Calls("editMessageText")); n != 2 {
			t.Errorf("%d edits were tried", n)
		}
		if r := call(map[string]string{"action": "react", "text": "\U0001F44D"}); r.Queued != "react" { // the message that it answers
			t.Errorf("%+v", r)
		}
		if c := api.Calls("setMessageReaction"); len(c) != 1 || c[0].Detail != "\U0001F44D" || c[0].Chat != ann.ID || c[0].Status != 200 {
			t.Errorf("%+v", c)
		}
		call(map[string]string{"action": "delete", "message_id": draft.MessageID})
		if list := replies(api, ann.ID); slices.Contains(list, "final") {
			t.Errorf("%q", list)
		}

		// In another conversation, by the id of the person and by the key of the session.
		first := call(map[string]string{"text": "for Bob", "to": fmt.Sprint(bob.ID)})
		if first.Queued != "send" {
			t.Errorf("%+v", first)
		}
		call(map[string]string{"text": "again", "channel": "tg", "to": "agent:admin:telegram:tg:dm:1207"})
		call(map[string]string{"action": "edit", "text": "really for Bob", "message_id": first.MessageID})
		if got := awaitReplies(t, api, bob.ID, 3); !slices.Equal(got, []string{"hello", "really for Bob", "again"}) {
			t.Errorf("Bob sees %q", got)
		}
		// To an owner who has not written: over the account, and to no other person.
		if r := call(map[string]string{"text": "a report", "channel": "sl", "to": slackBob.ID}); r.Error != "" {
			t.Errorf("%+v", r)
		}
		if m := posted(t, ws, slacktest.IM(slackBob).ID, 1); m[0].Text != "a report" {
			t.Errorf("%+v", m)
		}
		for to, why := range map[string]string{
			"4711":                            "the agent has no conversation \"4711\" over 'tg': name one that it has, or an owner",
			"agent:admin:telegram:tg:dm:4711": "the agent has no conversation \"agent:admin:telegram:tg:dm:4711\" over 'tg'",
			"agent:other:telegram:tg:dm:1207": "to is a conversation of another agent: name one of 'admin'",
			"@public":                         "the agent has no conversation \"@public\" over 'tg'",
		} {
			if r := call(map[string]string{"text": "spam", "to": to}); !strings.HasPrefix(r.Error, "nothing was sent: "+why) {
				t.Errorf("%s: %+v", to, r)
			}
		}
		if r := call(map[string]string{"text": "x", "channel": "sl"}); !strings.Contains(r.Error, "to is missing") {
			t.Errorf("%+v", r)
		}

		// The platform has no such message.
		if r := call(map[string]string{"action": "edit", "text": "x", "message_id": "99999"}); r.Queued != "edit" {
			t.Errorf("%+v", r)
		}
		r, err := h.Deliveries.ListDeliveries(t.Context(), &registryv1.ListDeliveriesRequest{AgentId: "admin", State: registryv1.DeliveryState_DELIVERY_STATE_DEAD})
		if err != nil || len(r.GetDeliveries()) != 1 || !strings.Contains(r.GetDeliveries()[0].GetError(), "message to edit not found") {
			t.Errorf("%v %v", r, err)
		}
		// A console has no earlier messages to change, and its peer can have the agent write elsewhere.
		console := "external:console:cli:dm:cli:cli"
		turn := h.Say(t, "admin", console, `call: message_send {"text":"from the console","channel":"tg","to":"1207"}`)
		if got := awaitReplies(t, api, bob.ID, 4); got[3] != "from the console" {
			t.Errorf("%v: Bob sees %q", turn, got)
		}
		h.Say(t, "admin", console, `call: message_send {"action":"react","text":"x"}`)
		list := h.Events(t, "admin", "threads/peers/cli-cli", "type = 'message' AND source = 'self'")
		if n := len(list); n != 3 || list[0].GetSubtype() != "action" || !strings.Contains(list[2].GetContent(), "there is no account") {
			t.Errorf("%v", list)
		}
		// No prompt has what went elsewhere as words to its peer.
		if n := len(h.Events(t, "admin", "threads/peers/tg-1207", "subtype = 'action'")); n != 0 {
			t.Errorf("%d events", n)
		}
	})
}

// awaitAll waits until the platform is in a state.
func awaitAll(t *testing.T, api *telegramtest.Server, f func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := api.Wait(ctx, f); err != nil {
		t.Fatalf("%v: %+v", err, api.Messages(0))
	}
}
