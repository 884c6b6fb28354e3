package gateway_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/theclaw/agents/internal/channel/slack/slacktest"
	"github.com/theclaw/agents/internal/channel/telegram/telegramtest"
	"github.com/theclaw/agents/internal/testing/world"
	gatewayv1 "github.com/theclaw/agents/proto/gen/theclaw/gateway/v1"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// S4-92, S3-02, S2-19: one conversation that is reached from three accounts and the terminal: each
// reply goes where its message came from, and nowhere else.
func TestRepliesGoToTheirOrigin(t *testing.T) {
	api, s, sink := botAPI(t), workspace(t), world.NewSink(t)
	h := open(t, world.Options{}, fmt.Sprintf("  tg: {type: telegram, token: \"env:TG\", api: %q, dm: open}\n"+
		"  sl: {type: slack, token: \"env:SLACK_BOT\", app_token: \"env:SLACK_APP\", api: %q, dm: open}\n"+
		"  shop: {type: webhook, dm: open, secret: \"env:KEY\", allow_private: true, url: %q}\n"+
		"session: {dm_scope: main}\n", api.URL(), s.URL(), sink.URL))
	for _, name := range []string{"tg", "sl", "shop"} {
		h.state(t, name, gatewayv1.ChannelState_CHANNEL_STATE_UP)
	}
	im := slacktest.IM(slackBob)
	for n := range 3 {
		api.Say(telegramtest.Message{Chat: telegramtest.Private(bob), From: &bob, Text: fmt.Sprint("say: telegram ", n)})
		s.Say(slacktest.Message{Channel: im, User: slackBob.ID, Text: fmt.Sprint("say: slack ", n)})
		body := message(fmt.Sprint(n), "c7", fmt.Sprint("say: webhook ", n))
		h.post(t, "/hooks/shop", body, signed(body)...)
		h.Say(t, "admin", "external:console:cli:dm:me:me", fmt.Sprint("say: terminal ", n))
	}
	want := func(from string) (list []string) {
		for n := range 3 {
			list = append(list, fmt.Sprint(from, " ", n))
		}
		return list
	}
	if got := awaitReplies(t, api, bob.ID, 3); !slices.Equal(got, want("telegram")) {
		t.Errorf("%q", got)
	}
	postedText(t, s, "slack 2", "")
	for id := int64(1); id <= 12; id++ {
		h.Delivered(t, "admin", id)
	}
	var slackTexts, hookTexts []string
	for _, m := range s.Messages(im.ID) {
		if m.User != slackBob.ID {
			slackTexts = append(slackTexts, m.Text)
		}
	}
	for _, a := range sink.Arrivals("") {
		hookTexts = append(hookTexts, a.Text)
	}
	if slices.Sort(hookTexts); !slices.Equal(slackTexts, want("slack")) || !slices.Equal(hookTexts, want("webhook")) {
		t.Errorf("%q, %q", slackTexts, hookTexts)
	}
	list, err := h.Sessions.ListSessions(t.Context(), &registryv1.ListSessionsRequest{AgentId: "admin"})
	if err != nil || len(list.GetSessions()) != 1 || list.GetSessions()[0].GetKey() != "agent:admin:main" {
		t.Errorf("%v, %v", list, err)
	}
}
