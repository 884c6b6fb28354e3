package slack_test

import (
	"cmp"
	"context"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/channel/channeltest"
	"github.com/theclaw/agents/internal/channel/slack"
	"github.com/theclaw/agents/internal/channel/slack/slacktest"
)

func TestMain(m *testing.M) {
	slack.Verify(m)
}

// bob and ann write to the bot, in the channel general too.
var (
	bob     = slacktest.User{ID: "U1207", Name: "bob", RealName: "Bob B"}
	ann     = slacktest.User{ID: "U31", Name: "ann", RealName: "Ann A"}
	general = slacktest.Channel{ID: "C100", Type: "channel", Name: "general"}
)

// serve starts a workspace.
func serve(t *testing.T, c slacktest.Config) *slacktest.Server {
	t.Helper()
	c.AckLimit = cmp.Or(c.AckLimit, time.Minute) // a slow machine is no repeat
	s, err := slacktest.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	s.AddUser(bob)
	s.AddUser(ann)
	s.AddChannel(general)
	s.AddChannel(slacktest.IM(bob))
	return s
}

// account is the definition of an account at a server, with what reads its tokens.
func account(s *slacktest.Server) (channel.Definition, channel.Deps) {
	return channel.Definition{Type: "slack", Token: "env:SLACK_BOT", AppToken: "env:SLACK_APP", API: s.URL()}, channel.Deps{Resolve: s.Resolve}
}

// receiver is one of an account at a server.
func receiver(t *testing.T, s *slacktest.Server) channel.Receiver {
	t.Helper()
	d, deps := account(s)
	r, err := slack.Type.Receive("sl", d, deps)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// receive runs a receiver until stop is called, which returns its error.
func receive(t *testing.T, s *slacktest.Server, in channel.Intake) (stop func() error) {
	t.Helper()
	return channeltest.Run(t, receiver(t, s), in)
}

// ends runs a receiver that has to end on its own, and returns its error.
func ends(t *testing.T, s *slacktest.Server, in channel.Intake) error {
	t.Helper()
	return receiver(t, s).Receive(t.Context(), in)
}

func say(s *slacktest.Server, text string) string {
	return s.Say(slacktest.Message{Channel: slacktest.IM(bob), User: bob.ID, Text: text})
}

// wait waits until a condition holds at the server.
func wait(t *testing.T, s *slacktest.Server, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Wait(ctx, holds); err != nil {
		t.Fatalf("%v: %+v", err, s.Stats())
	}
}

// acked waits until the bot acknowledged n events.
func acked(t *testing.T, s *slacktest.Server, n int) {
	t.Helper()
	wait(t, s, func() bool { return s.Stats().Acked >= n })
}
