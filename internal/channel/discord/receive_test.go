package discord_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/channel/channeltest"
	"github.com/theclaw/agents/internal/channel/discord"
	"github.com/theclaw/agents/internal/channel/discord/discordtest"
)

const me = discordtest.BotID

func bot() discordtest.User {
	return discordtest.User{ID: me, Username: discordtest.BotName, Bot: true}
}

// TestUpdates is S3-104: each kind of message as the registry gets it, and those that say nothing to
// the account.
func TestUpdates(t *testing.T) {
	s, in := server(t), channeltest.NewIntake()
	stop := start(t, s, in)
	await(t, s, "identify", 1)
	say := func(m discordtest.Message) discordtest.Message {
		if m.Author.ID == "" {
			m.Author = ann
		}
		return s.Say(m)
	}
	dm := say(discordtest.Message{ChannelID: "10", Content: "hello"})
	mention := say(discordtest.Message{ChannelID: "20", Content: "<@" + me + "> status <@!501>", Mentions: []discordtest.User{bot(), ann}})
	thread := say(discordtest.Message{ChannelID: "21", Content: "in a thread"})
	group := say(discordtest.Message{ChannelID: "30", Content: "in a group"})
	say(discordtest.Message{ChannelID: "10", Author: bot(), Content: "my own"})
	say(discordtest.Message{ChannelID: "20", Type: 7, Content: "joined"})
	say(discordtest.Message{ChannelID: "20", Content: ""})
	mine := say(discordtest.Message{ChannelID: "20", Author: bot(), Content: "what I said"})
	reply := say(discordtest.Message{
		ChannelID: "20", Type: 19, Content: "yes", Reference: &discordtest.Reference{ID: mine.ID}, Referenced: &mine,
	})
	program := say(discordtest.Message{ChannelID: "20", Author: discordtest.User{ID: "502", Username: "other", Bot: true}, Content: "beep"})
	s.Change("10", dm.ID, "hello again")
	s.Dispatch("MESSAGE_UPDATE", `{"id":"`+dm.ID+`","channel_id":"10","author":{"id":"501"},"content":"hello","edited_timestamp":null,"embeds":[{}]}`)
	s.Dispatch("MESSAGE_CREATE", `{"id":7,"content":[]}`)
	s.Dispatch("TYPING_START", `null`)
	voice := say(discordtest.Message{
		ChannelID: "10", Flags: 1 << 13,
		Attachments: json.RawMessage(`[{"id":"1","filename":"voice-message.ogg","content_type":"audio/ogg","size":5,"url":"` + s.AddFile("v.ogg", []byte("audio")) + `"}]`),
	})
	s.Dispatch("MESSAGE_CREATE", `{"id":"99","channel_id":"10","author":{"id":"501","username":"ann"},"content":"","timestamp":"2026-11-28T10:00:00.123000+00:00",
		"type":0,"message_reference":{"type":1,"message_id":"5","channel_id":"6"},"sticker_items":[{"name":"wave"}],
		"message_snapshots":[{"message":{"content":"forwarded","attachments":[{"filename":"a.png","content_type":"image/png","size":3,"url":"https://elsewhere.example/a.png"}]}}]}`)

	key := func(m discordtest.Message) string { return "discord:" + me + ":" + m.ChannelID + ":" + m.ID }
	base := func(m discordtest.Message, kind string) channel.Update {
		at, _ := time.Parse(time.RFC3339, m.Timestamp)
		return channel.Update{
			Key: key(m), Kind: kind, SessionID: m.ChannelID, PeerID: "501", PeerName: "Ann", Guild: m.GuildID, MessageID: m.ID, Text: m.Content, SentAt: at,
		}
	}
	want := []channel.Update{
		base(dm, "dm"), base(mention, "channel"), base(thread, "channel"), base(group, "group"), base(reply, "channel"), base(program, "channel"),
		base(dm, "dm"), base(voice, "dm"),
		{
			Key: "discord:" + me + ":10:99", Kind: "dm", SessionID: "10", PeerID: "501", PeerName: "ann", MessageID: "99", Text: "forwarded\n[sticker wave]", Forwarded: true,
			SentAt: time.Date(2026, 11, 28, 10, 0, 0, 123e6, time.UTC), Attachments: []channel.Attachment{{Type: "image", MIME: "image/png", Name: "a.png", Size: 3}},
		},
	}
	want[1].Mentioned, want[1].Text = true, "@demo_bot status @ann"
	want[2].Parent = "20"
	want[4].Mentioned, want[4].ReplyTo = true, &channel.ReplyTo{ID: mine.ID, Text: "what I said", Mine: true}
	want[5].PeerID, want[5].PeerName, want[5].Bot = "502", "other", true
	changed := s.Messages("10")[0]
	at, err := time.Parse(time.RFC3339, *changed.Edited)
	if err != nil {
		t.Fatal(err)
	}
	want[6].EditOf, want[6].Key, want[6].Text, want[6].SentAt = want[6].Key, want[6].Key+fmt.Sprintf(":e%d", at.UnixMicro()), "hello again", at
	want[7].Attachments = []channel.Attachment{{Type: "voice", MIME: "audio/ogg", Name: "voice-message.ogg", Size: 5}}
	got := wait(t, in, len(want))
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(channel.Attachment{}, "Open"), cmpopts.EquateApproxTime(0)); diff != "" {
		t.Error(diff)
	}
	if in.Skipped != 7 { // two of the bot, one that joined, an empty one, a preview, and two that are not known
		t.Errorf("%d updates are counted as ignored", in.Skipped)
	}
	if in.Identity != me || in.Name != "@demo_bot" {
		t.Errorf("connected as %q, %q", in.Identity, in.Name)
	}
	if err := stop(); err != nil {
		t.Errorf("stopped with %v", err)
	}
	// A channel is asked for once.
	if n := strings.Count(strings.Join(s.Log(), "\n"), "GET /channels/ID"); n != 4 {
		t.Errorf("%d requests for 4 channels", n)
	}
	file := got[7].Attachments[0]
	content, err := file.Open(t.Context(), 5)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(content); string(b) != "audio" || err != nil {
		t.Errorf("read %q, %v", b, err)
	}
	if _, err := file.Open(t.Context(), 4); !errors.Is(err, channel.ErrTooLarge) {
		t.Error("a file of 5 bytes is fetched with a limit of 4")
	}
	if got[8].Attachments[0].Open != nil {
		t.Error("a file of another host can be fetched")
	}
}

