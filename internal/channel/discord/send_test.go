package discord_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/channel/discord"
	"github.com/theclaw/agents/internal/channel/discord/discordtest"
)

func sender(t *testing.T, s *discordtest.Server) channel.Channel {
	t.Helper()
	c, err := discord.Type.Open("dc", definition(s), channel.Deps{Resolve: resolve})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func to(session, kind, replyTo string) channel.ReplyContext {
	rc := channel.ReplyContext{}
	for k, v := range map[string]string{"session_id": session, "kind": kind, "reply_to_id": replyTo} {
		if v != "" {
			rc[k], _ = json.Marshal(v) // a text always can be
		}
	}
	return rc
}

// TestSend is S2-16 and S3-104: a message arrives as it is written, notifies no one, and names what
// it answers where others write in between.
func TestSend(t *testing.T) {
	s := server(t)
	c := sender(t, s)
	asked := s.Say(discordtest.Message{ChannelID: "20", Author: ann, Content: "?"})
	for _, m := range []channel.Message{
		{Key: "k1", Text: "**hi** @everyone <@501>", ReplyContext: to("20", "channel", asked.ID)},
		{Key: "k2:part:1", Part: 1, More: true, Text: "one", ReplyContext: to("20", "channel", asked.ID)},
		{Key: "k2:part:2", Part: 2, Text: "two", ReplyContext: to("20", "channel", asked.ID)},
		{Key: "k3", Text: "answers what was deleted", ReplyContext: to("20", "channel", "7")},
		{Key: "k4", Text: strings.Repeat("😀", 2000), ReplyContext: to("10", "dm", "7")},
	} {
		receipt, err := c.Send(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		id, _ := m.ReplyContext.Need("session_id")
		list := s.Messages(id[0])
		got := list[len(list)-1]
		answers := m.ReplyContext.ReplyToID() == asked.ID && m.Part <= 1
		if got.Content != m.Text || got.ID != receipt.ProviderID || got.Notified || got.Flags != 4 || (got.Reference != nil) != answers {
			t.Errorf("sent %+v as %+v", m, got)
		}
	}
	if l := c.(channel.Limiter).Limit(); l.Max != 2000 || l.Units != nil || l.Size != nil {
		t.Errorf("limit %+v", l)
	}
	m := channel.Message{ReplyContext: to("20", "channel", "")}
	if got := channel.Destination(c, m); got != "20" || c.Name() != "dc" || c.Guarantee() != channel.Query {
		t.Errorf("%q, %q, %v", got, c.Name(), c.Guarantee())
	}
}

// TestRepeat: of a message whose answer was lost there is one. The platform drops it by its nonce
// for some minutes; later it is found, but one from before the reply was made is another one.
func TestRepeat(t *testing.T) {
	s := server(t)
	c := sender(t, s)
	m := channel.Message{Key: "k", Text: "hi ", ReplyContext: to("20", "channel", ""), CreatedAt: time.Now().UTC().Format(time.RFC3339)}
	s.Say(discordtest.Message{ChannelID: "20", Author: bot(), Content: "hi", Timestamp: "2026-01-01T00:00:00.000000+00:00"})
	s.Say(discordtest.Message{ChannelID: "20", Author: ann, Content: "hi"})
	s.Fail("POST /channels/ID/messages", discordtest.Fault{Acts: true})
	_, err := c.Send(t.Context(), m)
	if e, ok := errors.AsType[*channel.Error](err); !ok || !e.InDoubt || e.Class != channel.Unavailable {
		t.Fatalf("%#v", err)
	}
	if _, err := c.Send(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	list := s.Messages("20")
	if len(list) != 3 {
		t.Fatalf("%d messages", len(list))
	}
	for _, row := range []struct {
		name string
		age  time.Duration
		text string
		kind string
		to   string
		want string // empty: another message
	}{
		{"found", 3 * time.Minute, "hi", "channel", "", list[2].ID},
		{"of the last time", time.Minute, "hi", "channel", "", ""},
		{"another text", 3 * time.Minute, "ho", "channel", "", ""},
		{"another answer", 3 * time.Minute, "answer", "channel", list[0].ID, ""},
		{"the same answer", 3 * time.Minute, "answer", "channel", list[1].ID, "answer"},
	} {
		answer := m
		answer.Key, answer.Text, answer.ReplyContext = "answer", "answer", to("20", "channel", list[1].ID)
		answered, err := c.Send(t.Context(), answer)
		if err != nil {
			t.Fatal(err)
		}
		if row.want == "answer" {
			row.want = answered.ProviderID
		}
		before := len(s.Messages("20"))
		later := channel.Message{
			Key: row.name, MaybeDuplicate: true, Text: row.text, ReplyContext: to("20", row.kind, row.to),
			CreatedAt: time.Now().Add(-row.age).UTC().Format(time.RFC3339),
		}
		receipt, err := c.Send(t.Context(), later)
		if err != nil {
			t.Fatal(err)
		}
		sent := len(s.Messages("20")) - before
		if row.want == "" && sent != 1 || row.want != "" && (sent != 0 || receipt.ProviderID != row.want) {
			t.Errorf("%s: %d sent, %v", row.name, sent, receipt)
		}
	}
}

// TestRepeatOfSameText: a reply with the text of an earlier one is not taken for that: by its nonce
// where the platform lists it, else by its time.
func TestRepeatOfSameText(t *testing.T) {
	made := time.Now().Add(-3 * time.Minute)
	for name, c := range map[string]struct {
		after  time.Duration // the earlier message was written after the reply was made
		nonces bool
		nonce  string
		sent   bool
	}{
		"some seconds older":     {-5 * time.Second, false, "", true},
		"newer":                  {time.Second, false, "", false},
		"newer, another nonce":   {time.Second, true, "another", true},
		"its nonce":              {time.Second, true, channel.Fingerprint("k"), false},
		"newer, without a nonce": {time.Second, true, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := server(t)
			s.ListNonces(c.nonces)
			s.Say(discordtest.Message{
				ChannelID: "20", Author: bot(), Content: "done", Nonce: c.nonce, Timestamp: made.Add(c.after).UTC().Format("2006-01-02T15:04:05.000000+00:00"),
			})
			m := channel.Message{
				Key: "k", Text: "done", MaybeDuplicate: true, ReplyContext: to("20", "channel", ""), CreatedAt: made.UTC().Format(time.RFC3339Nano),
			}
			if _, err := sender(t, s).Send(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			if got := len(s.Messages("20")) == 2; got != c.sent {
				t.Errorf("sent: %v", got)
			}
		})
	}
}

// TestFailures: how a send ends that does not succeed.
func TestFailures(t *testing.T) {
	const post = "POST /channels/ID/messages"
	for name, c := range map[string]struct {
		fault   discordtest.Fault
		session string
		text    string
		class   channel.Class
		reason  string
		after   time.Duration
		doubt   bool
	}{
		"token":        {discordtest.Fault{Status: 401, Body: `{"message":"401: Unauthorized","code":0}`}, "20", "x", channel.Unavailable, channel.ReasonAuth, 0, false},
		"permission":   {discordtest.Fault{Status: 403, Body: `{"message":"Missing Access","code":50001}`}, "20", "x", channel.Rejected, "", 0, false},
		"unknown":      {discordtest.Fault{}, "404", "x", channel.Rejected, "", 0, false},
		"too long":     {discordtest.Fault{}, "20", strings.Repeat("x", 2001), channel.Rejected, "", 0, false},
		"empty":        {discordtest.Fault{}, "20", " ", channel.Rejected, "", 0, false},
		"no channel":   {discordtest.Fault{}, "@ann", "x", channel.Rejected, channel.ReasonReplyContext, 0, false},
		"limit":        {discordtest.Fault{Status: 429, Header: map[string]string{"Retry-After": "64.5"}, Body: `{"retry_after":64.57,"global":false}`}, "20", "x", channel.Unavailable, "", 64500 * time.Millisecond, false},
		"global limit": {discordtest.Fault{Status: 429, Body: `{"retry_after":2,"global":true}`}, "20", "x", channel.Unavailable, "", 2 * time.Second, false},
		"proxy limit":  {discordtest.Fault{Status: 429, Body: `<html>`}, "20", "x", channel.Unavailable, "", time.Second, false},
		"broken":       {discordtest.Fault{Status: 502, Body: `<html>`}, "20", "x", channel.Unavailable, "", 0, true},
		"cut":          {discordtest.Fault{Times: 9}, "20", "x", channel.Unavailable, "", 0, true},
		"no JSON":      {discordtest.Fault{Status: 200, Body: `<html>`}, "20", "x", channel.Unavailable, "", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := server(t)
			if c.fault.Status != 0 || c.fault.Times != 0 {
				s.Fail(post, c.fault)
			}
			_, err := sender(t, s).Send(t.Context(), channel.Message{Key: "k", Text: c.text, ReplyContext: to(c.session, "channel", "")})
			e, ok := errors.AsType[*channel.Error](err)
			if !ok || e.Class != c.class || e.Reason != c.reason || e.RetryAfter != c.after || e.InDoubt != c.doubt || strings.Contains(e.What, token) {
				t.Errorf("%#v", err)
			}
		})
	}
	s := server(t)
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := sender(t, s).Send(stopped, channel.Message{Key: "k", Text: "x", ReplyContext: to("20", "channel", "")})
	if e, ok := errors.AsType[*channel.Error](err); !ok || e.Class != channel.Interrupted {
		t.Errorf("stopped: %#v", err)
	}
	none, err := discord.Type.Open("dc", definition(s), channel.Deps{Resolve: func(context.Context, string) (string, error) { return "", errors.New("unset") }})
	if err != nil {
		t.Fatal(err)
	}
	_, err = none.Send(t.Context(), channel.Message{Key: "k", Text: "x", ReplyContext: to("20", "channel", "")})
	if e, ok := errors.AsType[*channel.Error](err); !ok || e.Reason != channel.ReasonAuth || !e.BeforeSend {
		t.Errorf("without a token: %#v", err)
	}
}

// TestLimit: what an answer says of its channel is minded before the next message, and holds no
// other channel.
func TestLimit(t *testing.T) {
	s := server(t)
	c := sender(t, s)
	send := func(session string) error {
		_, err := c.Send(t.Context(), channel.Message{Key: fmt.Sprint(len(s.Log())), Text: "x", ReplyContext: to(session, "channel", "")})
		return err
	}
	header := map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset-After": "60.5"}
	s.Fail("POST /channels/ID/messages", discordtest.Fault{Status: 200, Body: `{"id":"1"}`, Header: header})
	if err := send("20"); err != nil {
		t.Fatal(err)
	}
	before := len(s.Log())
	e, ok := errors.AsType[*channel.Error](send("20"))
	if !ok || e.Class != channel.Unavailable || !e.BeforeSend || e.RetryAfter <= 0 || e.RetryAfter > 61*time.Second || len(s.Log()) != before {
		t.Errorf("%+v", e)
	}
	if err := send("21"); err != nil {
		t.Errorf("another channel: %v", err)
	}
	header["X-RateLimit-Reset-After"] = "0.01"
	s.Fail("POST /channels/ID/messages", discordtest.Fault{Status: 200, Body: `{"id":"1"}`, Header: header})
	if err := send("21"); err != nil {
		t.Fatal(err)
	}
	if err := send("21"); err != nil {
		t.Errorf("after a short wait: %v", err)
	}
}

// TestFind: the direct channel of a person is found, asked for once, and reaches the person.
func TestFind(t *testing.T) {
	s := server(t)
	s.AddUser(ann)
	s.AddUser(discordtest.User{ID: "502", Username: "other", Bot: true})
	c := sender(t, s)
	f := c.(channel.Finder)
	const open = "POST /users/@me/channels"
	s.Fail(open, discordtest.Fault{Status: 429, Header: map[string]string{"Retry-After": "7"}})
	if e := channel.AsError(errOnly(f.Find(t.Context(), ann.ID))); e == nil || e.Class != channel.Unavailable || e.RetryAfter != 7*time.Second {
		t.Errorf("limited: %+v", e)
	}
	s.Fail(open, discordtest.Fault{Status: 200, Body: `{"id":"../20"}`})
	if e := channel.AsError(errOnly(f.Find(t.Context(), ann.ID))); e == nil || e.Class != channel.Unavailable {
		t.Errorf("without an id: %+v", e)
	}
	asked := len(s.Log())
	for range 3 {
		id, err := f.Find(t.Context(), ann.ID)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Send(t.Context(), channel.Message{Key: "k", Text: "hi", ReplyContext: to(id, "dm", "")}); err != nil {
			t.Fatal(err)
		}
		if list := s.Messages(id); len(list) != 1 || list[0].Content != "hi" || id == "10" {
			t.Errorf("%s has %+v", id, list)
		}
	}
	if n := strings.Count(strings.Join(s.Log()[asked:], "\n"), open); n != 1 {
		t.Errorf("asked %d times", n)
	}
	for name, id := range map[string]string{"a bot": "502", "a stranger": "503", "no id": "@ann"} {
		if e := channel.AsError(errOnly(f.Find(t.Context(), id))); e == nil || e.Class != channel.Rejected {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

func errOnly(_ string, err error) error { return err }

// TestMessages: typing, and what is done with messages that were sent.
func TestMessages(t *testing.T) {
	s := server(t)
	c := sender(t, s)
	ctx, rc := t.Context(), to("20", "channel", "")
	if again, err := c.(channel.Typer).Typing(ctx, rc); err != nil || again != 8*time.Second {
		t.Errorf("typing: %v, %v", again, err)
	}
	await(t, s, "typing 20", 1)
	receipt, err := c.Send(ctx, channel.Message{Key: "k", Text: "one", ReplyContext: rc})
	if err != nil {
		t.Fatal(err)
	}
	editor, reactor := c.(channel.Editor), c.(channel.Reactor)
	if err := editor.Edit(ctx, receipt.ProviderID, channel.Message{Text: "two @here", ReplyContext: rc}); err != nil {
		t.Error(err)
	}
	if got := s.Messages("20")[0]; got.Content != "two @here" || got.Notified {
		t.Errorf("edited to %+v", got)
	}
	asked := s.Say(discordtest.Message{ChannelID: "20", Author: ann, Content: "?"})
	for _, mark := range []string{"👍", "👀"} {
		if err := reactor.React(ctx, asked.ID, mark, rc); err != nil {
			t.Error(err)
		}
	}
	if got := s.Messages("20")[1].Reactions; len(got) != 2 || got[0].Emoji.Name != "👍" {
		t.Errorf("marked with %+v", got)
	}
	if err := reactor.React(ctx, asked.ID, "", rc); err != nil || len(s.Messages("20")[1].Reactions) != 0 {
		t.Errorf("marks are not removed: %v", err)
	}
	for range 2 { // the second time it is not there
		if err := editor.Delete(ctx, receipt.ProviderID, rc); err != nil || len(s.Messages("20")) != 1 {
			t.Errorf("not deleted: %v", err)
		}
	}
	for name, err := range map[string]error{
		"of another one": editor.Edit(ctx, asked.ID, channel.Message{Text: "x", ReplyContext: rc}),
		"no id":          editor.Delete(ctx, "../1", rc),
		"no channel":     reactor.React(ctx, "1", "👍", channel.ReplyContext{}),
		"not there":      editor.Edit(ctx, "1", channel.Message{Text: "x", ReplyContext: rc}),
	} {
		if e, ok := errors.AsType[*channel.Error](err); !ok || e.Class != channel.Rejected {
			t.Errorf("%s: %v", name, err)
		}
	}
}
