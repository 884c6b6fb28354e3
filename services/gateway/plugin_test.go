package gateway_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/channel/plugin/plugintest"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/testing/world"
	channelv1 "github.com/theclaw/agents/proto/gen/theclaw/channel/v1"
	gatewayv1 "github.com/theclaw/agents/proto/gen/theclaw/gateway/v1"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// channelPlugin starts a plugin.
func channelPlugin(t *testing.T) *plugintest.Server {
	t.Helper()
	s, err := plugintest.Start(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// plugged starts a world with the account pl, whose entry has further keys.
func plugged(t *testing.T, s *plugintest.Server, o world.Options, keys string) *site {
	t.Helper()
	h := open(t, o, fmt.Sprintf("  pl: {type: plugin, plugin: %q, %s}\n", s.Address(), keys))
	h.state(t, "pl", gatewayv1.ChannelState_CHANNEL_STATE_UP)
	return h
}

// shown waits until a session shows so many messages of the account.
func shown(t *testing.T, s *plugintest.Server, session string, n int) (texts []string) {
	t.Helper()
	awaitPlugin(t, s, func() bool {
		texts = nil
		for _, m := range s.Messages(session) {
			texts = append(texts, m.Text)
		}
		return len(texts) >= n
	})
	return texts
}

func awaitPlugin(t *testing.T, s *plugintest.Server, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	if err := s.Wait(ctx, holds); err != nil {
		t.Fatalf("%v: %+v, %+v", err, s.Stats(), s.Messages(""))
	}
}

// S2-16, S2-17, S4-68: a plugin has what a built-in type has. Messages of a conversation are answered
// in their order while others go on; a kill of the plugin and a restart of all services neither lose
// nor repeat one.
func TestPlugin(t *testing.T) {
	each(t, func(t *testing.T, o world.Options) {
		s := channelPlugin(t)
		h := plugged(t, s, o, "dm: open")
		const people, messages = 4, 6
		say := func(p, n int) { s.Say(plugintest.Direct(fmt.Sprint(2000+p), fmt.Sprintf("say: %d", n))) }
		for n := range messages / 2 {
			for p := range people {
				say(p, n)
			}
		}
		s.Stop() // what is on its way is neither lost nor stored twice
		for n := messages / 2; n < messages; n++ {
			for p := range people {
				say(p, n)
			}
		}
		if err := s.Serve(); err != nil {
			t.Fatal(err)
		}
		for p := range people {
			if got := shown(t, s, plugintest.DirectOf(fmt.Sprint(2000+p)), messages); !slices.Equal(got, []string{"0", "1", "2", "3", "4", "5"}) {
				t.Errorf("%d: %q", p, got)
			}
		}
		awaitPlugin(t, s, func() bool { return s.Stats().Confirmed == people*messages })
		if n := h.stored(t); n != people*messages {
			t.Errorf("%d are stored", n)
		}
		s.Say(plugintest.Direct("3000", "slow: 1"))
		shown(t, s, plugintest.DirectOf("3000"), 1)
		if st := s.Stats(); st.Lost != 0 || st.Typing == 0 {
			t.Errorf("%+v", st)
		}
		if c := h.state(t, "pl", gatewayv1.ChannelState_CHANNEL_STATE_UP); c.GetIn() > people*messages+1 || c.GetWhat() != "@demo_bot, lease gateway" {
			t.Errorf("%v", c)
		}
		if o.DSN != "" {
			return
		}
		h.Stop()
		say(0, 6)
		h = plugged(t, s, world.Options{Home: h.Home}, "dm: open")
		if got := shown(t, s, "dm-2000", messages+1); len(got) != messages+1 || got[messages] != "6" {
			t.Errorf("%q", got)
		}
		if first := s.First(); first[len(first)-1] != fmt.Sprint(people*messages+1) {
			t.Errorf("streams began with %q", first)
		}
		if n := h.stored(t); n != people*messages+2 {
			t.Errorf("after a restart %d are stored", n)
		}
	})
}

// Strangers are paired, a long reply goes out in parts of the plugin's limit, a file arrives, and a
// notice can be sent to a person.
func TestPluginServices(t *testing.T) {
	s := channelPlugin(t)
	h := plugged(t, s, world.Options{}, "dm: pairing, allow_from: [\"1207\"]")
	s.Say(plugintest.Direct("31", "say: a stranger"))
	if got := shown(t, s, "dm-31", 1); !strings.Contains(got[0], "Code: ") {
		t.Errorf("%q", got)
	}
	s.AddFile("f1", []byte("content"))
	u := plugintest.Direct("1207", "say: "+strings.Repeat("word ", 150))
	u.Attachments = []*channelv1.Attachment{{Id: "f1", Type: "file", Name: "a.txt", Mime: "text/plain"}}
	u.Extra = map[string]string{"irc.modes": "+o"}
	s.Say(u)
	got := shown(t, s, "dm-1207", 2)
	if len(got) != 2 || len(got[0]) > 500 || strings.Count(got[0]+got[1], "word") != 150 {
		t.Errorf("%q", got)
	}
	list, err := filepath.Glob(filepath.Join(h.Home, "agents/admin/workdir/inbox/*/a.txt"))
	if b, _ := os.ReadFile(strings.Join(list, "")); err != nil || len(list) != 1 || string(b) != "content" {
		t.Errorf("%q %v: %q", list, err, b)
	}
	stored, err := h.Threads.PeekEvents(t.Context(), &registryv1.PeekEventsRequest{Thread: &registryv1.ThreadRef{AgentId: "admin", ThreadId: "inbox"}, Limit: 10})
	if err != nil || len(stored.GetEvents()) != 1 || !strings.Contains(stored.GetEvents()[0].GetContent(), `"extra":{"irc.modes":"+o"}`) {
		t.Errorf("%v: %v", err, stored)
	}
	r, err := h.World.Gateway.TestChannel(t.Context(), &gatewayv1.TestChannelRequest{Name: "pl", To: "1207"})
	if err != nil || r.GetProviderId() == "" {
		t.Error(r, err)
	}
	if _, err := h.World.Gateway.TestChannel(t.Context(), &gatewayv1.TestChannelRequest{Name: "pl", To: "99"}); !fault.Is(err, fault.ChannelRejected) {
		t.Error(err)
	}
	for code, reason := range map[codes.Code]string{codes.Aborted: fault.ChannelConflict, codes.Unauthenticated: fault.ChannelAuth, codes.Unavailable: fault.ChannelUnavailable} {
		s.Fail(plugintest.Fault{Method: "Send", Code: code, Message: "no", Times: 1})
		if _, err := h.World.Gateway.TestChannel(t.Context(), &gatewayv1.TestChannelRequest{Name: "pl", To: "1207"}); !fault.Is(err, reason) {
			t.Errorf("%v: %v", code, err)
		}
	}
	if got := shown(t, s, "dm-1207", 3); got[2] != "This is a test." {
		t.Errorf("%q", got)
	}
	if n := h.stored(t); n != 1 {
		t.Errorf("%d are stored", n)
	}
}

// Large messages of one conversation, and large data of the platform, do not fit into one call of the registry, and are
// stored all the same; one that breaks a rule is left out and holds up no other.
func TestPluginLargeMessages(t *testing.T) {
	s := channelPlugin(t)
	h := plugged(t, s, world.Options{}, "dm: open")
	for range 8 {
		s.Say(plugintest.Direct("1207", "say: "+strings.Repeat("x", 900_000)))
	}
	for range 20 {
		u := plugintest.Direct("1207", "say: with data")
		u.Extra = map[string]string{}
		for n := range 32 {
			u.Extra[fmt.Sprint(n)] = strings.Repeat("x", 8<<10)
		}
		s.Say(u)
	}
	s.Say(&channelv1.ReceiveResponse{Text: "say: without a place"})
	bad := plugintest.Direct("1207", "say: of a long id")
	bad.MessageId = strings.Repeat("m", 1025)
	s.Say(bad)
	s.Say(plugintest.Direct("1207", "say: after them"))
	awaitPlugin(t, s, func() bool { return s.Stats().Confirmed == 31 })
	if n := h.stored(t); n != 29 {
		t.Errorf("%d are stored", n)
	}
	h.state(t, "pl", gatewayv1.ChannelState_CHANNEL_STATE_UP)
}

// Parts of an album whose texts do not fit into one message are several ones.
func TestPluginLargeAlbum(t *testing.T) {
	s := channelPlugin(t)
	h := plugged(t, s, world.Options{}, "dm: open")
	for range 6 {
		u := plugintest.Direct("1207", "say: "+strings.Repeat("x", 700_000))
		u.Album = "a1"
		s.Say(u)
	}
	s.Say(plugintest.Direct("1207", "say: after them"))
	awaitPlugin(t, s, func() bool { return s.Stats().Confirmed == 7 })
	if n := h.stored(t); n != 7 {
		t.Errorf("%d are stored", n)
	}
}

// A message without an identifier cannot be told from another one: all of them are refused, and none is taken for a repeat of
// another.
func TestPluginNamelessMessages(t *testing.T) {
	s := channelPlugin(t)
	h := plugged(t, s, world.Options{}, "dm: open")
	for _, edit := range []string{"", "", "v2"} {
		u := plugintest.Direct("1207", "say: nameless")
		u.Edit, u.Album = edit, "a1"
		s.SayNameless(u)
	}
	for _, text := range []string{"part", "after them"} {
		u := plugintest.Direct("1207", "say: "+text)
		u.Album = "a1"
		s.Say(u)
		s.SayNameless(u)
	}
	awaitPlugin(t, s, func() bool { return s.Stats().Confirmed == 7 })
	if n := h.stored(t); n != 2 {
		t.Errorf("%d are stored", n)
	}
}

// S2-12: what is wrong with a plugin is a state that names it, and leaves other accounts alone. One
// that is started later is found.
func TestPluginStates(t *testing.T) {
	s, refusing, away := channelPlugin(t), channelPlugin(t), channelPlugin(t)
	refusing.Fail(plugintest.Fault{Method: "Describe", Code: codes.Unauthenticated, Message: "the token is refused", Times: -1})
	away.Stop()
	h := open(t, world.Options{}, fmt.Sprintf("  pl: {type: plugin, plugin: %q, dm: open}\n  bad: {type: plugin, plugin: %q}\n  off: {type: plugin, plugin: %q, dm: open}\n  same: {type: plugin, plugin: %q}\n",
		s.Address(), refusing.Address(), away.Address(), s.Address()))
	if c := h.state(t, "bad", gatewayv1.ChannelState_CHANNEL_STATE_AUTH); !strings.Contains(c.GetWhat(), "plugin bad: the token is refused") || !strings.Contains(c.GetWhat(), "agentctl channels restart bad") {
		t.Errorf("%v", c)
	}
	if c := h.state(t, "off", gatewayv1.ChannelState_CHANNEL_STATE_ERROR); !strings.Contains(c.GetWhat(), "cannot be reached at /") || !strings.Contains(c.GetWhat(), "channels.off.plugin") {
		t.Errorf("%v", c)
	}
	up := h.states(t, "pl", "same")
	if !slices.Contains(up, gatewayv1.ChannelState_CHANNEL_STATE_UP) || !slices.Contains(up, gatewayv1.ChannelState_CHANNEL_STATE_CONFLICT) {
		t.Errorf("two accounts of one identity are %v", up)
	}
	s.Say(plugintest.Direct("1207", "say: hello"))
	refusing.Heal()
	if _, err := h.World.Gateway.RestartChannel(t.Context(), &gatewayv1.RestartChannelRequest{Name: "bad"}); err != nil {
		t.Error(err)
	}
	h.state(t, "bad", gatewayv1.ChannelState_CHANNEL_STATE_CONFLICT) // it is bot-1, too
	if err := away.Serve(); err != nil {
		t.Fatal(err)
	}
	d := plugintest.Default()
	d.Identity = "bot-2"
	away.Set(d)
	h.state(t, "off", gatewayv1.ChannelState_CHANNEL_STATE_UP)
	away.Say(plugintest.Direct("1207", "say: late"))
	if got := shown(t, away, "dm-1207", 1); got[0] != "late" {
		t.Errorf("%q", got)
	}
	_, err := h.Homes.SetHomeValue(t.Context(), &registryv1.SetHomeValueRequest{Path: []string{"channels", "wrong"}, Value: "{type: plugin, plugin: run/a.sock}"})
	if err == nil || !strings.Contains(err.Error(), "absolute path of a socket") {
		t.Error(err)
	}
}

// states waits until accounts are neither starting nor unknown, and returns their states.
func (h *site) states(t *testing.T, names ...string) (list []gatewayv1.ChannelState) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; <-time.After(5 * time.Millisecond) {
		r, err := h.World.Gateway.ListChannels(t.Context(), &gatewayv1.ListChannelsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		list = nil
		for _, c := range r.GetChannels() {
			if slices.Contains(names, c.GetName()) && c.GetState() != gatewayv1.ChannelState_CHANNEL_STATE_STARTING {
				list = append(list, c.GetState())
			}
		}
		if len(list) == len(names) {
			return list
		}
		if time.Now().After(end) {
			t.Fatalf("%v", r)
		}
	}
}
