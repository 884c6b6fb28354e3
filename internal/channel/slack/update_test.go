package slack_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/channel/channeltest"
	"github.com/theclaw/agents/internal/channel/slack/slacktest"
)

// one returns what a receiver makes of one event.
func one(t *testing.T, cause func(s *slacktest.Server) (ts string)) (channel.Update, string) {
	t.Helper()
	s, in := serve(t, slacktest.Config{}), channeltest.NewIntake()
	receive(t, s, in)
	ts := cause(s)
	events := s.Stats().Events
	acked(t, s, events)
	if len(in.Taken) == 0 {
		t.Fatal("nothing was taken")
	}
	return in.Taken[0], ts
}

// S4-22: the fields of a message: where it is, who wrote it, and of which team it is.
func TestMessage(t *testing.T) {
	group := slacktest.Channel{ID: "G7", Type: "mpim", Name: "mpdm-bob--ann--demo-1"}
	for name, c := range map[string]struct {
		message slacktest.Message
		want    channel.Update
	}{
		"direct": {
			slacktest.Message{Channel: slacktest.IM(bob), User: bob.ID, Text: "hello"},
			channel.Update{Kind: "dm", SessionID: "D1207", PeerID: "U1207", PeerName: "bob", Text: "hello"},
		},
		"group": {
			slacktest.Message{Channel: group, User: ann.ID, Text: "hello"},
			channel.Update{Kind: "group", SessionID: "G7", PeerID: "U31", PeerName: "ann", Text: "hello"},
		},
		"channel": {
			slacktest.Message{Channel: general, User: ann.ID, Text: "hello"},
			channel.Update{Kind: "channel", SessionID: "C100", PeerID: "U31", PeerName: "ann", Text: "hello"},
		},
		"private channel": {
			slacktest.Message{Channel: slacktest.Channel{ID: "C200", Type: "group"}, User: ann.ID, Text: "hello"},
			channel.Update{Kind: "channel", SessionID: "C200", PeerID: "U31", PeerName: "ann", Text: "hello"},
		},
		"mention": {
			slacktest.Message{Channel: general, User: ann.ID, Text: "<@U0BOT> what is 1 &lt; 2 &amp;&amp; 3?"},
			channel.Update{Kind: "channel", SessionID: "C100", PeerID: "U31", PeerName: "ann", Text: "@demo_bot what is 1 < 2 && 3?", Mentioned: true},
		},
		"references": {
			slacktest.Message{Channel: general, User: ann.ID, Text: "<@U1207> <@U999|carl> <@U888> <#C100|general> <#C5> <!here> <!subteam^S1|@crew> <https://example.org/a?b=1&amp;c=2> <https://example.org|the page> <mailto:a@example.org|a@example.org> <!date^1700000000^{date}|a day> &lt;b&gt; &amp;lt;"},
			channel.Update{
				Kind: "channel", SessionID: "C100", PeerID: "U31", PeerName: "ann",
				Text: "@bob @carl @U888 #general #C5 @here @crew https://example.org/a?b=1&c=2 the page (https://example.org) a@example.org a day <b> &lt;",
			},
		},
		"a stranger": {
			slacktest.Message{Channel: general, User: "U404", Text: "hello"},
			channel.Update{Kind: "channel", SessionID: "C100", PeerID: "U404", Text: "hello"},
		},
		"a bot": {
			slacktest.Message{Channel: general, BotID: "B77", Username: "deploys", Subtype: "bot_message", Text: "done"},
			channel.Update{Kind: "channel", SessionID: "C100", PeerID: "B77", PeerName: "deploys", Text: "done", Bot: true},
		},
		"an app": {
			slacktest.Message{Channel: general, User: ann.ID, BotID: "B78", Text: "done"},
			channel.Update{Kind: "channel", SessionID: "C100", PeerID: "U31", PeerName: "ann", Text: "done", Bot: true},
		},
		"emote": {
			slacktest.Message{Channel: general, User: ann.ID, Subtype: "me_message", Text: "waves"},
			channel.Update{Kind: "channel", SessionID: "C100", PeerID: "U31", PeerName: "ann", Text: "waves"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, ts := one(t, func(s *slacktest.Server) string { return s.Say(c.message) })
			c.want.Key, c.want.MessageID, c.want.Team = "slack:U0BOT:"+c.want.SessionID+":"+ts, ts, "T0DEMO"
			if diff := cmp.Diff(c.want, got, cmpopts.IgnoreFields(channel.Update{}, "SentAt")); diff != "" {
				t.Error(diff)
			}
			if d := time.Since(got.SentAt); d > time.Minute || d < -time.Minute {
				t.Errorf("sent at %v", got.SentAt)
			}
		})
	}
}

