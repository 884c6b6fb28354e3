package slack_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/channel/channeltest"
	"github.com/theclaw/agents/internal/channel/slack"
	"github.com/theclaw/agents/internal/channel/slack/slacktest"
)

// sender opens the sender of an account.
func sender(t *testing.T, s *slacktest.Server) channel.Channel {
	t.Helper()
	d, deps := account(s)
	c, err := slack.Type.Open("sl", d, deps)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// to is the address of a conversation.
func to(conversation, thread string) channel.ReplyContext {
	rc := channel.ReplyContext{}
	for key, value := range map[string]string{"channel_type": "slack", "channel_id": "sl", "session_id": conversation, "platform_thread": thread} {
		if value != "" {
			rc[key], _ = json.Marshal(value) // a text: it cannot fail
		}
	}
	return rc
}

func message(conversation, text string) channel.Message {
	return channel.Message{Key: "k1", Text: text, ReplyContext: to(conversation, ""), CreatedAt: time.Now().UTC().Format(time.RFC3339Nano)}
}

// S2-16: a reply arrives as mrkdwn, in its thread, with its key, and mentions and previews nothing.
func TestSend(t *testing.T) {
	s := serve(t, slacktest.Config{})
	c := sender(t, s)
	root := s.Say(slacktest.Message{Channel: general, User: ann.ID, Text: "root"})
	m := message("C100", "**bold** [a](https://example.org) <@U31> <!here> @here 1 < 2")
	m.ReplyContext = to("C100", root)
	r, err := c.Send(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	got := s.Messages("C100")
	if len(got) != 1 || got[0].TS != r.ProviderID || got[0].Thread != root || got[0].Key != "k1" || !got[0].Quiet {
		t.Fatalf("%+v %+v", got, r)
	}
	if want := "*bold* <https://example.org|a> &lt;@U31&gt; &lt;!here&gt; @here 1 &lt; 2"; got[0].Text != want {
		t.Errorf("%q", got[0].Text)
	}
	if c.Name() != "sl" || c.Guarantee() != channel.Query || channel.Destination(c, m) != "C100" {
		t.Error(c.Name(), c.Guarantee(), channel.Destination(c, m))
	}
}

// A text of any length arrives complete, in messages that the platform takes; what the limit says
// about a text is what is sent.
func TestLongText(t *testing.T) {
	s := serve(t, slacktest.Config{})
	c := sender(t, s)
	l := c.(channel.Limiter).Limit()
	if l.Max != 4000 || l.Size("a **b** &") != len("a *b* &amp;") || l.Size(strings.Repeat("&", 5000)) != 25000 {
		t.Errorf("%+v", l)
	}
	for name, text := range map[string]string{
		"words":   strings.Repeat("word ", 1900),
		"escaped": strings.Repeat("a & b < c\n", 400),
		"code":    "```go\n" + strings.Repeat("if a < b && c { return }\n", 250) + "```",
		"faces":   strings.Repeat("😀", 3000),
	} {
		t.Run(name, func(t *testing.T) {
			conversation := slacktest.Channel{ID: "C" + strings.ToUpper(name), Type: "channel"}
			s.AddChannel(conversation)
			r, err := c.Send(t.Context(), message(conversation.ID, text))
			if err != nil {
				t.Fatal(err)
			}
			list := s.Messages(conversation.ID)
			var ids, keys []string
			for _, m := range list {
				ids, keys = append(ids, m.TS), append(keys, m.Key)
			}
			if len(list) < 2 || strings.Join(ids, ",") != r.ProviderID || keys[0] != "k1" || keys[1] != "k1:2" {
				t.Errorf("%d messages, keys %q, %s", len(list), keys, r.ProviderID)
			}
		})
	}
}

// A message that may have arrived is looked for by its key, in its conversation or its thread, and
// only what is missing is sent: after a lost answer, and after a lost part.
func TestMaybeDuplicate(t *testing.T) {
	for name, thread := range map[string]bool{"conversation": false, "thread": true} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, slacktest.Config{})
			c := sender(t, s)
			root := ""
			if thread {
				root = s.Say(slacktest.Message{Channel: general, User: ann.ID, Text: "root"})
				for range 130 {
					s.Say(slacktest.Message{Channel: general, User: ann.ID, Text: "noise", Thread: root})
				}
			}
			m := message("C100", "hello")
			m.ReplyContext = to("C100", root)
			s.Fail(slacktest.Fault{Method: "chat.postMessage", Cut: slacktest.CutAfter})
			_, err := c.Send(t.Context(), m)
			if e := channel.AsError(err); e == nil || e.Class != channel.Unavailable || !e.InDoubt {
				t.Fatalf("%+v", e)
			}
			for range 5 {
				s.Say(slacktest.Message{Channel: general, User: ann.ID, Text: "noise", Thread: root})
			}
			m.MaybeDuplicate = true
			r, err := c.Send(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			if got := s.Messages("C100"); len(got) != 1 || got[0].TS != r.ProviderID {
				t.Errorf("%+v, receipt %s", got, r.ProviderID)
			}
			m.Key, m.Text = "k2", strings.Repeat("word ", 1500)
			s.Fail(slacktest.Fault{Method: "chat.postMessage", Status: 500})
			if e := channel.AsError(errOf(c.Send(t.Context(), m))); e == nil || !e.InDoubt {
				t.Fatalf("%+v", e)
			}
			if r, err = c.Send(t.Context(), m); err != nil || len(s.Messages("C100")) != 3 || strings.Count(r.ProviderID, ",") != 1 {
				t.Errorf("%v %+v: %d messages", err, r, len(s.Messages("C100")))
			}
			if r2, err := c.Send(t.Context(), m); err != nil || r2 != r || len(s.Messages("C100")) != 3 {
				t.Errorf("%v %+v: %d messages", err, r2, len(s.Messages("C100")))
			}
		})
	}
}

