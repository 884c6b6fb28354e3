package telegram_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/channel/channeltest"
	"github.com/theclaw/agents/internal/channel/telegram"
	"github.com/theclaw/agents/internal/channel/telegram/telegramtest"
	"github.com/theclaw/agents/internal/chunk"
)

var (
	group = telegramtest.Chat{ID: -42, Type: "group", Title: "Friends"}
	forum = telegramtest.Chat{ID: -10042, Type: "supergroup", Title: "Forum", IsForum: true}
)

// open returns the sender of an account, which knows the chats of bob, the group and the forum. Each
// server has a bot of its own, so that the rate of one test is not that of another.
func open(t *testing.T) (*telegramtest.Server, channel.Channel) {
	t.Helper()
	bots++
	s := serve(t, telegramtest.Config{Token: fmt.Sprintf("%d:TEST-token", bots)})
	s.AddChat(telegramtest.Private(bob))
	s.AddChat(group)
	s.Say(telegramtest.Message{Chat: forum, From: &bob, Text: "in a topic", Thread: 7})
	d, deps := account(s)
	c, err := telegram.Type.Open("tg", d, deps)
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

var bots = 5000

// to is the reply_context of a message in a chat.
func to(chat any, kind string, more ...string) channel.ReplyContext {
	rc := channel.ReplyContext{
		"channel_type": json.RawMessage(`"external"`), "channel_id": json.RawMessage(`"tg"`),
		"session_id": json.RawMessage(fmt.Sprintf("%q", fmt.Sprint(chat))), "kind": json.RawMessage(fmt.Sprintf("%q", kind)),
	}
	for i := 0; i < len(more); i += 2 {
		rc[more[i]] = json.RawMessage(fmt.Sprintf("%q", more[i+1]))
	}
	return rc
}

// S2-16, S3-103: what a reply becomes in its chat.
func TestSend(t *testing.T) {
	type call = telegramtest.Call
	buttons := []channel.Button{{Text: "Approve", Command: "/approve ap-7"}, {Text: "Deny", Command: "/deny ap-7"}}
	long := "/approve " + strings.Repeat("x", 56)
	for _, c := range []struct {
		name string
		m    channel.Message
		want call
	}{
		{"a text", channel.Message{Text: "hello <b>_you_</b>", ReplyContext: to(1207, "dm", "reply_to_id", "5502")}, call{
			Chat: 1207, Text: "hello <b>you</b>", Entities: []telegramtest.Entity{{Type: "italic", Offset: 9, Length: 3}},
		}},
		{"behind characters of two units", channel.Message{Text: "😀 **bold** `code`", ReplyContext: to(1207, "dm")}, call{
			Chat: 1207, Text: "😀 bold code", Entities: []telegramtest.Entity{{Type: "bold", Offset: 3, Length: 4}, {Type: "code", Offset: 8, Length: 4}},
		}},
		{"a link has no preview", channel.Message{Text: "[docs](https://docs.example)", ReplyContext: to(1207, "dm")}, call{
			Chat: 1207, Text: "docs", Entities: []telegramtest.Entity{{Type: "text_link", Length: 4, URL: "https://docs.example"}},
		}},
		{"an answer in a topic", channel.Message{Text: "here", ReplyContext: to(-10042, "group", "platform_thread", "7", "reply_to_id", "5502")}, call{
			Chat: -10042, Text: "here", Thread: 7, ReplyTo: 5502,
		}},
		{"the message it answers was deleted", channel.Message{Text: "here", ReplyContext: to(-42, "group", "reply_to_id", "9")}, call{Chat: -42, Text: "here"}},
		{"a later part answers nothing", channel.Message{Text: "2", Part: 2, ReplyContext: to(-10042, "group", "reply_to_id", "5502")}, call{Chat: -10042, Text: "2"}},
		{"buttons", channel.Message{Text: "May I?", Buttons: buttons, ReplyContext: to(1207, "dm")}, call{
			Chat: 1207, Text: "May I?", Buttons: []telegramtest.Button{{Text: "Approve", Data: "/approve ap-7"}, {Text: "Deny", Data: "/deny ap-7"}},
		}},
		{"buttons below the last part", channel.Message{Text: "May", Buttons: buttons, Part: 1, More: true, ReplyContext: to(1207, "dm")}, call{Chat: 1207, Text: "May"}},
		{"a command that no button takes", channel.Message{Text: "May I?", Buttons: []channel.Button{{Text: "Approve", Command: long}}, ReplyContext: to(1207, "dm")}, call{
			Chat: 1207, Text: "May I?\n\nApprove: " + long, Entities: []telegramtest.Entity{{Type: "code", Offset: 17, Length: 65}},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, ch := open(t)
			r, err := ch.Send(t.Context(), c.m)
			if err != nil {
				t.Fatal(err)
			}
			sent := s.Calls("sendMessage")
			if len(sent) != 1 || r.ProviderID != fmt.Sprint(sent[0].MessageID) {
				t.Fatalf("receipt %+v of %+v", r, sent)
			}
			got := sent[0]
			if !got.NoPreview || got.Status != 200 {
				t.Errorf("%+v", got)
			}
			got.MessageID, got.Method, got.NoPreview, got.Status, got.At = 0, "", false, 0, time.Time{}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// How each answer of the platform ends a send; a chat that is refused delays no other.
func TestSendFails(t *testing.T) {
	dm := to(1207, "dm")
	for _, c := range []struct {
		name    string
		fault   telegramtest.Fault
		rc      channel.ReplyContext
		text    string
		want    channel.Error
		effects int // messages in the chat
	}{
		{"a limit of the chat", telegramtest.Fault{Status: 429, RetryAfter: 31}, dm, "", channel.Error{Class: channel.Unavailable, RetryAfter: 31 * time.Second, What: "429"}, 0},
		{"a limit without a time", telegramtest.Fault{Status: 429}, dm, "", channel.Error{Class: channel.Unavailable, RetryAfter: time.Second, What: "429"}, 0},
		{"a year", telegramtest.Fault{Status: 429, RetryAfter: 365 * 86400}, dm, "", channel.Error{Class: channel.Unavailable, RetryAfter: 24 * time.Hour, What: "429"}, 0},
		{"a token that is revoked", telegramtest.Fault{Status: 401}, dm, "", channel.Error{Class: channel.Unavailable, Reason: channel.ReasonAuth, What: "401"}, 0},
		{"broken", telegramtest.Fault{Status: 500}, dm, "", channel.Error{Class: channel.Unavailable, InDoubt: true, What: "500"}, 0},
		{"busy", telegramtest.Fault{Status: 502}, dm, "", channel.Error{Class: channel.Unavailable, InDoubt: true, What: "502"}, 0},
		{"cut before", telegramtest.Fault{Cut: telegramtest.CutBefore}, dm, "", channel.Error{Class: channel.Unavailable, InDoubt: true, What: "cannot be reached"}, 0},
		{"cut after", telegramtest.Fault{Cut: telegramtest.CutAfter}, dm, "", channel.Error{Class: channel.Unavailable, InDoubt: true, What: "cannot be reached"}, 1},
		{"no JSON", telegramtest.Fault{Body: "<html>"}, dm, "", channel.Error{Class: channel.Unavailable, InDoubt: true, What: "cannot be read"}, 1},
		{"too long an answer", telegramtest.Fault{Body: strings.Repeat(" ", 1<<20+1)}, dm, "", channel.Error{Class: channel.Unavailable, InDoubt: true, What: "longer than"}, 1},
		{"blocked", telegramtest.Fault{Status: 403, Description: "Forbidden: bot was blocked by the user"}, dm, "", channel.Error{Class: channel.Rejected, What: "bot was blocked by the user"}, 0},
		{"no such chat", telegramtest.Fault{}, to(99, "dm"), "", channel.Error{Class: channel.Rejected, What: "chat not found"}, 0},
		{"a topic that was deleted", telegramtest.Fault{}, to(-10042, "group", "platform_thread", "8"), "", channel.Error{Class: channel.Rejected, What: "message thread not found"}, 0},
		{"an empty text", telegramtest.Fault{}, dm, " \n", channel.Error{Class: channel.Rejected, What: "message text is empty"}, 0},
		{"too long a text", telegramtest.Fault{}, dm, strings.Repeat("😀", 2049), channel.Error{Class: channel.Rejected, What: "message is too long"}, 0},
		{"no chat", telegramtest.Fault{}, channel.ReplyContext{}, "", channel.Error{Class: channel.Rejected, BeforeSend: true, Reason: channel.ReasonReplyContext, What: "session_id"}, 0},
		{"another platform's chat", telegramtest.Fault{}, to("C0LAN2Q65", "dm"), "", channel.Error{Class: channel.Rejected, BeforeSend: true, Reason: channel.ReasonReplyContext, What: "session_id"}, 0},
		{"no topic", telegramtest.Fault{}, to(1207, "dm", "platform_thread", "x"), "", channel.Error{Class: channel.Rejected, BeforeSend: true, Reason: channel.ReasonReplyContext, What: "platform_thread"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, ch := open(t)
			if c.fault != (telegramtest.Fault{}) {
				c.fault.Method, c.fault.Chat = "sendMessage", 1207
				s.Fail(c.fault)
			}
			_, err := ch.Send(t.Context(), channel.Message{Text: cmpOr(c.text, "hi"), ReplyContext: c.rc})
			e, ok := errors.AsType[*channel.Error](err)
			if !ok || !strings.Contains(e.What, c.want.What) {
				t.Fatalf("%v, want %q", err, c.want.What)
			}
			for cause := error(e); cause != nil; cause = errors.Unwrap(cause) {
				if strings.Contains(cause.Error(), "TEST-token") {
					t.Errorf("the error has the token: %v", cause)
				}
			}
			got := *e
			got.What, got.Fix, got.Err, c.want.What = "", "", nil, ""
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if n := len(s.Messages(1207)); n != c.effects {
				t.Errorf("%d messages arrived, want %d", n, c.effects)
			}
			if r, err := ch.Send(t.Context(), channel.Message{Text: "other", ReplyContext: to(-42, "group")}); err != nil || r.ProviderID == "" {
				t.Errorf("another chat: %v", err)
			}
		})
	}
	s, ch := open(t)
	if a, b := channel.Destination(ch, channel.Message{ReplyContext: dm}), channel.Destination(ch, channel.Message{ReplyContext: to(-42, "group")}); a == b || a != "1207" {
		t.Errorf("destinations %q %q", a, b)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s.Fail(telegramtest.Fault{Method: "sendMessage", Delay: time.Minute})
	sent := make(chan error, 1)
	go func() {
		_, err := ch.Send(ctx, channel.Message{Text: "hi", ReplyContext: dm})
		sent <- err
	}()
	if err := s.Wait(t.Context(), func() bool { return s.Underway("sendMessage") > 0 }); err != nil {
		t.Fatal(err)
	}
	cancel()
	if e := channel.AsError(<-sent); e.Class != channel.Interrupted || !e.InDoubt {
		t.Errorf("stopped: %+v", e)
	}
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// A platform that is not there was sent nothing.
func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := "http://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := telegram.Type.Open("tg", channel.Definition{Token: "env:T", API: at}, channel.Deps{Resolve: func(context.Context, string) (string, error) { return "1:x", nil }})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Send(t.Context(), channel.Message{Text: "x", ReplyContext: to(1, "dm")})
	if e := channel.AsError(err); e == nil || e.Class != channel.Unavailable || e.InDoubt || !strings.Contains(e.What, "cannot be reached") {
		t.Errorf("%+v", e)
	}
}

// A server that sends the address back, in its description or instead of HTTP, puts the token in no
// error, whichever part of it is printed.
func TestTokenIsHidden(t *testing.T) {
	const secret = "1:s3cr3t-canary"
	for name, answer := range map[string]string{
		"a description": "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n{\"ok\":false,\"description\":\"no such path: %s\"}",
		"no HTTP":       "%s\r\n\r\n",
		"a bad header":  "HTTP/1.1 200 OK\r\n%s\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			served := make(chan struct{})
			go func() {
				defer close(served)
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					line, _, _ := bufio.NewReader(conn).ReadLine()
					_, _ = fmt.Fprintf(conn, answer, line)
					_ = conn.Close()
				}
			}()
			defer func() {
				_ = l.Close()
				<-served
			}()
			d := channel.Definition{Token: "env:T", API: "http://" + l.Addr().String()}
			deps := channel.Deps{Resolve: func(context.Context, string) (string, error) { return secret, nil }}
			c, err := telegram.Type.Open("tg", d, deps)
			if err != nil {
				t.Fatal(err)
			}
			r, err := telegram.Type.Receive("tg", d, deps)
			if err != nil {
				t.Fatal(err)
			}
			_, sent := c.Send(t.Context(), channel.Message{Text: "x", ReplyContext: to(1, "dm")})
			for _, err := range []error{sent, r.Receive(t.Context(), channeltest.NewIntake())} {
				if err == nil {
					t.Fatal("it succeeded")
				}
				for ; err != nil; err = errors.Unwrap(err) {
					if text := fmt.Sprintf("%v %+v", err, *channel.AsError(err)); strings.Contains(text, "s3cr3t") {
						t.Errorf("%T: %s", err, text)
					}
				}
			}
		})
	}
}

// Where the platform refuses the formatting, the text arrives without it, in the same attempt; one
// that it refuses in any form is refused once.
func TestFormattingRefused(t *testing.T) {
	s, ch := open(t)
	s.Fail(telegramtest.Fault{Method: "sendMessage", Status: 400, Description: "Bad Request: can't parse entities: unsupported"})
	if _, err := ch.Send(t.Context(), channel.Message{Text: "**bold**", ReplyContext: to(1207, "dm")}); err != nil {
		t.Fatal(err)
	}
	if m := s.Messages(1207); len(m) != 1 || m[0].Text != "bold" || m[0].Entities != nil {
		t.Errorf("%+v", m)
	}
	s.Fail(telegramtest.Fault{Method: "sendMessage", Status: 400, Description: "Bad Request: can't parse entities", Times: -1})
	_, err := ch.Send(t.Context(), channel.Message{Text: "**bold**", ReplyContext: to(-42, "group")})
	if e := channel.AsError(err); e == nil || e.Class != channel.Rejected {
		t.Errorf("%v", err)
	}
	if n := len(s.Calls("sendMessage")); n != 4 {
		t.Errorf("%d calls", n)
	}
}

// A reply to a group that became a supergroup arrives there.
func TestMigratedGroup(t *testing.T) {
	s, ch := open(t)
	s.Migrate(-42, -100777)
	if _, err := ch.Send(t.Context(), channel.Message{Text: "hi", ReplyContext: to(-42, "group")}); err != nil {
		t.Fatal(err)
	}
	if m := s.Messages(-100777); len(m) != 1 {
		t.Errorf("%+v", m)
	}
}

// S2-46, S1-49: a text of 9,000 characters, and one of characters of two units, are cut by the limit
// of the channel into messages that the platform takes.
func TestLongTexts(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		parts int
	}{
		"9,000 characters":          {strings.Repeat("word word word word word words.\n\n", 281)[:9000], 3},
		"9,000 of two units":        {strings.Repeat("😀", 9000), 5},
		"without a place to cut":    {strings.Repeat("x", 4097), 2},
		"formatting adds no length": {strings.Repeat("**bold** `code`\n", 300), 2},
	} {
		t.Run(name, func(t *testing.T) {
			s, ch := open(t)
			limit := ch.(channel.Limiter).Limit()
			pieces := chunk.Split(c.text, chunk.Bounds{Max: limit.Max, Units: limit.Units})
			if len(pieces) != c.parts {
				t.Errorf("%d parts, want %d", len(pieces), c.parts)
			}
			for i, p := range pieces {
				if limit.Size(p.Text) > limit.Max {
					t.Errorf("part %d has %d units", i, limit.Size(p.Text))
				}
				chat := telegramtest.Chat{ID: int64(300 + i), Type: "private"} // the rate of a chat is another test
				s.AddChat(chat)
				if _, err := ch.Send(t.Context(), channel.Message{Text: p.Text, Part: i + 1, More: i+1 < len(pieces), ReplyContext: to(chat.ID, "dm")}); err != nil {
					t.Error(err)
				}
			}
			if n := len(s.Messages(0)); n != len(pieces) {
				t.Errorf("%d messages arrived", n)
			}
		})
	}
}

// Hostile Markdown is sent: no part of it is refused, or costs the time of others.
func TestHostileMarkdown(t *testing.T) {
	for name, unit := range map[string]string{
		"brackets": "[", "closing": "]", "links": "[a](", "quotes": "> ", "lists": "- ", "stars": "*a _b ", "backticks": "` ``", "entities": "&#128512;",
		"tables": "|a|\n|-|\n", "html": "<b><!--", "NUL": "a\x00b", "bidi": "\u202eabc", "not UTF-8": "a\xffb", "surrogate": "\xed\xa0\x80", "bold words": "**b** ",
	} {
		t.Run(name, func(t *testing.T) {
			s, ch := open(t)
			limit := ch.(channel.Limiter).Limit()
			piece := chunk.Split(strings.Repeat(unit, 100_000/len(unit)), chunk.Bounds{Max: limit.Max, Units: limit.Units})[0]
			if limit.Size(piece.Text) > limit.Max {
				t.Fatalf("%d units", limit.Size(piece.Text))
			}
			if _, err := ch.Send(t.Context(), channel.Message{Text: piece.Text, ReplyContext: to(1207, "dm")}); err != nil {
				t.Fatal(err)
			}
			if calls := s.Calls("sendMessage"); len(calls) != 1 {
				t.Errorf("%d calls: its formatting was refused", len(calls))
			}
		})
	}
}

// Typing, edits, deletions and marks, with what the platform says when there is nothing to do.
func TestOtherMethods(t *testing.T) {
	s, ch := open(t)
	dm := to(1207, "dm")
	again, err := ch.(channel.Typer).Typing(t.Context(), to(-10042, "group", "platform_thread", "7"))
	if calls := s.Calls("sendChatAction"); err != nil || again != 4*time.Second || len(calls) != 1 || calls[0].Detail != "typing" || calls[0].Thread != 7 {
		t.Errorf("typing: %v %v %+v", again, err, calls)
	}
	r, err := ch.Send(t.Context(), channel.Message{Text: "one", ReplyContext: dm})
	if err != nil {
		t.Fatal(err)
	}
	e := ch.(channel.Editor)
	for range 2 { // the second changes nothing
		if err := e.Edit(t.Context(), r.ProviderID, channel.Message{Text: "**two**", ReplyContext: dm}); err != nil {
			t.Error(err)
		}
	}
	if m := s.Messages(1207); len(m) != 1 || m[0].Text != "two" || m[0].Edits != 1 || len(m[0].Entities) != 1 {
		t.Errorf("edited: %+v", m)
	}
	if err := ch.(channel.Reactor).React(t.Context(), r.ProviderID, "👍", dm); err != nil {
		t.Error(err)
	}
	if m := s.Messages(1207); !slices.Equal(m[0].Marks, []string{"👍"}) {
		t.Errorf("marked: %+v", m)
	}
	if err := ch.(channel.Reactor).React(t.Context(), r.ProviderID, "", dm); err != nil || len(s.Messages(1207)[0].Marks) != 0 {
		t.Error(err)
	}
	for range 2 { // it is gone the second time
		if err := e.Delete(t.Context(), r.ProviderID, dm); err != nil {
			t.Error(err)
		}
	}
	if m := s.Messages(1207); len(m) != 0 {
		t.Errorf("deleted: %+v", m)
	}
	for _, id := range []string{"", "x", "1,2"} {
		if e := channel.AsError(e.Delete(t.Context(), id, dm)); e == nil || e.Class != channel.Rejected {
			t.Errorf("%q: %v", id, e)
		}
	}
	if e := channel.AsError(e.Edit(t.Context(), "77", channel.Message{Text: "x", ReplyContext: dm})); e == nil || e.Class != channel.Rejected {
		t.Errorf("an unknown message: %v", e)
	}
}

// Our own rate: one message a second for a chat, 20 in any minute for a group, 30 a second for the
// account, whichever of its senders sends. A short wait happens in the send, a long one is reported.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		admit := telegram.Admission()
		began := time.Now()
		var last time.Duration
		for range 3 {
			if err := admit(t.Context(), "1", false); err != nil {
				t.Fatal(err)
			}
			last = time.Since(began)
		}
		if last < 2*time.Second || last > 3*time.Second {
			t.Errorf("three messages of a chat took %v", last)
		}
		began = time.Now()
		for n := range 60 {
			if err := admit(t.Context(), fmt.Sprint("chat", n), false); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took < 59*time.Second/30 {
			t.Errorf("60 messages of the account took %v", took)
		}
		var times []time.Time
		for began = time.Now(); time.Since(began) < 3*time.Minute; {
			if err := admit(t.Context(), "-5", true); err != nil {
				t.Fatal(err)
			}
			times = append(times, time.Now())
		}
		for i := range times[:len(times)-20] {
			if times[i+20].Sub(times[i]) < time.Minute {
				t.Errorf("21 messages of a group within %v", times[i+20].Sub(times[i]))
			}
		}
		if len(times) < 45 {
			t.Errorf("%d messages of a group in three minutes", len(times))
		}
		// Many at a time: what would wait for long gives its place back, and says when to come again.
		results := make(chan error, 20)
		for range 20 {
			go func() { results <- admit(t.Context(), "2", false) }()
		}
		later := 0
		for range 20 {
			if err := <-results; err != nil {
				e := channel.AsError(err)
				if e.Class != channel.Unavailable || e.RetryAfter <= 5*time.Second || e.RetryAfter > 7*time.Second || e.InDoubt {
					t.Errorf("%+v", e)
				}
				later++
			}
		}
		if later != 14 {
			t.Errorf("%d of 20 were put off", later)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if e := channel.AsError(admit(ctx, "2", false)); e == nil || e.Class != channel.Interrupted || e.InDoubt {
			t.Errorf("stopped: %+v", e)
		}
	})
}
