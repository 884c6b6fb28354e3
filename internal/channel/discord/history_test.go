package discord_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/channel/channeltest"
	"github.com/theclaw/agents/internal/channel/discord/discordtest"
)

// What was written while the session was lost arrives in its order, each message once, before what
// comes over the new session; a restart after it fetches nothing.
func TestOutage(t *testing.T) {
	s, in := server(t), channeltest.NewIntake()
	write := func(channel, text string) discordtest.Message {
		return s.Say(discordtest.Message{ChannelID: channel, Author: ann, Content: text})
	}
	stop := start(t, s, in)
	await(t, s, "identify", 1)
	write("10", "direct")
	write("20", "channel")
	in.Await(t, "the first messages", func() bool { return len(in.Stored) == 2 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	want := []string{"direct"}
	for n := range 250 {
		want = append(want, fmt.Sprint("direct ", n))
		write("10", want[n+1])
	}
	edited := write("20", "channel 2")
	s.Change("20", edited.ID, "channel two")
	s.Say(discordtest.Message{ChannelID: "10", Author: discordtest.User{ID: discordtest.BotID, Username: discordtest.BotName, Bot: true}, Content: "mine"})
	s.Forget()
	stop = start(t, s, in)
	await(t, s, "identify", 2)
	write("10", "live")
	want = append(want, "live")
	in.Await(t, "what was missed", func() bool { return len(in.Stored) == 2+252 })
	var direct []string
	for _, u := range in.Taken {
		switch {
		case u.SessionID == "10" && !slices.Contains(direct, u.Text): // live is in the history, too
			direct = append(direct, u.Text)
		case u.Text == "channel two":
			if u.Guild != "81" || u.Kind != "channel" || u.EditOf != "" || u.MessageID != edited.ID {
				t.Errorf("%+v", u)
			}
		}
		if (u.Kind == "dm") != (u.SessionID == "10") {
			t.Errorf("%+v", u)
		}
	}
	if !slices.Equal(direct, want) {
		t.Errorf("%d messages, %q", len(direct), direct[max(len(direct)-3, 0):])
	}
	in.Await(t, "the session", func() bool { return in.Cursors["session"] != "" })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	taken := len(in.Taken)
	start(t, s, in)
	await(t, s, "resume", 1)
	write("10", "later")
	in.Await(t, "the last one", func() bool { return in.Taken[len(in.Taken)-1].Text == "later" })
	// The position may have been stored before that of the message live was: then it is resumed from there.
	if rest := in.Taken[taken:]; len(rest) > 2 || len(rest) == 2 && rest[0].Text != "live" {
		t.Errorf("%+v", rest)
	}
}

// A start that is killed before everything is stored leaves the session where it was: the next one
// begins another session and fetches what is missing. A conversation that cannot be fetched now
// holds up no other one; one that the platform hides is left out.
func TestOutageOfStoring(t *testing.T) {
	s, in := server(t), channeltest.NewIntake()
	stop := start(t, s, in)
	await(t, s, "identify", 1)
	for _, c := range []string{"10", "20", "30"} {
		s.Say(discordtest.Message{ChannelID: c, Author: ann, Content: "first"})
	}
	in.Await(t, "the first messages", func() bool { return len(in.Stored) == 3 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	var missed discordtest.Message
	for _, c := range []string{"20", "10"} {
		missed = s.Say(discordtest.Message{ChannelID: c, Author: ann, Content: "missed"})
	}
	s.Forget()
	in.Do(func() { in.Hold = func(u channel.Update) bool { return u.Text == "missed" && u.SessionID == "10" } })
	stop = start(t, s, in)
	in.Await(t, "the other conversation", func() bool { return len(in.Stored) == 4 && len(in.Waiting) == 1 })
	s.Say(discordtest.Message{ChannelID: "20", Author: ann, Content: "live"})
	in.Await(t, "what is written now", func() bool { return len(in.Stored) == 5 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	in.Do(func() { in.Hold, in.Waiting = nil, nil }) // killed
	s.Fail("GET /channels/ID/messages", discordtest.Fault{Status: http.StatusInternalServerError, Times: 2})
	start(t, s, in)
	in.Await(t, "the message", func() bool { return in.Stored["discord:"+discordtest.BotID+":10:"+missed.ID] })
	await(t, s, "identify", 3)
}