// TestUnknownPlace: a channel that the platform cannot show, or does not, ends no connection. Messages
// of one that it does not show are those of a channel, and never direct ones; the others wait.
func TestUnknownPlace(t *testing.T) {
	for name, c := range map[string]struct {
		fault discordtest.Fault
		kinds []string
		asked int
	}{
		"for a moment":   {discordtest.Fault{Status: 503, Times: 2}, []string{"dm", "dm"}, 3},
		"lasting":        {discordtest.Fault{Status: 503, Times: 6}, []string{"dm", "dm"}, 8},
		"for a while":    {discordtest.Fault{Status: 500, Times: 3}, []string{"dm", "dm"}, 5},
		"refused":        {discordtest.Fault{Status: 403}, []string{"channel", "channel"}, 1},
		"does not exist": {discordtest.Fault{Status: 404}, []string{"channel", "channel"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s, in := server(t), channeltest.NewIntake()
			start(t, s, in)
			await(t, s, "identify", 1)
			s.Fail("GET /channels/ID", c.fault)
			var kinds []string
			for n := range c.kinds {
				s.Say(discordtest.Message{ChannelID: "10", Author: ann, Content: "hello"})
				kinds = append(kinds, wait(t, in, n+1)[n].Kind)
			}
			log := strings.Join(s.Log(), "\n")
			if asked := strings.Count(log, "GET /channels/ID"); !slices.Equal(kinds, c.kinds) || asked != c.asked || strings.Contains(log, "resume") {
				t.Errorf("took %q, asked %d times: %s", kinds, asked, log)
			}
		})
	}
}

// TestWaitingForPlace: messages of a channel that the platform cannot show are not judged. They come
// behind each other when it can, hold up no other channel, and come again after a crash.
func TestWaitingForPlace(t *testing.T) {
	s, in := server(t), channeltest.NewIntake()
	say := func(id, text string) { s.Say(discordtest.Message{ChannelID: id, Author: ann, Content: text}) }
	stop := start(t, s, in)
	await(t, s, "identify", 1)
	say("20", "known")
	wait(t, in, 1)
	const lasting = 1 << 20
	s.Fail("GET /channels/ID", discordtest.Fault{Status: 503, Times: lasting})
	say("10", "one")
	say("10", "two")
	say("20", "elsewhere")
	wait(t, in, 2)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	start(t, s, in)
	await(t, s, "resume", 1)
	say("10", "three")
	s.Fail("GET /channels/ID", discordtest.Fault{Status: 503})
	in.Await(t, "the direct messages", func() bool { return len(in.Stored) == 5 })
	var direct []string
	for _, u := range in.Taken {
		if u.SessionID == "10" {
			direct = append(direct, u.Kind+" "+u.Text)
		}
	}
	if want := []string{"dm one", "dm two", "dm three"}; !slices.Equal(direct, want) {
		t.Errorf("took %q, want %q", direct, want)
	}
}

