package discord_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/channel/channeltest"
	"github.com/theclaw/agents/internal/channel/discord"
	"github.com/theclaw/agents/internal/channel/discord/discordtest"
)

const token = "OTAw.Gh1.secret"

// definition is an account of a server.
func definition(s *discordtest.Server) channel.Definition {
	return channel.Definition{Type: "discord", Token: "env:DC", API: s.URL}
}

func resolve(context.Context, string) (string, error) { return token, nil }

// server starts one with a direct channel (10), a text channel (20), a thread of it (21) and a group (30).
func server(t *testing.T) *discordtest.Server {
	t.Helper()
	s, err := discordtest.New(token)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	s.AddChannel(discordtest.Channel{ID: "10", Type: 1})
	s.AddChannel(discordtest.Channel{ID: "20", Type: 0, GuildID: "81", ParentID: "70"})
	s.AddChannel(discordtest.Channel{ID: "21", Type: 11, GuildID: "81", ParentID: "20"})
	s.AddChannel(discordtest.Channel{ID: "30", Type: 3})
	return s
}

var ann = discordtest.User{ID: "501", Username: "ann", GlobalName: "Ann"}

// holding stores nothing from now on.
func holding(in *channeltest.Intake) {
	in.Do(func() { in.Hold = func(channel.Update) bool { return true } })
}

// store stores what waits, the last first.
func store(in *channeltest.Intake) {
	var list []func()
	in.Do(func() { list, in.Waiting = in.Waiting, nil })
	for _, f := range slices.Backward(list) {
		f()
	}
}

// wait waits for so many updates and returns all.
func wait(t *testing.T, in *channeltest.Intake, n int) (list []channel.Update) {
	t.Helper()
	in.Await(t, fmt.Sprintf("%d updates", n), func() bool {
		list = slices.Clip(in.Taken)
		return len(list) >= n
	})
	return list
}

// receiver is one of an account at a server.
func receiver(t *testing.T, s *discordtest.Server) channel.Receiver {
	t.Helper()
	r, err := discord.NewReceiver(definition(s), resolve, 10*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// start receives until stop, which returns the error of it.
func start(t *testing.T, s *discordtest.Server, in channel.Intake) (stop func() error) {
	t.Helper()
	return channeltest.Run(t, receiver(t, s), in)
}

// receive receives until it ends without being stopped, and returns its error.
func receive(t *testing.T, s *discordtest.Server, in channel.Intake) error {
	t.Helper()
	return receiver(t, s).Receive(t.Context(), in)
}

func await(t *testing.T, s *discordtest.Server, begin string, n int) {
	t.Helper()
	if err := s.Wait(t.Context(), begin, n); err != nil {
		t.Fatal(err)
	}
}
