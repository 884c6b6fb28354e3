package channeltest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/theclaw/agents/internal/channel"
)

// Platform is a platform with one account, as [Conform] needs it.
type Platform struct {
	// Receiver and Channel make new ones of the account.
	Receiver func() channel.Receiver
	Channel  func() channel.Channel
	// Say makes a person write in the direct conversation To.
	Say func(text string)
	To  channel.ReplyContext
	// Ready waits until the platform delivers what is written from now on to a receiver that is connected;
	// nil: it delivers everything. It is called once.
	Ready func()
	// Confirmed is how many of these messages the platform counts as arrived. Nil: it keeps no count, so
	// that what was not stored is read again from a position that the gateway keeps.
	Confirmed func() int
	// Shown are the texts that the account sent and that the conversation shows.
	Shown func() []string
	// Auth makes the platform refuse the token, Busy refuse the next send, to be repeated after a while.
	Auth, Busy func()
	// Conflict makes the platform say that another program reads; nil: it never does.
	Conflict func()
}

// Conform holds a type of channel to the contract of [channel.Receiver] and [channel.Channel]. open
// starts a platform for each test.
func Conform(t *testing.T, open func(t *testing.T) Platform) {
	for name, test := range map[string]func(*testing.T, Platform){
		"confirmed after it is stored": confirmed, "order": order, "repeat": repeat, "stop": stops, "refused identity": refused,
		"send": sends, "send again": sendsAgain, "too long": tooLong, "text": texts, "busy": busy, "auth": auth, "conflict": conflict, "address": address, "act": acts,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

// await waits for what a platform counts. It asks again: changes are not reported there.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.After(time.Minute); !holds(); {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("waited in vain for: %s", what)
		}
	}
}

// connected waits until a receiver gets what is written from now on.
func (p Platform) connected(t *testing.T, in *Intake) {
	t.Helper()
	in.Await(t, "connected", func() bool { return in.Identity != "" })
	if p.Ready != nil {
		p.Ready()
	}
}

// hold is an intake that stores nothing before Release.
func hold() *Intake {
	in := NewIntake()
	in.Hold = func(channel.Update) bool { return true }
	return in
}

// taken waits for so many updates.
func taken(t *testing.T, in *Intake, n int) (list []channel.Update) {
	t.Helper()
	in.Await(t, fmt.Sprintf("%d updates", n), func() bool { list = slices.Clone(in.Taken); return len(list) >= n })
	return list
}

// storing stores what waits from the last to the first.
func storing(in *Intake) {
	var list []func()
	in.Do(func() { list, in.Waiting = in.Waiting, nil })
	for _, stored := range slices.Backward(list) {
		stored()
	}
}

func confirmed(t *testing.T, p Platform) {
	in := hold()
	Run(t, p.Receiver(), in)
	p.connected(t, in)
	if in.Name == "" {
		t.Error("the account has no name")
	}
	for n := range 3 {
		p.Say(fmt.Sprint("text ", n))
	}
	for _, u := range taken(t, in, 3) {
		if u.Key == "" || u.Kind != channel.KindDM || u.SessionID != p.To.SessionID() || u.PeerID == "" || u.MessageID == "" {
			t.Errorf("%+v", u)
		}
	}
	if p.Confirmed == nil {
		return
	}
	if n := p.Confirmed(); n != 0 {
		t.Fatalf("%d messages are confirmed, and none is stored", n)
	}
	storing(in)
	await(t, "3 confirmed messages", func() bool { return p.Confirmed() == 3 })
}

