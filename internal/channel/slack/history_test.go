package slack_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/channel/channeltest"
	"github.com/theclaw/agents/internal/channel/slack/slacktest"
)

// What was written during an outage that the platform has given up arrives after it, in its order,
// each message once, before what comes over the new connection: in a conversation, in a thread that
// was known, and in one that began meanwhile.
func TestOutage(t *testing.T) {
	s, in := serve(t, slacktest.Config{}), channeltest.NewIntake()
	stop := receive(t, s, in)
	write := func(text, thread string) string {
		return s.Say(slacktest.Message{Channel: general, User: ann.ID, Text: text, Thread: thread})
	}
	say(s, "direct")
	root := write("root", "")
	write("reply", root)
	acked(t, s, 3)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	var want []string
	for n := range 450 {
		want = append(want, fmt.Sprint("direct ", n))
		say(s, want[n])
	}
	write("reply 2", root)
	second := write("second", "")
	write("reply to the second", second)
	ts := say(s, "helo")
	if err := s.Edit("D1207", ts, "hello"); err != nil {
		t.Fatal(err)
	}
	want = append(want, "hello")
	s.Forget()
	before := len(in.Taken)
	stop = receive(t, s, in)
	say(s, "live")
	want = append(want, "live")
	acked(t, s, 4)
	var direct, threads []string
	keys := map[string]bool{}
	for _, u := range in.Taken[before:] {
		if keys[u.Key] {
			if u.Text != "live" { // which is in the history, too
				t.Errorf("%s was taken twice", u.Key)
			}
			continue
		}
		keys[u.Key] = true
		if u.SessionID == "D1207" {
			direct = append(direct, u.Text)
		} else {
			threads = append(threads, u.Text+" in "+u.Thread)
		}
		if u.EditOf != "" || u.Team != "T0DEMO" || u.Kind != map[bool]string{true: "dm", false: "channel"}[u.SessionID == "D1207"] {
			t.Errorf("%+v", u)
		}
	}
	if !slices.Equal(direct, want) {
		t.Errorf("%d messages, %q", len(direct), direct[max(len(direct)-3, 0):])
	}
	slices.Sort(threads)
	if want := []string{"reply 2 in " + root, "reply to the second in " + second, "second in "}; !slices.Equal(threads, want) {
		t.Errorf("%q, want %q", threads, want)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	before = len(in.Taken)
	receive(t, s, in) // without an outage nothing comes again
	say(s, "later")
	acked(t, s, 5)
	if got := slices.Compact(in.Texts()[before:]); !slices.Equal(got, []string{"later"}) {
		t.Errorf("%q", got)
	}
}

// What is not stored is not behind a position, whatever was stored after it in other conversations.
func TestOutageOfStoring(t *testing.T) {
	s, in := serve(t, slacktest.Config{}), channeltest.NewIntake()
	stop := receive(t, s, in)
	say(s, "stored")
	acked(t, s, 1)
	in.Hold = func(u channel.Update) bool { return u.SessionID == "D1207" }
	say(s, "not stored")
	s.Say(slacktest.Message{Channel: general, User: ann.ID, Text: "elsewhere"})
	acked(t, s, 2)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	in.Do(func() { in.Hold, in.Waiting = nil, nil }) // killed
	s.Forget()
	receive(t, s, in)
	in.Await(t, "the message", func() bool { return len(in.Stored) == 3 })
	if got := in.Texts(); got[len(got)-1] != "not stored" {
		t.Errorf("%q", got)
	}
}

// A channel in which only threads are used is in use: what is written next to them is fetched as well.
func TestOutageOfThreads(t *testing.T) {
	s, in := serve(t, slacktest.Config{}), channeltest.NewIntake()
	root := fmt.Sprintf("%d.000100", time.Now().Add(-8*24*time.Hour).Unix())
	for n := range 4 {
		in.Cursors[fmt.Sprint("positions-", n)] = general.ID + "/ channel " + root + "\n" // each holds a part of the channels
	}
	stop := receive(t, s, in)
	s.Push(map[string]any{
		"type": "message", "channel": general.ID, "channel_type": "channel", "user": ann.ID, "text": "reply",
		"ts": fmt.Sprintf("%d.000100", time.Now().Unix()), "thread_ts": root,
	})
	acked(t, s, 1)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	s.Say(slacktest.Message{Channel: general, User: ann.ID, Text: "next to the thread"})
	s.Forget()
	receive(t, s, in)
	in.Await(t, "the message", func() bool { return len(in.Stored) == 2 })
}

// A conversation that the platform refuses is left out, one that it delays is waited for, and a
// cursor of another form is none.
func TestOutageRefused(t *testing.T) {
	s, in := serve(t, slacktest.Config{}), channeltest.NewIntake()
	stop := receive(t, s, in)
	say(s, "one")
	s.Say(slacktest.Message{Channel: general, User: ann.ID, Text: "two"})
	acked(t, s, 2)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	say(s, "three")
	s.Forget()
	in.Do(func() { in.Cursors["positions-3"] += "nonsense\nC1/../.. dm 1.1\nC5 dm\n" })
	s.Fail(slacktest.Fault{Method: "conversations.history", Channel: "C100", Error: "not_in_channel"})
	s.Fail(slacktest.Fault{Method: "conversations.history", Channel: "D1207", Error: "ratelimited", Status: 429, RetryAfter: 1})
	receive(t, s, in)
	in.Await(t, "the message", func() bool { return len(in.Stored) == 3 })
}

// Of texts that are longer than an answer may be, fewer are asked for at once.
func TestOutageOfLongTexts(t *testing.T) {
	s, in := serve(t, slacktest.Config{}), channeltest.NewIntake()
	stop := receive(t, s, in)
	say(s, "one")
	acked(t, s, 1)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	const n = 150
	for range n {
		say(s, strings.Repeat("x", 40_000))
	}
	s.Forget()
	receive(t, s, in)
	in.Await(t, "the messages", func() bool { return len(in.Stored) == n+1 })
	if calls := len(s.Calls("conversations.history")); calls < 3 {
		t.Errorf("%d requests", calls)
	}
}

// A conversation that cannot be fetched now holds up no other one, nor what is written now. It is
// fetched later, from the page on that is missing; a receiver that ends before that leaves the
// position where it was, whatever was stored meanwhile.
func TestOutageLater(t *testing.T) {
	for name, f := range map[string]slacktest.Fault{
		"broken":     {Status: 500},
		"a word":     {Error: "internal_error"},
		"cut":        {Cut: slacktest.CutBefore},
		"unreadable": {Body: "<html>"},
		"later page": {Status: 500, After: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s, in := serve(t, slacktest.Config{}), channeltest.NewIntake()
			stop := receive(t, s, in)
			say(s, "direct")
			s.Say(slacktest.Message{Channel: general, User: ann.ID, Text: "channel"})
			acked(t, s, 2)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			const missed = 250
			for n := range missed {
				say(s, fmt.Sprint("missed ", n))
			}
			s.Say(slacktest.Message{Channel: general, User: ann.ID, Text: "elsewhere"})
			s.Forget()
			f.Method, f.Channel, f.Times = "conversations.history", "D1207", -1
			s.Fail(f)
			stop = receive(t, s, in)
			in.Await(t, "the other conversation", func() bool {
				return slices.ContainsFunc(in.Taken, func(u channel.Update) bool { return u.Text == "elsewhere" })
			})
			say(s, "live")
			acked(t, s, 3)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			receive(t, s, in)
			say(s, "live 2")
			acked(t, s, 4)
			s.Heal()
			in.Await(t, "what was missed", func() bool { return len(in.Stored) == 5+missed })
		})
	}
}

// However many conversations there are, what is kept of them fits, and the last used stay.
func TestPositionsAreBounded(t *testing.T) {
	s, in := serve(t, slacktest.Config{}), channeltest.NewIntake()
	stop := receive(t, s, in)
	now := time.Now().Unix()
	const n = 600
	for i := range n {
		s.Push(map[string]any{
			"type": "message", "channel": fmt.Sprintf("C0123456%04d", i), "channel_type": "channel", "user": "U31", "text": "x",
			"ts": fmt.Sprintf("%d.000100", now-n+int64(i)), "thread_ts": fmt.Sprintf("%d.000100", now-2*n+int64(i)),
		})
	}
	acked(t, s, n)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	all := ""
	for name, value := range in.Cursors {
		all += value
		if len(value) > 4096 {
			t.Errorf("%s has %d bytes", name, len(value))
		}
	}
	if kept := strings.Count(all, "\n"); kept < 200 || !strings.Contains(all, "C01234560599/") || strings.Contains(all, "C01234560000/") {
		t.Errorf("%d positions", kept)
	}
	before := len(s.Calls("conversations.replies"))
	receive(t, s, in)
	wait(t, s, func() bool { return len(s.Calls("conversations.replies")) == before+200 })
}
