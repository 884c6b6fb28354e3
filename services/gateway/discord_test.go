package gateway_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/channel/discord/discordtest"
	"github.com/theclaw/agents/internal/testing/backendtest"
	"github.com/theclaw/agents/internal/testing/world"
	gatewayv1 "github.com/theclaw/agents/proto/gen/theclaw/gateway/v1"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

const (
	discordToken  = "OTAw.Gh1.gateway"
	discordDirect = "701207" // the direct channel of Bob
	discordText   = "20"     // a text channel
)

var discordBob = discordtest.User{ID: "1207", Username: "bob", GlobalName: "Bob"}

// guild starts a Discord.
func guild(t *testing.T) *discordtest.Server {
	t.Helper()
	s, err := discordtest.New(discordToken)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	s.AddUser(discordBob)
	s.AddChannel(discordtest.Channel{ID: discordDirect, Type: 1, Recipients: []discordtest.User{discordBob}})
	s.AddChannel(discordtest.Channel{ID: discordText, Type: 0, GuildID: "81"})
	return s
}

// discord starts a world with the account dc, whose entry has further keys.
func discord(t *testing.T, s *discordtest.Server, o world.Options, keys string) *site {
	t.Helper()
	h := open(t, o, fmt.Sprintf("  dc: {type: discord, token: \"env:DC\", api: %q, %s}\n", s.URL, keys))
	h.state(t, "dc", gatewayv1.ChannelState_CHANNEL_STATE_UP)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := s.Wait(ctx, "identify ", 1); err != nil { // the platform delivers nothing that is older than the first session
		t.Fatal(err)
	}
	return h
}

// discordSays are the texts of the bot in a channel.
func discordSays(s *discordtest.Server, channel string) (out []string) {
	for _, m := range s.Messages(channel) {
		if m.Author.Bot {
			out = append(out, m.Content)
		}
	}
	return out
}

// awaitDiscord waits until the bot has written so many messages in a channel, and returns them.
func awaitDiscord(t *testing.T, s *discordtest.Server, channel string, n int) (list []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for requests := 1; ; requests++ {
		if list = discordSays(s, channel); len(list) >= n {
			return list
		}
		if err := s.Wait(ctx, "POST /channels/ID/messages", requests); err != nil {
			t.Fatalf("%v: %q", err, list)
		}
	}
}

// S2-16, S2-17: what people write in a direct channel is answered in its order, also when the connection was lost, and
// after a restart of all services with what was written meanwhile; each message is stored once.
func TestDiscord(t *testing.T) {
	each(t, func(t *testing.T, o world.Options) {
		s := guild(t)
		h := discord(t, s, o, "dm: open")
		say := func(text string) {
			s.Say(discordtest.Message{ChannelID: discordDirect, Author: discordBob, Content: text})
		}
		want := []string{"0", "1", "2"}
		for _, text := range want {
			say("say: " + text)
		}
		if got := awaitDiscord(t, s, discordDirect, 3); !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
		if c := h.state(t, "dc", gatewayv1.ChannelState_CHANNEL_STATE_UP); c.GetIn() != 3 || c.GetLag() == nil || c.GetWhat() != "@demo_bot, lease gateway" {
			t.Errorf("%v", c)
		}
		s.Cut(0)
		say("say: after the cut")
		awaitDiscord(t, s, discordDirect, 4)
		if o.DSN == "" {
			h.Stop()
			say("say: later")
			h = discord(t, s, world.Options{Home: h.Home}, "dm: open")
			awaitDiscord(t, s, discordDirect, 5)
			want = append(want, "after the cut", "later")
		} else {
			want = append(want, "after the cut")
		}
		if got := discordSays(s, discordDirect); !slices.Equal(got, want) || h.stored(t) != int64(len(want)) {
			t.Errorf("%q, %d are stored", got, h.stored(t))
		}
	})
}