func errOf(_ channel.Receipt, err error) error { return err }

// Each refusal has the class, the reason and the fix that the deliverer and the owner need; no
// error has the token.
func TestSendFails(t *testing.T) {
	for _, c := range []struct {
		name    string
		fault   slacktest.Fault
		class   channel.Class
		reason  string
		inDoubt bool
		fix     string
	}{
		{"limited", slacktest.Fault{Status: 429, Error: "ratelimited", RetryAfter: 9}, channel.Unavailable, "", false, ""},
		{"limited in the body", slacktest.Fault{Error: "ratelimited", RetryAfter: 9}, channel.Unavailable, "", false, ""},
		{"token", slacktest.Fault{Error: "invalid_auth"}, channel.Unavailable, channel.ReasonAuth, false, "env:SLACK_BOT"},
		{"revoked", slacktest.Fault{Error: "token_revoked"}, channel.Unavailable, channel.ReasonAuth, false, "env:SLACK_BOT"},
		{"scope", slacktest.Fault{Error: "missing_scope", Needed: "chat:write"}, channel.Unavailable, channel.ReasonAuth, false, "add the scope chat:write"},
		{"unknown", slacktest.Fault{Error: "channel_not_found"}, channel.Rejected, "", false, "invite the bot"},
		{"archived", slacktest.Fault{Error: "is_archived"}, channel.Rejected, "", false, "unarchive"},
		{"outside", slacktest.Fault{Error: "not_in_channel"}, channel.Rejected, "", false, "/invite"},
		{"a word of the future", slacktest.Fault{Error: "no_fun"}, channel.Rejected, "", false, ""},
		{"broken", slacktest.Fault{Status: 502}, channel.Unavailable, "", true, ""},
		{"inside", slacktest.Fault{Error: "fatal_error"}, channel.Unavailable, "", true, ""},
		{"cut", slacktest.Fault{Cut: slacktest.CutBefore}, channel.Unavailable, "", true, "check the network"},
		{"no JSON", slacktest.Fault{Body: "ok"}, channel.Unavailable, "", true, ""},
		{"no ts", slacktest.Fault{Body: `{"ok":true}`}, channel.Unavailable, "", true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, slacktest.Config{})
			c.fault.Method = "chat.postMessage"
			s.Fail(c.fault)
			e := channel.AsError(errOf(sender(t, s).Send(t.Context(), message("C100", "hello"))))
			if e == nil || e.Class != c.class || e.Reason != c.reason || e.InDoubt != c.inDoubt || !strings.Contains(e.Fix, c.fix) || !strings.HasPrefix(e.What, "slack") {
				t.Fatalf("%+v", e)
			}
			if c.fault.RetryAfter > 0 && e.RetryAfter != 9*time.Second {
				t.Errorf("again after %v", e.RetryAfter)
			}
			for cause := error(e); cause != nil; cause = errors.Unwrap(cause) {
				if strings.Contains(cause.Error(), "TEST-token") {
					t.Errorf("the error has the token: %v", cause)
				}
			}
		})
	}
}