func order(t *testing.T, p Platform) {
	in := NewIntake()
	Run(t, p.Receiver(), in)
	p.connected(t, in)
	var want []string
	for n := range 30 {
		want = append(want, fmt.Sprint("text ", n))
		p.Say(want[n])
	}
	var got []string
	for _, u := range taken(t, in, len(want)) {
		got = append(got, u.Text)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// What was not stored when a receiver ends comes again, as the same message.
func repeat(t *testing.T, p Platform) {
	in := hold()
	stop := Run(t, p.Receiver(), in)
	p.connected(t, in)
	p.Say("kept")
	p.Say("again")
	first := taken(t, in, 2)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	in.Do(func() { in.Waiting, in.Hold = nil, nil })
	Run(t, p.Receiver(), in)
	again := taken(t, in, 4)[2:]
	for i := range first {
		if first[i].Key != again[i].Key || first[i].Text != again[i].Text {
			t.Errorf("%+v came again as %+v", first[i], again[i])
		}
	}
	in.Await(t, "2 stored messages", func() bool { return len(in.Stored) == 2 })
	if p.Confirmed != nil {
		await(t, "2 confirmed messages", func() bool { return p.Confirmed() == 2 })
	}
}

func stops(t *testing.T, p Platform) {
	in := NewIntake()
	stop := Run(t, p.Receiver(), in)
	p.connected(t, in)
	if err := stop(); err != nil {
		t.Errorf("the end of the context is no error: %v", err)
	}
}

func refused(t *testing.T, p Platform) {
	in := NewIntake()
	in.Refuse = &channel.Error{Reason: channel.ReasonConflict, What: "another account has this identity"}
	p.Say("not to be taken")
	if e := channel.AsError(p.Receiver().Receive(t.Context(), in)); e == nil || e.Reason != channel.ReasonConflict || len(in.Taken) > 0 {
		t.Errorf("%+v, %v", e, in.Taken)
	}
}

// sent is a message to the conversation.
func (p Platform) sent(n int, text string) channel.Message {
	return channel.Message{
		AgentID: "amy", ThreadID: "threads/peers/1", EventID: int64(n), Key: channel.Fingerprint("conform", fmt.Sprint(n)), Attempt: 1,
		Text: text, ReplyContext: p.To, CreatedAt: time.Now().UTC().Format(time.RFC3339Nano),
	}
}

func sends(t *testing.T, p Platform) {
	p.Say("a conversation")
	r, err := p.Channel().Send(t.Context(), p.sent(1, "hello"))
	if err != nil || r.ProviderID == "" || len(r.ProviderID) > 512 {
		t.Errorf("%+v %v", r, err)
	}
	if got := p.Shown(); !slices.Equal(got, []string{"hello"}) {
		t.Errorf("%q", got)
	}
}

// A message whose answer was lost is sent again with the same key, and shown once where the type says
// so.
func sendsAgain(t *testing.T, p Platform) {
	p.Say("a conversation")
	m := p.sent(1, "once")
	if _, err := p.Channel().Send(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	m.Attempt, m.MaybeDuplicate = 2, true
	c := p.Channel() // of the next deliverer
	if _, err := c.Send(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	want := 1
	if c.Guarantee() == channel.None {
		want = 2
	}
	if got := p.Shown(); len(got) != want {
		t.Errorf("%v: %q", c.Guarantee(), got)
	}
}

// A text over the limit is refused, or takes several messages.
func tooLong(t *testing.T, p Platform) {
	p.Say("a conversation")
	c := p.Channel()
	l, ok := c.(channel.Limiter)
	if !ok {
		t.Log("the type has no limit")
		return
	}
	most := l.Limit().Max
	if _, err := c.Send(t.Context(), p.sent(1, strings.Repeat("x", most))); err != nil {
		t.Fatal(err)
	}
	if got := p.Shown(); len(got) != 1 || len(got[0]) != most {
		t.Fatalf("%d messages", len(got))
	}
	_, err := c.Send(t.Context(), p.sent(2, strings.Repeat("y", most+1)))
	switch e := channel.AsError(err); {
	case e == nil && len(p.Shown()) < 3, e != nil && (e.Class != channel.Rejected || e.InDoubt || len(p.Shown()) != 1):
		t.Errorf("%+v, %d messages", e, len(p.Shown()))
	}
	for _, text := range p.Shown() {
		if len(text) > most {
			t.Errorf("a message has %d characters, and %d are the most", len(text), most)
		}
	}
}

// What is done to a message may be repeated, by another deliverer as well. What the platform refuses is Rejected
// and changes nothing.
func acts(t *testing.T, p Platform) {
	p.Say("a conversation")
	m := p.sent(1, "first")
	r, err := p.Channel().Send(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	do := func(action, id, text string) error {
		t.Helper()
		if !channel.Acts(p.Channel(), action) {
			t.Fatalf("the type cannot %s messages", action)
		}
		m.Text = text
		return channel.Act(t.Context(), p.Channel(), action, id, m)
	}
	shows := func(want ...string) {
		t.Helper()
		if got := p.Shown(); !slices.Equal(got, want) {
			t.Errorf("%q, not %q", got, want)
		}
	}
	refused := func(action, id, text string) {
		t.Helper()
		if e := channel.AsError(do(action, id, text)); e == nil || e.Class != channel.Rejected || e.InDoubt {
			t.Errorf("%s %q: %+v", action, id, e)
		}
	}
	for _, step := range []struct {
		action, text string
		want         []string
	}{
		{channel.ActionEdit, "second", []string{"second"}},
		{channel.ActionReact, "\U0001F44D", []string{"second"}},
		{channel.ActionReact, "", []string{"second"}},
		{channel.ActionDelete, "", nil},
	} {
		if step.action == channel.ActionDelete { // there is a message to refuse changes of until then
			most := p.Channel().(channel.Limiter).Limit().Max
			refused(channel.ActionEdit, r.ProviderID, strings.Repeat("x", most+1))
			for _, action := range []string{channel.ActionEdit, channel.ActionReact, channel.ActionDelete} {
				refused(action, "", "\U0001F44D")
			}
			refused(channel.ActionEdit, "no id\n", "\U0001F44D") // deleting what is not there is no mistake
			refused(channel.ActionReact, "no id\n", "\U0001F44D")
			shows("second")
		}
		for range 2 {
			if err := do(step.action, r.ProviderID, step.text); err != nil {
				t.Errorf("%s: %v", step.action, err)
			}
		}
		shows(step.want...)
	}
	refused(channel.ActionEdit, r.ProviderID, "too late")
	refused(channel.ActionReact, r.ProviderID, "\U0001F44D")
}

// Texts are sent as valid UTF-8, whatever they are.
func texts(t *testing.T, p Platform) {
	p.Say("a conversation")
	if _, err := p.Channel().Send(t.Context(), p.sent(1, "a\xffb")); err != nil {
		t.Fatal(err)
	}
	if got := p.Shown(); len(got) != 1 || !utf8.ValidString(got[0]) || !strings.HasPrefix(got[0], "a") || !strings.HasSuffix(got[0], "b") {
		t.Errorf("%q", got)
	}
}

func busy(t *testing.T, p Platform) {
	p.Say("a conversation")
	p.Busy()
	c := p.Channel()
	_, err := c.Send(t.Context(), p.sent(1, "late"))
	if e := channel.AsError(err); e == nil || e.Class != channel.Unavailable || e.InDoubt || e.RetryAfter <= 0 || len(p.Shown()) > 0 {
		t.Fatalf("%+v, %q", e, p.Shown())
	}
}

func auth(t *testing.T, p Platform) {
	p.Say("a conversation")
	p.Auth()
	in := NewIntake()
	if e := channel.AsError(p.Receiver().Receive(t.Context(), in)); e == nil || e.Reason != channel.ReasonAuth || len(in.Taken) > 0 {
		t.Errorf("%+v", e)
	}
	_, err := p.Channel().Send(t.Context(), p.sent(1, "hello"))
	if e := channel.AsError(err); e == nil || e.Reason != channel.ReasonAuth || e.Class != channel.Unavailable || e.InDoubt {
		t.Errorf("%+v", e)
	}
}

func conflict(t *testing.T, p Platform) {
	if p.Conflict == nil {
		t.Log("the platform has no conflicts")
		return
	}
	p.Conflict()
	if e := channel.AsError(p.Receiver().Receive(t.Context(), NewIntake())); e == nil || e.Reason != channel.ReasonConflict {
		t.Errorf("%+v", e)
	}
}

// A message without a conversation is refused before anything is sent, one that was stopped spends
// nothing.
func address(t *testing.T, p Platform) {
	p.Say("a conversation")
	m := p.sent(1, "nowhere")
	m.ReplyContext = channel.ReplyContext{}
	_, err := p.Channel().Send(t.Context(), m)
	if e := channel.AsError(err); e == nil || e.Class != channel.Rejected || e.Reason != channel.ReasonReplyContext || !e.BeforeSend {
		t.Errorf("%+v", e)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = p.Channel().Send(ctx, p.sent(2, "stopped"))
	if e := channel.AsError(err); e == nil || e.Class != channel.Interrupted || len(p.Shown()) > 0 {
		t.Errorf("%+v, %q", e, p.Shown())
	}
}