// TestButtons: a message has the buttons that the platform takes. One that is pressed is a message of
// the person who does, and is confirmed when that is stored.
func TestButtons(t *testing.T) {
	s, in := server(t), channeltest.NewIntake()
	holding(in)
	start(t, s, in)
	await(t, s, "identify", 1)
	buttons := []channel.Button{{Text: strings.Repeat("x", 90), Command: "/approve ap-7"}, {Text: "again", Command: "/approve ap-7"}, {Text: "long", Command: strings.Repeat("c", 101)}, {}}
	for n := range 30 {
		buttons = append(buttons, channel.Button{Text: "b", Command: fmt.Sprint("/", n)})
	}
	c := sender(t, s)
	for _, to := range []channel.ReplyContext{to("20", "channel", ""), to("10", "dm", "")} {
		for _, more := range []bool{true, false} {
			m := channel.Message{Key: fmt.Sprint(more), Text: "Allow it?", More: more, Buttons: buttons, ReplyContext: to}
			if _, err := c.Send(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, id := range []string{"20", "10"} {
		list := s.Messages(id)
		asked := list[1]
		if len(list[0].Components) != 0 || len(asked.Components) != 5 || len(asked.Components[4].Buttons) != 5 || len(asked.Components[0].Buttons[0].Label) > 80 {
			t.Fatalf("sent %+v", list)
		}
		s.Press(asked, ann, "/approve ap-7")
		u := wait(t, in, i+1)[i]
		if u.Text != "/approve ap-7" || u.PeerID != ann.ID || u.PeerName != "Ann" || !u.Mentioned || u.SessionID != id || u.MessageID != asked.ID || u.Bot ||
			!strings.HasPrefix(u.Key, "discord:"+me+":"+id+":i") || u.Guild != asked.GuildID {
			t.Errorf("took %+v", u)
		}
		store(in)
		await(t, s, "confirmed", i+1)
	}
	s.Dispatch("INTERACTION_CREATE", `{"id":"1","token":"../../x","type":3,"channel_id":"20","user":{"id":"501"},"message":{"id":"5"},"data":{"custom_id":"/stop"}}`)
	s.Dispatch("INTERACTION_CREATE", `{"id":"1","token":"x","type":2,"channel_id":"20","user":{"id":"501"},"message":{"id":"5"},"data":{"custom_id":"/stop"}}`)
	s.Say(discordtest.Message{ChannelID: "10", Author: ann, Content: "after"})
	if got := wait(t, in, 3)[2].Text; got != "after" {
		t.Errorf("took %q", got)
	}
}

// TestResume: a connection that is cut goes on where it was: nothing is lost, and what is on its way
// is not taken twice. The next process gets what was not stored, and what came meanwhile.
func TestResume(t *testing.T) {
	s, in := server(t), channeltest.NewIntake()
	stop := start(t, s, in)
	await(t, s, "identify", 1)
	say := func(text string) { s.Say(discordtest.Message{ChannelID: "10", Author: ann, Content: text}) }
	say("1")
	wait(t, in, 1)
	holding(in)
	say("2")
	wait(t, in, 2)
	s.Cut(0)
	say("3") // without a connection
	await(t, s, "resume", 1)
	say("4")
	wait(t, in, 4)
	s.Send(`{"op":7,"d":null}`)
	await(t, s, "resume", 2)
	s.Send(`{"op":9,"d":true}`)
	await(t, s, "resume", 3)
	s.Send(`{"op":1,"d":null}`)
	await(t, s, "heartbeat", 1)
	if got := in.Texts(); !slices.Equal(got, []string{"1", "2", "3", "4"}) {
		t.Errorf("took %q", got)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	store(in) // too late: the next one may have begun
	say("5")
	next := channeltest.NewIntake()
	next.Cursors = in.Cursors
	start(t, s, next)
	wait(t, next, 4)
	if got := next.Texts(); !slices.Equal(got, []string{"2", "3", "4", "5"}) {
		t.Errorf("after a restart: %q", got)
	}
	if log := strings.Join(s.Log(), "\n"); strings.Count(log, "identify") != 1 || !strings.Contains(log, "resume 2") {
		t.Errorf("a session was not resumed: %s", log)
	}
}

// TestStoredInAnyOrder: what is kept is the last sequence before which everything is stored.
func TestStoredInAnyOrder(t *testing.T) {
	s, in := server(t), channeltest.NewIntake()
	holding(in)
	start(t, s, in)
	await(t, s, "identify", 1)
	for n := range 5 {
		s.Say(discordtest.Message{ChannelID: "10", Author: ann, Content: fmt.Sprint(n)})
	}
	wait(t, in, 5)
	sequence := func() (n int) {
		var k struct {
			Sequence int `json:"seq"`
		}
		if err := json.Unmarshal([]byte(in.Cursors["session"]), &k); err != nil {
			t.Fatal(err)
		}
		return k.Sequence
	}
	// The session began with sequence 1.
	for _, step := range []struct{ store, want int }{{3, 1}, {1, 1}, {0, 3}, {4, 3}, {2, 6}} {
		in.Waiting[step.store]()
		if got := sequence(); got != step.want {
			t.Errorf("after %d: kept %d, not %d", step.store, got, step.want)
		}
	}
}

// TestCuts: however often connections and processes end, each message is taken, in order, and one
// that was stored before the place that is kept is not taken again.
func TestCuts(t *testing.T) {
	s := server(t)
	seed := rand.Uint64()
	chance := rand.New(rand.NewPCG(seed, 0))
	kept, said, first := map[string]string{}, 0, 0
	all := map[string]int{}
	for process := range 8 {
		in := channeltest.NewIntake()
		in.Cursors = kept
		holding(in)
		stop := start(t, s, in)
		await(t, s, map[bool]string{true: "identify", false: "resume"}[process == 0], 1)
		began := first
		for range 1 + chance.IntN(12) {
			s.Say(discordtest.Message{ChannelID: "10", Author: ann, Content: fmt.Sprint(said)})
			said++
			switch chance.IntN(4) {
			case 0:
				s.Cut(0)
			case 1:
				wait(t, in, said-began)
				store(in)
				first = said
			}
		}
		wait(t, in, said-began)
		for i, text := range in.Texts() {
			if text != fmt.Sprint(began+i) {
				t.Fatalf("seed %d, process %d: update %d is %q, and %d were stored", seed, process, i, text, began)
			}
			all[text]++
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
	if len(all) != said {
		t.Errorf("seed %d: %d of %d messages", seed, len(all), said)
	}
}

// TestSessionLost: a session that cannot be resumed is replaced by another one.
func TestSessionLost(t *testing.T) {
	for name, lose := range map[string]func(*discordtest.Server){
		"forgotten":   (*discordtest.Server).Forget,
		"invalidated": func(s *discordtest.Server) { s.Send(`{"op":9,"d":false}`) },
		"timed out":   func(s *discordtest.Server) { s.Cut(4009) },
		"sequence":    func(s *discordtest.Server) { s.Cut(4007) },
	} {
		t.Run(name, func(t *testing.T) {
			s, in := server(t), channeltest.NewIntake()
			start(t, s, in)
			await(t, s, "identify", 1)
			s.Say(discordtest.Message{ChannelID: "10", Author: ann, Content: "1"})
			wait(t, in, 1)
			lose(s)
			await(t, s, "identify", 2)
			s.Say(discordtest.Message{ChannelID: "10", Author: ann, Content: "2"})
			if got := wait(t, in, 2)[1].Text; got != "2" {
				t.Errorf("took %q", got)
			}
		})
	}
}

// TestHeartbeats: they state the last sequence; a connection that does not answer two is replaced,
// by one that resumes.
func TestHeartbeats(t *testing.T) {
	s, in := server(t), channeltest.NewIntake()
	s.Heartbeat(20 * time.Millisecond)
	start(t, s, in)
	await(t, s, "identify", 1)
	await(t, s, "heartbeat 1", 2)
	s.Say(discordtest.Message{ChannelID: "10", Author: ann, Content: "1"})
	wait(t, in, 1)
	await(t, s, "heartbeat 2", 2)
	s.Mute(true)
	await(t, s, "resume", 1)
	s.Mute(false)
	s.Say(discordtest.Message{ChannelID: "10", Author: ann, Content: "2"})
	wait(t, in, 2)
	if got := in.Texts(); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("took %q", got)
	}
}

// TestAccountDown: what an account cannot receive for, as the gateway shows it.
func TestAccountDown(t *testing.T) {
	for name, c := range map[string]struct {
		fail   func(*discordtest.Server, *channeltest.Intake)
		reason string
		what   string
		after  time.Duration
	}{
		"token": {func(s *discordtest.Server, _ *channeltest.Intake) { s.Token("other") }, channel.ReasonAuth, "refused the token of dc", 0},
		"token of a gateway": {func(s *discordtest.Server, in *channeltest.Intake) {
			stop := start(t, s, in)
			if err := s.Wait(t.Context(), "identify", 1); err != nil {
				t.Fatal(err)
			}
			s.Say(discordtest.Message{ChannelID: "10", Author: ann, Content: "1"})
			wait(t, in, 1)
			_ = stop()
			in.Before = func() { s.Token("other") }
		}, channel.ReasonAuth, "refused the token of dc", 0},
		"intents":   {func(s *discordtest.Server, _ *channeltest.Intake) { s.NoContent(true) }, channel.ReasonAuth, "does not let the bot of dc read messages", 0},
		"conflict":  {func(_ *discordtest.Server, in *channeltest.Intake) { in.Refuse = conflict }, channel.ReasonConflict, "another", 0},
		"starts":    {func(s *discordtest.Server, _ *channeltest.Intake) { s.Starts(0) }, "", "no further session", 4 * time.Hour},
		"no answer": {func(s *discordtest.Server, _ *channeltest.Intake) { s.Fail("GET /users/@me", discordtest.Fault{}) }, "", "cannot be reached", 0},
		"limit": {func(s *discordtest.Server, _ *channeltest.Intake) {
			s.Fail("GET /gateway/bot", discordtest.Fault{Status: 429, Header: map[string]string{"Retry-After": "65"}, Body: `{"retry_after":65}`})
		}, "", "answered 429", 65 * time.Second},
		"elsewhere": {func(s *discordtest.Server, _ *channeltest.Intake) {
			s.Fail("GET /gateway/bot", discordtest.Fault{Status: 200, Body: `{"url":"wss://gateway.example.org"}`})
		}, "", "no gateway of the platform", 0},
	} {
		t.Run(name, func(t *testing.T) {
			s, in := server(t), channeltest.NewIntake()
			c.fail(s, in)
			taken := len(in.Texts())
			err := receive(t, s, in)
			e, ok := errors.AsType[*channel.Error](err)
			if !ok || e.Reason != c.reason || !strings.Contains(e.What, c.what) || e.RetryAfter != c.after || strings.Contains(e.What, token) {
				t.Errorf("ended with %#v: %v", e, err)
			}
			if len(in.Texts()) != taken {
				t.Errorf("took %q", in.Texts())
			}
		})
	}
}

var conflict = &channel.Error{Class: channel.Unavailable, Reason: channel.ReasonConflict, What: "another account receives as this bot"}

// TestDefinition: what of an entry is wrong.
func TestDefinition(t *testing.T) {
	for _, c := range []struct {
		d    channel.Definition
		want string
	}{
		{channel.Definition{Token: "env:T"}, ""},
		{channel.Definition{Token: "env:T", API: "https://proxy.example.org/discord"}, ""},
		{channel.Definition{Token: "env:T", API: "http://127.0.0.1:8081"}, ""},
		{channel.Definition{Token: "env:T", API: "http://localhost:8081"}, ""},
		{channel.Definition{}, "token"},
		{channel.Definition{Token: "env:T", API: "http://example.org"}, "api"},
		{channel.Definition{Token: "env:T", API: "https://a:b@example.org"}, "api"},
		{channel.Definition{Token: "env:T", API: "https://example.org/?x"}, "api"},
		{channel.Definition{Token: "env:T", API: "nothing"}, "api"},
		{channel.Definition{Token: "env:T", API: "https://example.org/\x00"}, "api"},
	} {
		if attribute, problem := discord.Type.Check(c.d); attribute != c.want || (problem == "") != (c.want == "") {
			t.Errorf("%+v: %q, %q", c.d, attribute, problem)
		}
	}
}
