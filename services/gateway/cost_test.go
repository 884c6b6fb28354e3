package gateway_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/theclaw/agents/internal/channel/telegram/telegramtest"
	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// costs are what a registry has done so far.
type costs struct {
	fsyncs float64
	calls  map[string]float64 // by method, without its package
}

// What a message of a chat platform costs is counted, not timed: fsyncs, and the calls that are made
// for it and not for a push. A message that does not address the agent is one fsync, without a
// lease and without work for a runner. `make bench` reads the figures.
func TestCostOfAChannelMessage(t *testing.T) {
	const messages = 40
	calls := prometheus.NewRegistry()
	api := botAPI(t)
	group := telegramtest.Chat{ID: -1_008_800, Type: "supergroup", Title: "Group"}
	o := world.Options{Metrics: calls, TTL: time.Hour, Direct: true}
	h := open(t, o, fmt.Sprintf("  tg: {type: telegram, token: \"env:TG\", api: %q, dm: open, rate: 0, groups: {allow: ['*']}}\n", api.URL()))
	h.Create(t, "mute", "outbound: []")
	h.bind(t, 1, "mute")
	now := func() costs {
		return costs{float64(h.Engine.Stats().Durable), handledBy(t, calls)}
	}
	// per is the difference for each message, and what differs from zero by method.
	per := func(before costs) costs {
		after := now()
		after.fsyncs = (after.fsyncs - before.fsyncs) / messages
		for method, n := range after.calls {
			after.calls[method] = (n - before.calls[method]) / messages
		}
		return after
	}
	check := func(what string, got, most float64) {
		t.Helper()
		t.Logf("%s: %.2f", what, got)
		if got > most {
			t.Errorf("%s: %.2f, want at most %.2f", what, got, most)
		}
	}
	// One after the other, in one chat: an agent that sends nothing, so that nothing but the message is counted.
	one := telegramtest.User{ID: 1, FirstName: "P"}
	say := func(u telegramtest.User, chat telegramtest.Chat, n int) {
		api.Say(telegramtest.Message{Chat: chat, From: &u, Text: fmt.Sprint("say: ", n)})
	}
	answered := func(agent string, n int) {
		t.Helper()
		h.Await(t, agent, int64(n))
	}
	for n := range 30 { // past the context of a prompt
		say(one, telegramtest.Private(one), n)
		settled(t, api)
		answered("mute", n+1)
	}
	before := now()
	for n := range messages {
		say(one, telegramtest.Private(one), n)
		settled(t, api)
		answered("mute", 30+n+1)
	}
	message := per(before)
	check("fsyncs of a channel message", message.fsyncs, 2.1)
	before = now()
	for n := range messages {
		h.Say(t, "mute", "external:console:cli:dm:cli:cli", fmt.Sprint("say: ", n))
	}
	pushed := per(before)
	// A push is one call, and the wait for its answer another one: that of this test, as above.
	added := 0.0
	for method, n := range message.calls {
		if d := n - pushed.calls[method]; d > 0.05 {
			t.Logf("calls for a channel message and not for a push: %s %.2f", method, d)
			added += d
		}
	}
	check("calls that the gateway adds", added, 2.1)

	// The answers of others are sent.
	before = now()
	for n := range messages {
		u := telegramtest.User{ID: int64(100 + n), FirstName: "P"}
		say(u, telegramtest.Private(u), n)
		awaitReplies(t, api, u.ID, 1)
	}
	sent := per(before)
	t.Logf("fsyncs of a channel message with its delivery: %.2f", sent.fsyncs)

	say(one, group, 0)
	settled(t, api)
	before = now()
	for n := range messages {
		say(one, group, n)
		settled(t, api)
	}
	context := per(before)
	check("fsyncs of a context-only message", context.fsyncs, 1.05)
	leases, work := 0.0, 0.0
	for method, n := range context.calls {
		switch service, _, _ := strings.Cut(method, "/"); service {
		case "LeaseService":
			leases += n
		case "TurnService", "RunnerService":
			work += n
		}
	}
	check("leases of a context-only message", leases, 0)
	check("runner calls of a context-only message", work, 0)
}

// bind gives an agent the direct chat of a person at tg.
func (h *site) bind(t *testing.T, person int64, agent string) {
	t.Helper()
	value := fmt.Sprintf("[{agent_id: %s, match: {channel: telegram, account_id: tg, peer: {kind: dm, id: '%d'}}}]", agent, person)
	if _, err := h.Homes.SetHomeValue(t.Context(), &registryv1.SetHomeValueRequest{Path: []string{"bindings"}, Value: value}); err != nil {
		t.Fatal(err)
	}
}

// handledBy counts the calls that were answered, by service and method; streams end once.
func handledBy(t *testing.T, from *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "grpc_server_handled_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			var service, method string
			for _, l := range m.GetLabel() {
				switch l.GetName() {
				case "grpc_service":
					service = l.GetValue()[strings.LastIndex(l.GetValue(), ".")+1:]
				case "grpc_method":
					method = l.GetValue()
				}
			}
			out[service+"/"+method] += m.GetCounter().GetValue()
		}
	}
	return out
}