// What is refused before a request is one of the sender's own rules, and a platform that cannot be
// reached leaves no doubt.
func TestNotSent(t *testing.T) {
	s := serve(t, slacktest.Config{})
	c := sender(t, s)
	for name, rc := range map[string]channel.ReplyContext{
		"none": nil, "another platform": to("-100200", ""), "a path": to("../C1", ""), "no thread": to("C100", "7"),
	} {
		m := message("C100", "x")
		m.ReplyContext = rc
		if e := channel.AsError(errOf(c.Send(t.Context(), m))); e == nil || e.Class != channel.Rejected || e.Reason != channel.ReasonReplyContext || !e.BeforeSend {
			t.Errorf("%s: %+v", name, e)
		}
	}
	d, deps := account(s)
	d.API = "http://127.0.0.1:1/api"
	down, _ := slack.Type.Open("sl", d, deps)
	if e := channel.AsError(errOf(down.Send(t.Context(), message("C100", "x")))); e == nil || e.Class != channel.Unavailable || e.InDoubt {
		t.Errorf("%+v", e)
	}
	d.Token = "env:OTHER"
	none, _ := slack.Type.Open("sl", d, deps)
	if e := channel.AsError(errOf(none.Send(t.Context(), message("C100", "x")))); e == nil || e.Reason != channel.ReasonAuth || !strings.Contains(e.Fix, "env:OTHER") {
		t.Errorf("%+v", e)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if e := channel.AsError(errOf(c.Send(ctx, message("C100", "x")))); e == nil || e.Class != channel.Interrupted {
		t.Errorf("%+v", e)
	}
	if calls := s.Calls(""); len(calls) != 0 {
		t.Errorf("%+v", calls)
	}
}

// Our own rate holds a conversation back, and no other.
func TestRate(t *testing.T) {
	s := serve(t, slacktest.Config{})
	c := sender(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const sends = 40
	ended := make(chan *channel.Error, sends)
	for range sends {
		go func() { ended <- channel.AsError(errOf(c.Send(ctx, message("C100", "x")))) }()
	}
	turnedAway := false
	for range sends {
		e := <-ended
		if e != nil && e.Class == channel.Unavailable && e.BeforeSend && e.RetryAfter > 5*time.Second && !turnedAway {
			turnedAway = true // others still wait
			if _, err := c.Send(t.Context(), message("D1207", "other")); err != nil {
				t.Error(err)
			}
			cancel()
		}
	}
	if n := len(s.Messages("C100")); !turnedAway || n > 10 {
		t.Errorf("turned away %v, %d messages", turnedAway, n)
	}
}

// S2-16: buttons are below the text, and pressing one is a command of the person who does.
func TestButtons(t *testing.T) {
	s, in := serve(t, slacktest.Config{}), channeltest.NewIntake()
	c := sender(t, s)
	receive(t, s, in)
	m := message("D1207", strings.Repeat("why ", 900))
	m.Buttons = []channel.Button{{Text: "Approve", Command: "/approve ap-1"}, {Text: "Deny", Command: "/deny ap-1"}, {Text: "Long", Command: "/x " + strings.Repeat("y", 2000)}}
	r, err := c.Send(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	ids := strings.Split(r.ProviderID, ",")
	last := ids[len(ids)-1]
	list := s.Messages("D1207")
	if got := list[len(list)-1]; got.TS != last || !slices.Equal(got.Buttons, []slacktest.Button{{Text: "Approve", Value: "/approve ap-1"}, {Text: "Deny", Value: "/deny ap-1"}}) {
		t.Fatalf("%+v", got)
	}
	for range 2 {
		if err := s.Press("D1207", last, bob.ID, "/deny ap-1"); err != nil {
			t.Fatal(err)
		}
	}
	acked(t, s, s.Stats().Events)
	if len(in.Taken) != 2 || in.Taken[0].Key == in.Taken[1].Key {
		t.Fatalf("%+v", in.Taken)
	}
	if u := in.Taken[0]; u.Text != "/deny ap-1" || u.PeerID != bob.ID || u.PeerName != "bob" || u.Kind != "dm" || u.SessionID != "D1207" || !u.Mentioned || u.Bot {
		t.Errorf("%+v", u)
	}
	// Where the platform refuses the buttons, their commands are lines of the text.
	s.Fail(slacktest.Fault{Method: "chat.postMessage", Error: "invalid_blocks"})
	m.Key, m.Text = "k2", "why"
	if _, err := c.Send(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if got, err := s.WaitText(t.Context(), "Approve: /approve ap-1", last); err != nil || len(got.Buttons) != 0 {
		t.Errorf("%+v %v", got, err)
	}
}

// S2-16: messages are changed, marked and removed, and what is there or gone already is no error.
func TestEditDeleteReact(t *testing.T) {
	s := serve(t, slacktest.Config{})
	c := sender(t, s)
	r, err := c.Send(t.Context(), message("C100", "helo"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.(channel.Editor).Edit(t.Context(), r.ProviderID, message("C100", "**hello**")); err != nil {
		t.Fatal(err)
	}
	if got := s.Messages("C100"); len(got) != 1 || got[0].Text != "*hello*" || got[0].Edits != 1 {
		t.Errorf("%+v", got)
	}
	if e := channel.AsError(c.(channel.Editor).Edit(t.Context(), r.ProviderID, message("C100", strings.Repeat("word ", 1000)))); e == nil || e.Class != channel.Rejected {
		t.Errorf("%+v", e)
	}
	theirs := s.Say(slacktest.Message{Channel: general, User: ann.ID, Text: "hi"})
	if e := channel.AsError(c.(channel.Editor).Edit(t.Context(), theirs, message("C100", "x"))); e == nil || e.Class != channel.Rejected || !strings.Contains(e.Fix, "only messages of the bot") {
		t.Errorf("%+v", e)
	}
	react := func(mark string) error { return c.(channel.Reactor).React(t.Context(), theirs, mark, to("C100", "")) }
	for _, mark := range []string{"👀", "❤️", ":partyparrot:", "👀"} {
		if err := react(mark); err != nil {
			t.Errorf("%s: %v", mark, err)
		}
	}
	var names []string
	for _, call := range s.Calls("reactions.add") {
		names = append(names, call.Detail)
	}
	if want := []string{"eyes", "heart", "partyparrot", "eyes"}; !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
	if err := react(""); err != nil || len(s.Calls("reactions.remove")) != 3 {
		t.Errorf("%v: %+v", err, s.Calls("reactions.remove"))
	}
	if e := channel.AsError(react("\U0001fae8")); e == nil || e.Class != channel.Rejected || e.Fix == "" {
		t.Errorf("%+v", e)
	}
	for range 2 {
		if err := c.(channel.Editor).Delete(t.Context(), r.ProviderID, to("C100", "")); err != nil {
			t.Error(err)
		}
	}
	if got := s.Messages("C100"); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// The direct conversation of a person is found; only a thread with the assistant shows a status.
func TestFindAndTyping(t *testing.T) {
	s := serve(t, slacktest.Config{})
	c := sender(t, s)
	if id, err := c.(channel.Finder).Find(t.Context(), bob.ID); err != nil || id != "D1207" {
		t.Errorf("%s %v", id, err)
	}
	for _, id := range []string{"U404", "bob", slacktest.BotUser} {
		if e := channel.AsError(errOnly(c.(channel.Finder).Find(t.Context(), id))); e == nil || e.Class != channel.Rejected || e.Fix == "" {
			t.Errorf("%s: %+v", id, e)
		}
	}
	root := say(s, "hello")
	typer := c.(channel.Typer)
	if again, err := typer.Typing(t.Context(), to("D1207", root)); err != nil || again <= 0 {
		t.Error(again, err)
	}
	for _, rc := range []channel.ReplyContext{to("D1207", ""), to("C100", root)} {
		if again, err := typer.Typing(t.Context(), rc); err != nil || again < time.Minute {
			t.Error(again, err)
		}
	}
	if calls := s.Calls("assistant.threads.setStatus"); len(calls) != 1 || calls[0].Detail == "" {
		t.Errorf("%+v", calls)
	}
}

func errOnly(_ string, err error) error { return err }

// A definition says what of it is wrong; homes of earlier builds have accounts without a token.
func TestCheck(t *testing.T) {
	for _, c := range []struct {
		d         channel.Definition
		attribute string
	}{
		{channel.Definition{Token: "env:A"}, ""},
		{channel.Definition{Token: "env:A", API: "https://slack.example/api/"}, ""},
		{channel.Definition{Token: "env:A", API: "http://127.0.0.1:8080/api"}, ""},
		{channel.Definition{}, "token"},
		{channel.Definition{Token: "env:A", API: "http://slack.example/api"}, "api"},
		{channel.Definition{Token: "env:A", API: "slack.example"}, "api"},
		{channel.Definition{Token: "env:A", API: "https://a:b@slack.example"}, "api"},
	} {
		if got, problem := slack.Type.Check(c.d); got != c.attribute || (problem == "") != (c.attribute == "") {
			t.Errorf("%+v: %s %s", c.d, got, problem)
		}
	}
	if !slack.Type.ReceivesOnly(channel.Definition{}) || slack.Type.ReceivesOnly(channel.Definition{Token: "env:A"}) || slack.Type.Prefix() != "!" {
		t.Error("who sends, and who keeps /")
	}
}