// S2-17, S2-18, S4-06: in a text channel the bot answers what mentions it, and the rest is context. Commands begin with ! as
// with /, in a direct channel and, with a mention, in a text channel; the texts that name commands name those that work.
func TestDiscordCommands(t *testing.T) {
	s := guild(t)
	h := discord(t, s, world.Options{}, `dm: open, groups: {allow: ["*"]}`)
	bot := discordtest.User{ID: discordtest.BotID, Username: discordtest.BotName, Bot: true}
	in := func(channel, text string) {
		m := discordtest.Message{ChannelID: channel, Author: discordBob, Content: text}
		if strings.Contains(text, "<@") {
			m.Mentions = []discordtest.User{bot}
		}
		s.Say(m)
	}
	mention := "<@" + discordtest.BotID + "> "
	for n, c := range []struct{ channel, text, want string }{
		{discordDirect, "!start", "This is the agent admin. Write a message; !help lists the commands."},
		{discordDirect, "!help", "\n!status - show the agent"},
		{discordDirect, "/whoami", "You are Bob (discord:1207) at the account dc."},
		{discordDirect, "!usage", "This session: no answers of models yet."},
		{discordDirect, "!approve ap-1", "only an owner may use /approve."},
		{discordDirect, "!think off", "Thinking: off."},
		{discordDirect, "!status", "Session: agent:admin:discord:dc:dm:1207, "},
		{discordDirect, "!nothing", "offline: !nothing"},
	} {
		in(c.channel, c.text)
		if got := awaitDiscord(t, s, c.channel, n+1)[n]; !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.text, got, c.want)
		}
	}
	in(discordText, "not for the bot")
	in(discordText, "!status")
	in(discordText, mention+"!status")
	if got := awaitDiscord(t, s, discordText, 1); len(got) != 1 || !strings.Contains(got[0], "Session: agent:admin:discord:channel:20, 0 messages") {
		t.Errorf("%q", got)
	}
	in(discordText, mention+"say: hello")
	if got := awaitDiscord(t, s, discordText, 2); len(got) != 2 || !strings.HasSuffix(got[1], "say: hello") {
		t.Errorf("%q", got)
	}
	if n := h.stored(t); n != 3 {
		t.Errorf("%d are stored, not 3", n)
	}
}

// S1-16, S2-17: !stop ends the run of the conversation, and the messages that wait behind it.
func TestDiscordStop(t *testing.T) {
	s := guild(t)
	h := discord(t, s, world.Options{}, "dm: open")
	for _, text := range []string{"slow: 3000", "say: never", "say: nor this"} {
		s.Say(discordtest.Message{ChannelID: discordDirect, Author: discordBob, Content: text})
	}
	backendtest.Await(t, "a run, and two messages that wait", func() bool {
		r, err := h.Turns.GetTurn(t.Context(), &registryv1.GetTurnRequest{AgentId: "admin", InboxId: 1})
		return err == nil && r.GetTurn().GetClaimedAt() != nil && h.stored(t) == 3
	})
	s.Say(discordtest.Message{ChannelID: discordDirect, Author: discordBob, Content: "!status"})
	if got := awaitDiscord(t, s, discordDirect, 1); !strings.Contains(got[0], "\nWaiting: 2 messages\n") {
		t.Errorf("%q", got)
	}
	s.Say(discordtest.Message{ChannelID: discordDirect, Author: discordBob, Content: "!stop"})
	if got := awaitDiscord(t, s, discordDirect, 2); len(got) != 2 || got[1] != "Stopped 1 run and 2 waiting messages." {
		t.Errorf("%q", got)
	}
}

// S3-48: the options of a question are buttons, and the person who was asked answers with one.
func TestDiscordQuestionButtons(t *testing.T) {
	s := guild(t)
	h := discord(t, s, world.Options{}, "dm: open")
	h.configure(t, "tools: {also_allow: [ask_user]}")
	s.Say(discordtest.Message{ChannelID: discordDirect, Author: discordBob, Content: `call: ask_user {"question":"Which account?","options":["main","savings"]}`})
	if got := awaitDiscord(t, s, discordDirect, 1); !strings.Contains(got[0], "Which account?") {
		t.Fatalf("%q", got)
	}
	list := s.Messages(discordDirect)
	m := list[len(list)-1]
	if len(m.Components) != 1 || len(m.Components[0].Buttons) != 2 || m.Components[0].Buttons[1].Label != "2. savings" {
		t.Fatalf("%+v", m)
	}
	s.Press(m, discordBob, m.Components[0].Buttons[1].Command)
	got := awaitDiscord(t, s, discordDirect, 3)[1:]
	if slices.Sort(got); got[0] != "Answered: `savings`" || !strings.HasSuffix(got[1], `{"answer":"savings"}`) {
		t.Errorf("%q", got)
	}
	if turn := h.Await(t, "admin", 1); turn.GetFate() != registryv1.Fate_FATE_REPLIED {
		t.Errorf("%v", turn)
	}
}
