package gateway_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/theclaw/agents/internal/channel/telegram/telegramtest"
	"github.com/theclaw/agents/internal/testing/world"
	gatewayv1 "github.com/theclaw/agents/proto/gen/theclaw/gateway/v1"
)

// seen waits until a gateway has the account in a state.
func seen(t *testing.T, g world.Gateway, name string, want gatewayv1.ChannelState) *gatewayv1.Channel {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; <-time.After(5 * time.Millisecond) {
		r, err := g.ListChannels(t.Context(), &gatewayv1.ListChannelsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range r.GetChannels() {
			if c.GetName() == name && c.GetState() == want {
				return c
			}
		}
		if time.Now().After(end) {
			t.Fatalf("%s is not %v: %v", name, want, r)
		}
	}
}

// receiving waits until a gateway receives for the account tg, and returns which.
func receiving(t *testing.T, h *site) int {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; <-time.After(5 * time.Millisecond) {
		first := slices.IndexFunc(h.Gateways, func(g world.Gateway) bool {
			r, err := g.ListChannels(t.Context(), &gatewayv1.ListChannelsRequest{})
			return err == nil && slices.ContainsFunc(r.GetChannels(), func(c *gatewayv1.Channel) bool {
				return c.GetName() == "tg" && c.GetState() == gatewayv1.ChannelState_CHANNEL_STATE_UP
			})
		})
		if first >= 0 {
			return first
		}
		if time.Now().After(end) {
			t.Fatal("no gateway receives")
		}
	}
}

// What the lease of an account costs one gateway is one call before it receives, and none for a message: that is one
// call, the acceptance, with the commits that it had before.
func TestCostOfAnAccount(t *testing.T) {
	api, calls := botAPI(t), prometheus.NewRegistry()
	h := telegram(t, api, world.Options{Metrics: calls, TTL: 10 * time.Minute}, "dm: open")
	handled := func(method string) (n float64) {
		families, err := calls.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					if f.GetName() == "grpc_server_handled_total" && l.GetValue() == method {
						n += m.GetCounter().GetValue()
					}
				}
			}
		}
		return n
	}
	const messages = 5
	was := h.Engine.Stats()
	for n := range messages {
		api.Say(telegramtest.Message{Chat: telegramtest.Private(bob), From: &bob, Text: fmt.Sprintf("say: %d", n)})
		awaitReplies(t, api, bob.ID, n+1)
	}
	settled(t, api)
	for method, want := range map[string]float64{"AcquireLease": 1, "RenewLease": 0, "AcceptMessages": messages} {
		if got := handled(method); got != want {
			t.Errorf("%s: %v calls, want %v", method, got, want)
		}
	}
	per := float64(h.Engine.Stats().Durable-was.Durable) / messages
	t.Logf("fsyncs per message: %.2f", per)
	if per > 2.1 {
		t.Errorf("fsyncs per message: %.2f, want at most 2.1", per)
	}
	h.Stop()
	if n := handled("ReleaseLease"); n < 1 { // with those of agents
		t.Error("the lease was not given back")
	}
}

// S2-12: of two gateways, at two registries over PostgreSQL or at one of a home, one receives for an account and the
// other one stands by. When the first stops, the other one receives, without a conflict; no update is lost, and none
// is stored or answered twice.
func TestTwoGateways(t *testing.T) {
	each(t, func(t *testing.T, o world.Options) {
		api := botAPI(t)
		o.Gateways = 2
		if o.DSN != "" {
			o.Registries = 2
		}
		h := open(t, o, fmt.Sprintf("  tg: {type: telegram, token: \"env:TG\", api: %q, dm: open}\n  shop: {type: webhook, dm: open, secret: \"env:KEY\"}\n", api.URL()))
		names := []string{"gateway", "gateway-2"}
		first := receiving(t, h)
		one, two := h.Gateways[first], h.Gateways[1-first]
		names = []string{names[first], names[1-first]}
		if c := seen(t, one, "tg", gatewayv1.ChannelState_CHANNEL_STATE_UP); c.GetWhat() != "@demo_bot, lease "+names[0] {
			t.Errorf("the first: %v", c)
		}
		if c := seen(t, two, "tg", gatewayv1.ChannelState_CHANNEL_STATE_STANDBY); c.GetWhat() != "lease "+names[0] {
			t.Errorf("the second: %v", c)
		}
		for _, g := range h.Gateways { // programs may post to both
			seen(t, g, "shop", gatewayv1.ChannelState_CHANNEL_STATE_UP)
		}
		const before, after = 5, 5
		say := func(n int) {
			api.Say(telegramtest.Message{Chat: telegramtest.Private(bob), From: &bob, Text: fmt.Sprintf("say: %d", n)})
		}
		for n := range before {
			say(n)
		}
		awaitReplies(t, api, bob.ID, before)
		for n := range after { // some arrive while the account moves
			say(before + n)
			if n == after/2 {
				// What the first left open at the platform may end the next requests, which is no reason to wait as for
				// another program.
				api.Fail(telegramtest.Fault{Method: "getUpdates", Status: 409, Times: 2, Description: "Conflict: terminated by other getUpdates request"})
				one.Stop()
			}
		}
		got := awaitReplies(t, api, bob.ID, before+after)
		for n, text := range got {
			if text != fmt.Sprint(n) {
				t.Fatalf("answered %q", got)
			}
		}
		if s := settled(t, api); s.Lost != 0 {
			t.Errorf("%+v", s)
		}
		if c := seen(t, two, "tg", gatewayv1.ChannelState_CHANNEL_STATE_UP); c.GetWhat() != "@demo_bot, lease "+names[1] {
			t.Errorf("the second: %v", c)
		}
		if n := h.stored(t); n != before+after {
			t.Errorf("%d are stored", n)
		}
	})
}
