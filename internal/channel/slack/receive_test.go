package slack_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/channel/channeltest"
	"github.com/theclaw/agents/internal/channel/slack"
	"github.com/theclaw/agents/internal/channel/slack/slacktest"
)

// S2-17: 250 messages of a conversation arrive in their order, each once, and all are acknowledged;
// the account says who it is.
func TestOrder(t *testing.T) {
	s, in := serve(t, slacktest.Config{}), channeltest.NewIntake()
	stop := receive(t, s, in)
	var want []string
	for n := range 250 {
		want = append(want, fmt.Sprint("message ", n))
		say(s, want[n])
	}
	acked(t, s, 250)
	if got := in.Texts(); !slices.Equal(got, want) {
		t.Errorf("taken %q", got)
	}
	if in.Identity != "U0BOT@T0DEMO" || in.Name != "@demo_bot" {
		t.Errorf("connected as %s %s", in.Identity, in.Name)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if st := s.Stats(); st.Lost != 0 || st.Repeated != 0 || st.Sockets != 1 || st.Delivered != 250 {
		t.Errorf("%+v", st)
	}
}

// An envelope is acknowledged only after its message is stored. Until then the other conversations
// and messages go on, what the platform sends again is not taken again, and a stop at any time
// loses nothing: the next receiver gets what was not stored.
func TestAcknowledgement(t *testing.T) {
	in := channeltest.NewIntake()
	ahead := 0 // acknowledged without being stored
	s := serve(t, slacktest.Config{OnAck: func(ts string) {
		in.Do(func() {
			if !in.Stored["slack:U0BOT:D1207:"+ts] {
				ahead++
			}
		})
	}})
	in.Hold = func(u channel.Update) bool { return strings.HasPrefix(u.Text, "slow") }
	stop := receive(t, s, in)
	for _, text := range []string{"a", "slow b", "c", "slow d", "e"} {
		say(s, text)
	}
	acked(t, s, 3)
	s.Repeat()
	say(s, "f")
	acked(t, s, 4)
	if got := in.Texts(); len(got) != 6 || got[5] != "f" {
		t.Errorf("what was sent again was taken again: %q", got)
	}
	if st := s.Stats(); st.Acked != 4 || st.Repeated != 2 {
		t.Errorf("%+v", st)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	in.Release() // late: b and d were stored when their receiver had ended
	receive(t, s, in)
	acked(t, s, 6)
	if got := in.Texts()[6:]; !slices.Equal(got, []string{"slow b", "slow d"}) {
		t.Errorf("after the restart %q", got)
	}
	if st := s.Stats(); ahead != 0 || st.Lost != 0 {
		t.Errorf("%d acknowledged before they were stored; %+v", ahead, st)
	}
}

// What was sent again while it was being stored is acknowledged with it, each envelope once; the
// first came too late for the platform.
func TestRepeatedWhileStoring(t *testing.T) {
	s, in := serve(t, slacktest.Config{}), channeltest.NewIntake()
	in.Hold = func(channel.Update) bool { return true }
	receive(t, s, in)
	say(s, "one")
	in.Await(t, "the message", func() bool { return len(in.Taken) == 1 })
	s.Repeat()
	say(s, "two") // after it the repeat was read, too
	in.Await(t, "the second message", func() bool { return len(in.Taken) == 2 })
	in.Release()
	acked(t, s, 2)
	if st := s.Stats(); st.Late != 1 || st.Repeated != 1 || len(in.Taken) != 2 {
		t.Errorf("%+v, taken %q", st, in.Texts())
	}
}

// The platform sends what is not acknowledged within its limit again, with a count; it has the
// same key.
func TestTooSlow(t *testing.T) {
	s, in := serve(t, slacktest.Config{AckLimit: 20 * time.Millisecond, Tries: 1 << 20}), channeltest.NewIntake()
	in.Hold = func(channel.Update) bool { return true }
	receive(t, s, in)
	say(s, "one")
	wait(t, s, func() bool { return s.Stats().Repeated > 0 })
	in.Release()
	acked(t, s, 1)
	if len(in.Stored) != 1 {
		t.Errorf("stored %v", in.Stored)
	}
}

// The control of TestAcknowledgement: an intake that reports messages as stored that are not loses
// those that it had when it stopped.
func TestEarlyAcknowledgementLoses(t *testing.T) {
	s, in := serve(t, slacktest.Config{}), channeltest.NewIntake()
	in.Hold, in.Early = func(channel.Update) bool { return true }, true
	stop := receive(t, s, in)
	say(s, "one")
	say(s, "two")
	acked(t, s, 2)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	in.Do(func() { in.Hold, in.Waiting = nil, nil }) // killed
	receive(t, s, in)
	say(s, "three")
	acked(t, s, 3)
	if len(in.Stored) != 1 {
		t.Errorf("stored %v, want the third alone", in.Stored)
	}
}

// When the platform announces the end of a connection, the next one is open before it ends, nothing
// is lost or taken twice, and what came over the old one is acknowledged over it.
func TestRefresh(t *testing.T) {
	s, in := serve(t, slacktest.Config{}), channeltest.NewIntake()
	stop := receive(t, s, in)
	in.Hold = func(u channel.Update) bool { return u.Text == "slow" }
	say(s, "slow")
	in.Await(t, "the message", func() bool { return len(in.Taken) == 1 })
	for round, reason := range []string{"warning", "refresh_requested"} {
		s.Refresh(reason)
		say(s, fmt.Sprint("meanwhile ", round)) // waits for the next connection
		acked(t, s, round+1)
		if n := s.Open(); n != round+2 {
			t.Errorf("%d connections are open", n)
		}
	}
	in.Release()
	acked(t, s, 3)
	s.CutLeaving()
	wait(t, s, func() bool { return s.Open() == 1 })
	say(s, "after")
	acked(t, s, 4)
	if err := stop(); err != nil {
		t.Error(err)
	}
	if st := s.Stats(); st.Repeated != 0 || st.Late != 0 || st.Sockets != 3 || len(in.Taken) != 4 {
		t.Errorf("%+v, taken %q", st, in.Texts())
	}
}

// A connection that is lost, or that the platform ended as announced, at once.
func TestLostConnection(t *testing.T) {
	s, in := serve(t, slacktest.Config{}), channeltest.NewIntake()
	ended := make(chan error, 1)
	go func() { ended <- ends(t, s, in) }()
	say(s, "one")
	acked(t, s, 1)
	s.Cut()
	e := channel.AsError(<-ended)
	if e == nil || e.Class != channel.Unavailable || e.Reason != "" || !strings.Contains(e.What, "the connection was lost") {
		t.Errorf("%v", e)
	}
	stop := receive(t, s, in)
	say(s, "two")
	acked(t, s, 2)
	s.Refresh("warning")
	s.CutLeaving()
	say(s, "three")
	acked(t, s, 3)
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// A platform that answers no pings is gone, although nothing says so.
func TestSilence(t *testing.T) {
	slack.SetPings(t, 50*time.Millisecond, 2*time.Second)
	s, in := serve(t, slacktest.Config{}), channeltest.NewIntake()
	ended := make(chan error, 1)
	go func() { ended <- ends(t, s, in) }()
	say(s, "one")
	acked(t, s, 1)
	s.Mute()
	say(s, "two")
	if e := channel.AsError(<-ended); e == nil || !strings.Contains(e.What, "did not answer in time") {
		t.Errorf("%v", e)
	}
}

// Each failure ends the receiver with an error that says what to do, has the reason that the
// gateway needs, and no part of a token; nothing is acknowledged.
func TestReceiveFails(t *testing.T) {
	for _, c := range []struct {
		name   string
		fault  slacktest.Fault
		reason string
		what   string
		fix    string
	}{
		{"a wrong token", slacktest.Fault{Method: "auth.test", Error: "invalid_auth"}, channel.ReasonAuth, "refused a token of sl", "env:SLACK_BOT"},
		{"none", slacktest.Fault{Method: "auth.test", Error: "not_authed"}, channel.ReasonAuth, "refused a token of sl", "env:SLACK_BOT"},
		{"removed", slacktest.Fault{Method: "auth.test", Error: "account_inactive"}, channel.ReasonAuth, "refused a token of sl", "env:SLACK_BOT"},
		{"app token", slacktest.Fault{Method: "apps.connections.open", Error: "invalid_auth"}, channel.ReasonAuth, "refused a token of sl", "env:SLACK_APP"},
		{"scope", slacktest.Fault{Method: "apps.connections.open", Error: "missing_scope", Needed: "connections:write"}, channel.ReasonAuth, "missing_scope", "connections:write"},
		{"too often", slacktest.Fault{Method: "apps.connections.open", Status: 429, RetryAfter: 7}, "", "answered 429", ""},
		{"limited", slacktest.Fault{Method: "auth.test", Status: 429, Error: "ratelimited", RetryAfter: 7}, "", "answered ratelimited", ""},
		{"broken", slacktest.Fault{Method: "auth.test", Status: 503}, "", "answered 503", ""},
		{"inside", slacktest.Fault{Method: "auth.test", Error: "internal_error"}, "", "internal_error", ""},
		{"cut", slacktest.Fault{Method: "auth.test", Cut: slacktest.CutBefore}, "", "cannot be reached", "check the network"},
		{"cut after", slacktest.Fault{Method: "apps.connections.open", Cut: slacktest.CutAfter}, "", "cannot be reached", "check the network"},
		{"a page", slacktest.Fault{Method: "auth.test", Body: "<html>log in to the network</html>"}, "", "the answer cannot be read", ""},
		{"no id", slacktest.Fault{Method: "auth.test", Body: `{"ok":true,"user":"x"}`}, "", "the answer has no id", ""},
		{"no address", slacktest.Fault{Method: "apps.connections.open", Body: `{"ok":true,"url":"wss:"}`}, "", "no address of a socket", ""},
		{"another host", slacktest.Fault{Method: "apps.connections.open", Body: `{"ok":true,"url":"ws://socket.example/"}`}, "", "no address of a socket", ""},
		{"too long", slacktest.Fault{Method: "auth.test", Body: strings.Repeat(" ", 4<<20) + `{"ok":true}`}, "", "longer than 4194304 bytes", ""},
		{"no socket", slacktest.Fault{Method: "socket", Status: 404}, "", "socket: 127.0.0.1", ""},
		{"switched off", slacktest.Fault{Method: "socket", Body: `{"type":"disconnect","reason":"link_disabled"}`}, "", "Socket Mode is switched off", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, in := serve(t, slacktest.Config{}), channeltest.NewIntake()
			in.Hold = func(channel.Update) bool { return true }
			s.Fail(c.fault)
			err := ends(t, s, in)
			e, ok := errors.AsType[*channel.Error](err)
			if !ok || e.Class != channel.Unavailable || e.Reason != c.reason || !strings.Contains(e.What, c.what) || !strings.Contains(e.Fix, c.fix) {
				t.Fatalf("%v - %v, want %s %q %q", err, e, c.reason, c.what, c.fix)
			}
			if c.fault.RetryAfter > 0 && e.RetryAfter != time.Duration(c.fault.RetryAfter)*time.Second {
				t.Errorf("again after %v", e.RetryAfter)
			}
			for cause := error(e); cause != nil; cause = errors.Unwrap(cause) {
				if strings.Contains(cause.Error(), "TEST-token") || strings.Contains(cause.Error(), "ticket") {
					t.Errorf("the error has a secret: %v", cause)
				}
			}
			in.Do(func() { in.Hold = nil })
			say(s, "waits")
			stop := receive(t, s, in)
			acked(t, s, 1)
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// An account that the gateway refuses ends with the gateway's reason, and its connection with it.
func TestRefusedAccount(t *testing.T) {
	s, in := serve(t, slacktest.Config{}), channeltest.NewIntake()
	in.Refuse = channel.Reject(channel.ReasonConflict, "received already", "")
	if e := channel.AsError(ends(t, s, in)); e == nil || e.Reason != channel.ReasonConflict {
		t.Errorf("%v", e)
	}
	wait(t, s, func() bool { return s.Open() == 0 })
}

// A token that cannot be used is no request at all.
func TestToken(t *testing.T) {
	s := serve(t, slacktest.Config{})
	d, _ := account(s)
	for value, err := range map[string]error{"": errors.New("the environment variable SLACK_BOT is not set"), "hunter2": nil, "xoxp-1-2": nil, "xoxb-a b": nil} {
		r, _ := slack.Type.Receive("sl", d, channel.Deps{Resolve: func(context.Context, string) (string, error) { return value, err }})
		e := channel.AsError(r.Receive(t.Context(), channeltest.NewIntake()))
		if e == nil || e.Reason != channel.ReasonAuth || !strings.Contains(e.Fix, "env:SLACK_BOT") || value != "" && strings.Contains(fmt.Sprint(e, e.Err), value) {
			t.Errorf("%q: %v", value, e)
		}
	}
	if calls := s.Calls(""); len(calls) != 0 {
		t.Errorf("%v", calls)
	}
	d.AppToken = ""
	r, _ := slack.Type.Receive("sl", d, channel.Deps{Resolve: s.Resolve})
	if e := channel.AsError(r.Receive(t.Context(), channeltest.NewIntake())); e == nil || e.Reason != channel.ReasonAuth || !strings.Contains(e.Fix, "set channels.sl.app_token") {
		t.Errorf("no app token: %v", e)
	}
}
