package telegram_test

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
	"github.com/theclaw/agents/internal/channel/telegram"
	"github.com/theclaw/agents/internal/channel/telegram/telegramtest"
)

func TestMain(m *testing.M) {
	telegram.Verify(m)
}

// bob writes to the bot.
var bob = telegramtest.User{ID: 1207, FirstName: "Bob", Username: "bob"}

// serve starts a Bot API.
func serve(t *testing.T, c telegramtest.Config) *telegramtest.Server {
	t.Helper()
	s, err := telegramtest.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// account is the definition of an account at a server, with what reads its token.
func account(s *telegramtest.Server) (channel.Definition, channel.Deps) {
	return channel.Definition{Type: "telegram", Token: "env:TG_TOKEN", API: s.URL()},
		channel.Deps{Resolve: func(context.Context, string) (string, error) { return s.Token(), nil }}
}

// receiver is one of an account at a server.
func receiver(t *testing.T, s *telegramtest.Server) channel.Receiver {
	t.Helper()
	d, deps := account(s)
	r, err := telegram.Type.Receive("tg", d, deps)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// receive runs a receiver until stop is called, which returns its error.
func receive(t *testing.T, s *telegramtest.Server, in channel.Intake) (stop func() error) {
	t.Helper()
	return channeltest.Run(t, receiver(t, s), in)
}

// ends runs a receiver that has to end on its own, and returns its error.
func ends(t *testing.T, s *telegramtest.Server, in channel.Intake) error {
	t.Helper()
	return receiver(t, s).Receive(t.Context(), in)
}

func say(s *telegramtest.Server, text string) {
	s.Say(telegramtest.Message{Chat: telegramtest.Private(bob), From: &bob, Text: text})
}

// acked waits until the bot acknowledged n updates.
func acked(t *testing.T, s *telegramtest.Server, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Wait(ctx, func() bool { return s.Stats().Acked >= n }); err != nil {
		t.Fatalf("%v: %+v", err, s.Stats())
	}
}

// S2-17: 100 messages of a chat arrive in their order, each once, and all are acknowledged; the
// account says who it is.
func TestOrder(t *testing.T) {
	s, in := serve(t, telegramtest.Config{}), channeltest.NewIntake()
	stop := receive(t, s, in)
	var want []string
	for n := range 250 { // more than an answer has
		want = append(want, fmt.Sprint("message ", n))
		say(s, want[n])
	}
	in.Await(t, "250 messages", func() bool { return len(in.Taken) >= 250 })
	acked(t, s, 250)
	if got := in.Texts(); !slices.Equal(got, want) {
		t.Errorf("taken %q", got)
	}
	if in.Identity != "4242" || in.Name != "@demo_bot" {
		t.Errorf("connected as %s %s", in.Identity, in.Name)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if st := s.Stats(); st.Lost != 0 || st.Repeated != 0 || st.Conflicts != 0 || st.Returned != 250 {
		t.Errorf("%+v", st)
	}
}

// An update is acknowledged only after it and all before it are stored. Until then it is not taken
// again, the chats behind it go on, and a stop at any time loses nothing: the next receiver gets
// what was not stored.
func TestAcknowledgement(t *testing.T) {
	in := channeltest.NewIntake()
	ahead := 0 // acknowledged without being stored
	s := serve(t, telegramtest.Config{OnAck: func(update int64) {
		in.Do(func() {
			if key := fmt.Sprintf("telegram:4242:1207:%d", update-9001+5502); !in.Stored[key] {
				ahead++
			}
		})
	}})
	in.Hold = func(u channel.Update) bool { return strings.HasPrefix(u.Text, "slow") }
	stop := receive(t, s, in)
	for _, text := range []string{"a", "slow b", "c", "slow d", "e"} {
		say(s, text)
	}
	in.Await(t, "5 messages", func() bool { return len(in.Taken) == 5 })
	say(s, "f") // arrives although b is not stored
	in.Await(t, "6 messages", func() bool { return len(in.Taken) == 6 })
	acked(t, s, 1)
	if st := s.Stats(); st.Acked != 1 {
		t.Errorf("%+v", st)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if kept := in.Cursors["offset"]; !strings.HasPrefix(kept, "9002 ") {
		t.Errorf("kept %q", kept)
	}
	in.Release() // late: b and d were stored when their receiver had ended
	if kept := in.Cursors["offset"]; !strings.HasPrefix(kept, "9002 ") {
		t.Errorf("a receiver that ended kept %q", kept)
	}
	receive(t, s, in)
	acked(t, s, 6)
	if got, want := in.Texts()[6:], []string{"slow b", "c", "slow d", "e", "f"}; !slices.Equal(got, want) {
		t.Errorf("after the restart %q", got)
	}
	if st := s.Stats(); ahead != 0 || st.Lost != 0 {
		t.Errorf("%d acknowledged before they were stored; %+v", ahead, st)
	}
}

// The control of TestAcknowledgement: an intake that reports updates as stored that are not loses
// those that it had when it stopped, and the server notices.
func TestEarlyAcknowledgementLoses(t *testing.T) {
	s, in := serve(t, telegramtest.Config{}), channeltest.NewIntake()
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

// What the platform returns again is not taken again while it is known, and is taken with the same
// key when its acknowledgement was forgotten.
func TestRepeats(t *testing.T) {
	s, in := serve(t, telegramtest.Config{}), channeltest.NewIntake()
	receive(t, s, in)
	say(s, "one")
	say(s, "two")
	acked(t, s, 2)
	s.Repeat(2)
	in.Await(t, "the repeats", func() bool { return len(in.Taken) == 4 })
	say(s, "three")
	acked(t, s, 3)
	keys := map[string]int{}
	for _, u := range in.Taken {
		keys[u.Key]++
	}
	if len(keys) != 3 || len(in.Stored) != 3 {
		t.Errorf("%v", keys)
	}
}

// After a week without updates the platform numbers at random, and another server has numbers of
// its own: what is numbered below the offset arrives.
func TestNumbersBeginAgain(t *testing.T) {
	s, in := serve(t, telegramtest.Config{}), channeltest.NewIntake()
	receive(t, s, in)
	say(s, "one")
	acked(t, s, 1)
	s.Renumber(17)
	say(s, "two")
	say(s, "three")
	acked(t, s, 3)
	if got := in.Texts(); !slices.Equal(got, []string{"one", "two", "three"}) {
		t.Errorf("%q", got)
	}
	other, in2 := serve(t, telegramtest.Config{}), channeltest.NewIntake()
	in2.Cursors["offset"] = fmt.Sprintf("99000 %d elsewhere", time.Now().Unix())
	receive(t, other, in2)
	say(other, "four")
	acked(t, other, 1)
}

// Each failure ends the receiver with an error that says what to do, has the reason that the
// gateway needs, and no part of the token; nothing is acknowledged.
func TestReceiveFails(t *testing.T) {
	for _, c := range []struct {
		name   string
		fault  telegramtest.Fault
		reason string
		what   string
	}{
		{"a revoked token", telegramtest.Fault{Method: "getMe", Status: 401}, channel.ReasonAuth, "refused the token of tg"},
		{"no token", telegramtest.Fault{Method: "getMe", Status: 404}, channel.ReasonAuth, "refused the token of tg"},
		{"revoked later", telegramtest.Fault{Method: "getUpdates", Status: 401}, channel.ReasonAuth, "refused the token of tg"},
		{"another reader", telegramtest.Fault{Method: "getUpdates", Status: 409}, channel.ReasonConflict, "another program"},
		{"a webhook", telegramtest.Fault{Method: "getUpdates", Status: 409, Description: "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"}, channel.ReasonConflict, "the bot has a webhook"},
		{"too often", telegramtest.Fault{Method: "getUpdates", Status: 429, RetryAfter: 7}, "", "getUpdates answered 429"},
		{"broken", telegramtest.Fault{Method: "getUpdates", Status: 502}, "", "getUpdates answered 502"},
		{"cut", telegramtest.Fault{Method: "getUpdates", Cut: telegramtest.CutBefore}, "", "getUpdates: "},
		{"cut after", telegramtest.Fault{Method: "getUpdates", Cut: telegramtest.CutAfter}, "", "getUpdates: "},
		{"no JSON", telegramtest.Fault{Method: "getUpdates", Body: `{"ok":true,"result":[{"upd`}, "", "the answer cannot be read"},
		{"a page", telegramtest.Fault{Method: "getUpdates", Body: `<html>log in to the network</html>`}, "", "the answer cannot be read"},
		{"no list", telegramtest.Fault{Method: "getUpdates", Body: `{"ok":true,"result":{}}`}, "", "the result cannot be read"},
		{"an update without a number", telegramtest.Fault{Method: "getUpdates", Body: `{"ok":true,"result":[{"message":{}}]}`}, "", "an update has no number"},
		{"too long", telegramtest.Fault{Method: "getUpdates", Body: strings.Repeat(" ", 1<<20) + `{"ok":true,"result":[]}`, Times: 9}, "", "longer than 1048576 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, in := serve(t, telegramtest.Config{}), channeltest.NewIntake()
			say(s, "waits")
			s.Fail(c.fault)
			err := ends(t, s, in)
			e, ok := errors.AsType[*channel.Error](err)
			if !ok || e.Class != channel.Unavailable || e.Reason != c.reason || !strings.Contains(e.What, c.what) {
				t.Fatalf("%v, want %s %q", err, c.reason, c.what)
			}
			if c.fault.RetryAfter > 0 && e.RetryAfter != time.Duration(c.fault.RetryAfter)*time.Second {
				t.Errorf("again after %v", e.RetryAfter)
			}
			for cause := error(e); cause != nil; cause = errors.Unwrap(cause) {
				if strings.Contains(cause.Error(), "TEST-token") {
					t.Errorf("the error has the token: %v", cause)
				}
			}
			if st := s.Stats(); st.Acked != 0 {
				t.Errorf("%+v", st)
			}
			s.Heal()
			stop := receive(t, s, in)
			acked(t, s, 1)
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Two programs that receive with one token: the first ends with a conflict.
func TestConflict(t *testing.T) {
	s, in := serve(t, telegramtest.Config{}), channeltest.NewIntake()
	first := make(chan error, 1)
	go func() { first <- ends(t, s, in) }()
	in.Await(t, "the connection", func() bool { return in.Identity != "" })
	if err := s.Wait(t.Context(), func() bool { return s.Stats().Polls > 0 }); err != nil {
		t.Fatal(err)
	}
	receive(t, s, channeltest.NewIntake())
	if e := channel.AsError(<-first); e == nil || e.Reason != channel.ReasonConflict {
		t.Errorf("%v", e)
	}
	in.Do(func() { in.Refuse = channel.Reject(channel.ReasonConflict, "received already", "") })
	if e := channel.AsError(ends(t, s, in)); e == nil || e.Reason != channel.ReasonConflict || s.Stats().Conflicts != 1 {
		t.Errorf("an account that the gateway refuses: %v, %+v", e, s.Stats())
	}
}

// A receiver that may not read any more, because another gateway does, sends no request that would end one of that
// gateway; what it has taken stays unacknowledged.
func TestNotReady(t *testing.T) {
	s, in := serve(t, telegramtest.Config{}), channeltest.NewIntake()
	in.NotReady = errors.New("another gateway receives")
	say(s, "hello")
	if err := ends(t, s, in); !errors.Is(err, in.NotReady) {
		t.Errorf("%v", err)
	}
	if calls := s.Calls("getUpdates"); len(calls) != 0 || s.Stats().Polls != 0 {
		t.Errorf("%d requests", s.Stats().Polls)
	}
}

// A token that cannot be used is no request at all.
func TestToken(t *testing.T) {
	s := serve(t, telegramtest.Config{})
	for value, err := range map[string]error{"": errors.New("the environment variable TG_TOKEN is not set"), "hunter2": nil, "1:a/../..": nil, "4242:x y": nil} {
		d, _ := account(s)
		r, _ := telegram.Type.Receive("tg", d, channel.Deps{Resolve: func(context.Context, string) (string, error) { return value, err }})
		e := channel.AsError(r.Receive(t.Context(), channeltest.NewIntake()))
		if e == nil || e.Reason != channel.ReasonAuth || !strings.Contains(e.Fix, "env:TG_TOKEN") || value != "" && strings.Contains(fmt.Sprint(e, e.Err), value) {
			t.Errorf("%q: %v", value, e)
		}
	}
	r, _ := telegram.Type.Receive("tg", channel.Definition{Type: "telegram", API: s.URL()}, channel.Deps{})
	if e := channel.AsError(r.Receive(t.Context(), channeltest.NewIntake())); e == nil || e.Reason != channel.ReasonAuth || !strings.Contains(e.Fix, "set channels.tg.token") {
		t.Errorf("no token: %v", e)
	}
	if calls := s.Calls(""); len(calls) != 0 {
		t.Errorf("%v", calls)
	}
}

// 100 texts of the greatest length are longer than an answer may be: they arrive in smaller answers.
func TestLongAnswers(t *testing.T) {
	s, in := serve(t, telegramtest.Config{}), channeltest.NewIntake()
	var want []string
	for n := range 100 {
		want = append(want, fmt.Sprintf("%3d%s", n, strings.Repeat("中", 4093)))
		say(s, want[n])
	}
	receive(t, s, in)
	acked(t, s, 100)
	if got := in.Texts(); !slices.Equal(got, want) {
		t.Errorf("%d texts, or another order", len(got))
	}
}

// A member of a group who is slow, or an album that is held, delays no other chat: the receiver
// asks on while the first update is not stored, also for more than one answer has.
func TestManyChats(t *testing.T) {
	s, in := serve(t, telegramtest.Config{}), channeltest.NewIntake()
	in.Hold = func(u channel.Update) bool { return u.Text == "held" }
	receive(t, s, in)
	say(s, "held")
	in.Await(t, "the first", func() bool { return len(in.Taken) == 1 })
	for n := range 99 { // as many as an answer has besides
		chat := telegramtest.Chat{ID: int64(2000 + n%20), Type: "private"}
		s.Say(telegramtest.Message{Chat: chat, From: &telegramtest.User{ID: chat.ID}, Text: fmt.Sprint(n)})
	}
	in.Await(t, "the others", func() bool { return len(in.Stored) == 99 })
	say(s, "later")
	in.Release()
	acked(t, s, 101)
	last := map[string]int{}
	for _, u := range in.Taken {
		if n, err := fmt.Sscan(u.Text, new(int)); n != 1 || err != nil {
			continue
		}
		var n int
		_, _ = fmt.Sscan(u.Text, &n)
		if before, ok := last[u.SessionID]; ok && before >= n {
			t.Errorf("chat %s: %d after %d", u.SessionID, n, before)
		}
		last[u.SessionID] = n
	}
	if len(in.Taken) != 101 || len(last) != 20 {
		t.Errorf("%d taken, of %d chats", len(in.Taken), len(last))
	}
}

// A group that becomes a supergroup stays the conversation that it was, also for the next receiver;
// its messages, whose numbers begin again, have keys of their own.
func TestSupergroup(t *testing.T) {
	s, in := serve(t, telegramtest.Config{}), channeltest.NewIntake()
	stop := receive(t, s, in)
	write := func(chat int64, kind, text string) {
		s.Say(telegramtest.Message{Chat: telegramtest.Chat{ID: chat, Type: kind, Title: "Friends"}, From: &bob, Text: text})
	}
	write(-42, "group", "one")
	in.Await(t, "the first message", func() bool { return len(in.Taken) == 1 })
	s.Migrate(-42, -100777)
	write(-100777, "supergroup", "two")
	in.Await(t, "the second message", func() bool { return len(in.Taken) == 2 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	receive(t, s, in)
	write(-100777, "supergroup", "three")
	in.Await(t, "the third message", func() bool { return len(in.Taken) >= 3 })
	for n, u := range in.Taken {
		now := []string{"-42", "-100777", "-100777"}[n]
		if want := "telegram:4242:" + now + ":" + u.MessageID; u.SessionID != "-42" || u.Key != want {
			t.Errorf("%s in %s, %s", u.Text, u.SessionID, u.Key)
		}
	}
}

// The new id of a group is stored before the update is acknowledged: no crash loses it, because the platform delivers the
// update again.
func TestSupergroupIsStored(t *testing.T) {
	s, in := serve(t, telegramtest.Config{}), channeltest.NewIntake()
	in.Unsaved = errors.New("the registry is not there")
	s.Say(telegramtest.Message{Chat: telegramtest.Chat{ID: -42, Type: "group", Title: "Friends"}, From: &bob, Text: "one"})
	s.Migrate(-42, -100777)
	if err := ends(t, s, in); !errors.Is(err, in.Unsaved) {
		t.Fatal(err)
	}
	if st := s.Stats(); st.Acked > 1 {
		t.Fatalf("it is acknowledged: %+v", st)
	}
	in.Do(func() { in.Unsaved = nil })
	stop := receive(t, s, in)
	acked(t, s, s.Stats().Updates)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if got := in.Cursors["groups"]; got != "-100777 -42\n" {
		t.Errorf("kept %q", got)
	}
}

// However many groups became supergroups, what is kept of them fits, and the last ones stay.
func TestSupergroupsAreBounded(t *testing.T) {
	g := telegram.LoadGroups("nonsense\n-100 -1\n")
	if g.ID("-100") != "-1" || g.ID("-7") != "-7" {
		t.Errorf("%s, %s", g.ID("-100"), g.ID("-7"))
	}
	for n := range 1000 {
		g.Moved(fmt.Sprint(-1000-n), fmt.Sprint(-1_002_000_000_000-n))
	}
	if _, ok := g.Moved("-1000", "-1002000000999"); ok { // once more
		t.Error("what is known is stored again")
	}
	kept, _ := g.Moved("-1002000000999", "-1003")
	if len(kept) > 4096 || g.ID("-1003") != "-1999" || g.ID("-100") != "-100" {
		t.Errorf("%d bytes, %s, %s", len(kept), g.ID("-1003"), g.ID("-100"))
	}
	if n := strings.Count(kept, "\n"); n < 100 {
		t.Errorf("%d groups fit", n)
	}
}