// What a person shares is not in the text: only the words of the person are. Without words it is
// no message.
func TestShared(t *testing.T) {
	s, in := serve(t, slacktest.Config{}), channeltest.NewIntake()
	receive(t, s, in)
	shared := []any{map[string]any{"is_share": true, "is_msg_unfurl": true, "author_id": "U9", "channel_id": "C9", "text": "/stop", "fallback": "/stop"}}
	for ts, text := range map[string]string{"1700000000.000100": "", "1700000000.000200": "look"} {
		s.Push(map[string]any{"type": "message", "channel": "D1207", "channel_type": "im", "user": "U1207", "text": text, "ts": ts, "attachments": shared})
	}
	acked(t, s, 2)
	if got := in.Texts(); !slices.Equal(got, []string{"look"}) || in.Taken[0].Forwarded {
		t.Errorf("took %q", got)
	}
}

// A reply in a thread names it; the message that began it does not.
func TestThread(t *testing.T) {
	s, in := serve(t, slacktest.Config{}), channeltest.NewIntake()
	receive(t, s, in)
	root := s.Say(slacktest.Message{Channel: general, User: ann.ID, Text: "root"})
	s.Say(slacktest.Message{Channel: general, User: bob.ID, Text: "reply", Thread: root})
	s.Say(slacktest.Message{Channel: general, User: bob.ID, Text: "to all", Thread: root, Subtype: "thread_broadcast"})
	s.Push(map[string]any{"type": "message", "channel": "C100", "channel_type": "channel", "user": "U31", "text": "again", "ts": "1700000000.000200", "thread_ts": "1700000000.000200"})
	acked(t, s, 4)
	var threads []string
	for _, u := range in.Taken {
		threads = append(threads, u.Thread)
	}
	if want := []string{"", root, root, ""}; !slices.Equal(threads, want) {
		t.Errorf("%q, want %q", threads, want)
	}
}

// S4-06: what is written in a thread answers the message that began it: the bot's own, or that of another. Where the bot is
// addressed, its text is quoted once for each thread, up to 500 characters; it is fetched unless it came with an event.
func TestReplyInThread(t *testing.T) {
	s, in := serve(t, slacktest.Config{}), channeltest.NewIntake()
	own := s.Say(slacktest.Message{Channel: general, User: slacktest.BotUser, BotID: slacktest.BotID, Text: "<@U31>: 1 &lt; 2"})
	other := s.Say(slacktest.Message{Channel: general, User: ann.ID, Text: strings.Repeat("ä", 600)})
	stop := receive(t, s, in)
	answer := func(thread, text, subtype string) string {
		return s.Say(slacktest.Message{Channel: general, User: bob.ID, Text: text, Thread: thread, Subtype: subtype})
	}
	answer(own, "why?", "")
	answer(own, "why?", "")
	answer(other, "why?", "thread_broadcast")
	answer(other, "<@U0BOT> why?", "")
	acked(t, s, 7)
	mine, long := channel.ReplyTo{ID: own, Text: "@ann: 1 < 2", Mine: true}, channel.ReplyTo{ID: other, Text: strings.Repeat("ä", 500)}
	want := []*channel.ReplyTo{nil, &mine, {ID: own, Mine: true}, {ID: other}, &long, {ID: other}} // Ann's own message answers none; a mention comes twice
	var got []*channel.ReplyTo
	for _, u := range in.Taken {
		got = append(got, u.ReplyTo)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if n := len(s.Calls("conversations.replies")); n != 1 {
		t.Errorf("%d look-ups: the other thread came with an event", n)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	missed := answer(own, "why?", "") // during an outage
	s.Forget()
	receive(t, s, in)
	in.Await(t, "what was missed", func() bool {
		n := slices.IndexFunc(in.Taken, func(u channel.Update) bool { return u.MessageID == missed })
		return n >= 0 && cmp.Equal(&mine, in.Taken[n].ReplyTo)
	})
	if n := len(s.Calls("conversations.replies")); n != 3 {
		t.Errorf("%d requests: the history has the text of its 2 threads", n)
	}
}

// S4-06: a message that began a thread and cannot be read costs the quotation alone: the event names who wrote it. While
// the platform asks for a pause, or does not answer, nothing more is looked up; an answer that cannot be read delays none.
func TestReplyInThreadNotRead(t *testing.T) {
	for name, c := range map[string]struct {
		fault  slacktest.Fault
		calls  int    // that were answered
		second string // what is quoted of the second thread
	}{
		"pause":     {slacktest.Fault{Status: 429, Error: "ratelimited", RetryAfter: 600}, 1, ""},
		"no answer": {slacktest.Fault{Cut: slacktest.CutBefore}, 0, ""},
		"unread":    {slacktest.Fault{Body: "{"}, 2, "two"},
	} {
		t.Run(name, func(t *testing.T) {
			s, in := serve(t, slacktest.Config{}), channeltest.NewIntake()
			first := s.Say(slacktest.Message{Channel: general, User: slacktest.BotUser, BotID: slacktest.BotID, Text: "one"})
			second := s.Say(slacktest.Message{Channel: general, User: slacktest.BotUser, BotID: slacktest.BotID, Text: "two"})
			c.fault.Method = "conversations.replies"
			s.Fail(c.fault)
			receive(t, s, in)
			for _, thread := range []string{first, second} {
				s.Say(slacktest.Message{Channel: general, User: bob.ID, Text: "why?", Thread: thread})
			}
			acked(t, s, 4)
			for n, want := range []*channel.ReplyTo{{ID: first, Mine: true}, {ID: second, Text: c.second, Mine: true}} {
				if diff := cmp.Diff(want, in.Taken[n].ReplyTo); diff != "" {
					t.Error(diff)
				}
			}
			if n := len(s.Calls("conversations.replies")); n != c.calls {
				t.Errorf("%d look-ups, not %d", n, c.calls)
			}
		})
	}
}

// S4-06: a thread between others costs no request, until one of its messages addresses the bot.
func TestThreadOfOthers(t *testing.T) {
	s, in := serve(t, slacktest.Config{}), channeltest.NewIntake()
	root := s.Say(slacktest.Message{Channel: general, User: ann.ID, Text: "lunch?"})
	direct := say(s, "hello")
	receive(t, s, in)
	asked := func(m slacktest.Message, calls int, want channel.ReplyTo) {
		t.Helper()
		m.User, m.Thread = bob.ID, want.ID
		ts := s.Say(m)
		var u channel.Update
		in.Await(t, m.Text, func() bool {
			n := slices.IndexFunc(in.Taken, func(u channel.Update) bool { return u.MessageID == ts })
			if n >= 0 {
				u = in.Taken[n]
			}
			return n >= 0
		})
		if got := len(s.Calls("conversations.replies")); got != calls {
			t.Errorf("%q: %d look-ups, not %d", m.Text, got, calls)
		}
		if diff := cmp.Diff(&want, u.ReplyTo); diff != "" {
			t.Error(diff)
		}
	}
	asked(slacktest.Message{Channel: general, Text: "yes"}, 0, channel.ReplyTo{ID: root})
	asked(slacktest.Message{Channel: general, Text: "where?"}, 0, channel.ReplyTo{ID: root})
	asked(slacktest.Message{Channel: general, Text: "<@U0BOT> where?"}, 1, channel.ReplyTo{ID: root, Text: "lunch?"})
	asked(slacktest.Message{Channel: general, Text: "there"}, 1, channel.ReplyTo{ID: root})
	asked(slacktest.Message{Channel: slacktest.IM(bob), Text: "again"}, 2, channel.ReplyTo{ID: direct, Text: "hello"})
}

// The two events of a mention have one key, and the kind of the conversation is the same whichever
// comes first.
func TestMention(t *testing.T) {
	group := slacktest.Channel{ID: "C7", Type: "mpim", Name: "mpdm-1"}
	s, in := serve(t, slacktest.Config{}), channeltest.NewIntake()
	s.AddChannel(group)
	receive(t, s, in)
	s.Push(map[string]any{"type": "app_mention", "channel": "C7", "user": "U31", "text": "<@U0BOT> hi", "ts": "1700000000.000100"})
	s.Push(map[string]any{"type": "message", "channel": "C7", "channel_type": "mpim", "user": "U31", "text": "<@U0BOT> hi", "ts": "1700000000.000100"})
	s.Push(map[string]any{"type": "app_mention", "channel": "C7", "user": "U31", "text": "<@U0BOT> again", "ts": "1700000001.000100"})
	acked(t, s, 3)
	for _, u := range in.Taken {
		if u.Kind != "group" || !u.Mentioned {
			t.Errorf("%+v", u)
		}
	}
	if len(in.Stored) != 2 {
		t.Errorf("%v", in.Stored)
	}
	if n := len(s.Calls("conversations.info")); n != 1 {
		t.Errorf("%d look-ups", n)
	}
	if n := len(s.Calls("users.info")); n != 1 {
		t.Errorf("%d look-ups of a name", n)
	}
}

// An edit by a person is an update of its own; what the platform itself changed is none.
func TestEdit(t *testing.T) {
	s, in := serve(t, slacktest.Config{}), channeltest.NewIntake()
	receive(t, s, in)
	ts := say(s, "helo")
	if err := s.Edit("D1207", ts, "hello"); err != nil {
		t.Fatal(err)
	}
	s.Push(map[string]any{
		"type": "message", "subtype": "message_changed", "channel": "D1207", "channel_type": "im", "ts": "1700000009.000100",
		"message":          map[string]any{"type": "message", "user": "U1207", "text": "hello", "ts": ts, "attachments": []any{map[string]any{"title": "a preview"}}},
		"previous_message": map[string]any{"type": "message", "user": "U1207", "text": "hello", "ts": ts},
	})
	acked(t, s, 3)
	if len(in.Taken) != 2 {
		t.Fatalf("%q", in.Texts())
	}
	first, edit := in.Taken[0], in.Taken[1]
	if edit.EditOf != first.Key || !strings.HasPrefix(edit.Key, first.Key+":e") || edit.Text != "hello" || edit.Kind != "dm" || edit.PeerID != "U1207" || edit.MessageID != ts {
		t.Errorf("%+v", edit)
	}
}

// What is no message to the account is acknowledged, counted and left out: its own messages, people who
// join, deletions, reactions, and what this build does not know, in whatever form.
func TestLeftOut(t *testing.T) {
	s, in := serve(t, slacktest.Config{}), channeltest.NewIntake()
	receive(t, s, in)
	message := func(more map[string]any) map[string]any {
		m := map[string]any{"type": "message", "channel": "C100", "channel_type": "channel", "user": "U31", "text": "x", "ts": "1700000000.000100"}
		for key, value := range more {
			m[key] = value
		}
		return m
	}
	for _, e := range []map[string]any{
		message(map[string]any{"user": slacktest.BotUser}),
		message(map[string]any{"user": "", "bot_id": slacktest.BotID}),
		message(map[string]any{"subtype": "channel_join"}),
		message(map[string]any{"subtype": "message_deleted", "deleted_ts": "1700000000.000100"}),
		message(map[string]any{"subtype": "message_changed"}),
		message(map[string]any{"text": ""}),
		message(map[string]any{"channel": "../x"}),
		message(map[string]any{"channel": 7}),
		message(map[string]any{"ts": "now"}),
		message(map[string]any{"user": ""}),
		{"type": "reaction_added", "user": "U31", "reaction": "eyes"},
		{"type": "app_home_opened"},
		{},
	} {
		s.Push(e)
	}
	s.PushEnvelope("slash_commands", map[string]any{"command": "/x"})
	s.PushEnvelope("interactive", map[string]any{"type": "view_submission"})
	s.PushEnvelope("interactive", map[string]any{
		"type": "block_actions", "user": map[string]any{"id": "U31"}, "channel": map[string]any{"id": "C100"}, "container": map[string]any{"message_ts": "1700000000.000100"},
		"actions": []any{map[string]any{"action_id": "other", "value": "/approve", "action_ts": "1700000000.000100"}},
	})
	s.PushEnvelope("events_api", "a text")
	s.PushEnvelope("a kind of the future", []int{1})
	acked(t, s, s.Stats().Events)
	if len(in.Taken) != 0 || in.Skipped != s.Stats().Events {
		t.Errorf("%d events, %d counted, taken %+v", s.Stats().Events, in.Skipped, in.Taken)
	}
	say(s, "still there")
	acked(t, s, s.Stats().Events)
	if got := in.Texts(); !slices.Equal(got, []string{"still there"}) {
		t.Errorf("%q", got)
	}
}

// A file has its type, and its content comes from the platform alone, with the token, and is counted.
func TestFiles(t *testing.T) {
	s, in := serve(t, slacktest.Config{}), channeltest.NewIntake()
	receive(t, s, in)
	s.Say(slacktest.Message{Channel: slacktest.IM(bob), User: bob.ID, Text: "look", Files: []slacktest.File{
		{Name: "a.png", MIME: "image/png", Content: []byte("png")},
		{Name: "note.m4a", MIME: "audio/mp4", Subtype: "slack_audio", Content: []byte("voice")},
		{Name: "film.mp4", MIME: "video/mp4", Content: bytes.Repeat([]byte("x"), 1<<20)},
		{Name: "report.pdf", MIME: "application/pdf", URL: "http://files.example/report.pdf"},
		{Name: "deck", MIME: "application/vnd.google-apps.presentation", Mode: "external", URL: "https://docs.example/deck"},
		{Name: "gone.txt", MIME: "text/plain", Mode: "tombstone"},
		{Name: "page.html", MIME: "text/html", Content: []byte("<p>")},
	}})
	acked(t, s, 1)
	u := in.Taken[0]
	var types []string
	for _, a := range u.Attachments {
		open := ""
		if a.Open != nil {
			open = " opens"
		}
		types = append(types, a.Name+" "+a.Type+open)
	}
	if want := []string{"a.png image opens", "note.m4a voice opens", "film.mp4 video opens", "report.pdf file", "deck file", "page.html file opens"}; !slices.Equal(types, want) || u.Text != "look" {
		t.Fatalf("%q", types)
	}
	read := func(i int, limit int64) (string, error) {
		body, err := u.Attachments[i].Open(t.Context(), limit)
		if err != nil {
			return "", err
		}
		defer body.Close()
		b, err := io.ReadAll(body)
		return string(b), err
	}
	if got, err := read(0, 100); got != "png" || err != nil {
		t.Errorf("%q %v", got, err)
	}
	if got, err := read(5, 100); got != "<p>" || err != nil {
		t.Errorf("%q %v", got, err)
	}
	if got, err := read(2, 1000); !errors.Is(err, channel.ErrTooLarge) || len(got) > 1000 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	s.Fail(slacktest.Fault{Method: "file", Body: "page"})
	if _, err := read(0, 100); err == nil || !strings.Contains(err.Error(), "files:read") {
		t.Errorf("a page to log in: %v", err)
	}
	s.Fail(slacktest.Fault{Method: "file", Status: 404})
	if _, err := read(0, 100); err == nil || strings.Contains(err.Error(), "http://") {
		t.Errorf("%v", err)
	}
	s.Fail(slacktest.Fault{Method: "file", Cut: slacktest.CutBefore})
	if _, err := read(0, 100); err == nil || errors.Is(err, io.EOF) && strings.Contains(err.Error(), "xoxb") {
		t.Errorf("%v", err)
	}
}

// Names that cannot be looked up are left out, and a platform that asks for a pause gets one.
func TestNames(t *testing.T) {
	s, in := serve(t, slacktest.Config{}), channeltest.NewIntake()
	s.Fail(slacktest.Fault{Method: "users.info", Error: "ratelimited", Status: 429, RetryAfter: 600})
	receive(t, s, in)
	say(s, "one")
	s.Say(slacktest.Message{Channel: general, User: ann.ID, Text: "two <@U1207> <@U2> <@U3> <@U4>"})
	acked(t, s, 2)
	if n := len(s.Calls("users.info")); n != 1 || in.Taken[1].PeerName != "" || in.Taken[1].Text != "two @U1207 @U2 @U3 @U4" {
		t.Errorf("%d look-ups, %+v", n, in.Taken)
	}
}
