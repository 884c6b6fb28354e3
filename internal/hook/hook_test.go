package hook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// meter counts outcomes.
type meter struct {
	mu       sync.Mutex
	outcomes map[string]int
	open     int
}

func (m *meter) HookCalled(event, outcome string, _ time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.outcomes == nil {
		m.outcomes = map[string]int{}
	}
	m.outcomes[event+" "+outcome]++
}

func (m *meter) HookBreakers(open int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open = open
}

// calls records which hooks were called, with the text that each has read.
type calls struct {
	mu   sync.Mutex
	list []string
}

func (c *calls) add(h Hook, input []byte) {
	var e struct{ Payload struct{ Text string } }
	_ = json.Unmarshal(input, &e)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, h.Name+" "+e.Payload.Text)
}

func newCaller(run func(ctx context.Context, h Hook, e *Event, input []byte) (Answer, error)) (*Caller, *meter) {
	m := &meter{}
	return &Caller{Run: run, Meter: m, Logger: slog.New(slog.DiscardHandler)}, m
}

func sending(text string) *Event {
	return &Event{Name: MessageSending, Key: "k", Agent: "a1", SessionKey: "agent:a1:main", Payload: Payload{Account: "tg", Text: text}}
}

// S1-41: hooks that decide are called by priority and then in their order, each reads what the one before it
// changed, and after a cancel none is called.
func TestOrder(t *testing.T) {
	var got calls
	c, _ := newCaller(func(_ context.Context, h Hook, e *Event, input []byte) (Answer, error) {
		got.add(h, input)
		switch h.Name {
		case "stop":
			return Answer{Cancel: true, Reason: "enough"}, nil
		case "silent":
			return Answer{}, nil
		}
		text := e.Payload.Text + h.Name
		return Answer{Text: &text}, nil
	})
	hook := func(name string, priority int, m Match) Hook {
		return Hook{Name: name, Events: []string{MessageSending}, Priority: priority, Timeout: time.Second, Match: m}
	}
	list := []Hook{
		hook("d", -1, Match{}), hook("b", 0, Match{Channels: []string{"t*"}}), hook("silent", 0, Match{}), hook("a", 5, Match{Agents: []string{"a1"}}),
		hook("no", 9, Match{Agents: []string{"b*"}}), hook("neither", 9, Match{Sessions: []string{"agent:a1:thread:*"}}), hook("c", 0, Match{Sessions: []string{"agent:*:main"}}),
	}
	e := sending(">")
	d, err := c.Call(t.Context(), list, e)
	if err != nil || d.Hook != "d" || d.Text == nil || *d.Text != ">abcd" || e.Payload.Text != ">abcd" || d.Cancel {
		t.Errorf("%+v, %v, %q", d, err, e.Payload.Text)
	}
	if want := []string{"a >", "b >a", "silent >ab", "c >ab", "d >abc"}; !slices.Equal(got.list, want) {
		t.Errorf("%q", got.list)
	}
	got.list = nil
	d, err = c.Call(t.Context(), append(list, hook("stop", 4, Match{})), sending(">"))
	if err != nil || !d.Cancel || d.Hook != "stop" || d.Reason != "enough" || d.Text != nil || len(got.list) != 2 {
		t.Errorf("%+v, %v, %q", d, err, got.list)
	}
}

// S1-32: a hook of command is called for each command, and before one of the command.
func TestGeneralBeforeSpecific(t *testing.T) {
	if a, b := CommandEvent("new"), CommandEvent("model"); a != CommandNew || b != Command {
		t.Errorf("%s, %s", a, b)
	}
	list := []Hook{{Name: "new", Events: []string{CommandNew}}, {Name: "all", Events: []string{Command}}, {Name: "both", Events: []string{CommandNew, Command}}, {Name: "reset", Events: []string{CommandReset}}}
	names := func(e string) (out []string) {
		for _, h := range matching(list, &Event{Name: e}) {
			out = append(out, h.Name)
		}
		return out
	}
	if got := names(CommandNew); !slices.Equal(got, []string{"all", "both", "new"}) {
		t.Errorf("%q", got)
	}
	if got := names(Command); !slices.Equal(got, []string{"all", "both"}) {
		t.Errorf("%q", got)
	}
}

// A hook that fails counts for nothing where it is open, and stops the event where it is closed, which message_sending
// is unless it is set.
func TestFailure(t *testing.T) {
	c, m := newCaller(func(_ context.Context, h Hook, _ *Event, _ []byte) (Answer, error) {
		return Answer{}, errors.New("exit 1")
	})
	h := Hook{Name: "x", Events: []string{MessageSending, MessageReceived}, Timeout: time.Second}
	var f *Failure
	if _, err := c.Call(t.Context(), []Hook{h}, sending("")); !errors.As(err, &f) || f.Hook != "x" || f.Retry != retryFailure {
		t.Errorf("%v", err)
	}
	h.OnFailure = Open
	if d, err := c.Call(t.Context(), []Hook{h}, sending("")); err != nil || d != (Decision{}) {
		t.Errorf("%+v, %v", d, err)
	}
	h.OnFailure = ""
	if _, err := c.Call(t.Context(), []Hook{h}, &Event{Name: MessageReceived}); err != nil {
		t.Error(err)
	}
	if m.outcomes["message_sending failed"] != 2 || m.outcomes["message_received failed"] != 1 {
		t.Error(m.outcomes)
	}
}

// Five failures in a row open the breaker of a hook for a minute: it is not called, and a closed one fails at once.
// A runner that is not there opens none.
func TestBreaker(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	called, result := 0, errors.New("exit 1")
	c, m := newCaller(func(context.Context, Hook, *Event, []byte) (Answer, error) {
		called++
		return Answer{}, result
	})
	c.Now = func() time.Time { return now }
	closed := []Hook{{Name: "x", Events: []string{MessageSending}, Timeout: time.Second}}
	call := func() *Failure {
		var f *Failure
		_, err := c.Call(t.Context(), closed, sending(""))
		errors.As(err, &f)
		return f
	}
	result = fmt.Errorf("%w: away", ErrNoRunner)
	for range 10 {
		call()
	}
	result = errors.New("exit 1")
	for range 5 {
		call()
	}
	if f := call(); called != 15 || f == nil || f.Retry != time.Minute || !strings.Contains(f.Error(), "5 times in a row") || m.open != 1 {
		t.Errorf("%d calls, %v, %d open", called, f, m.open)
	}
	open := []Hook{closed[0]}
	open[0].OnFailure = Open
	if d, err := c.Call(t.Context(), open, sending("")); err != nil || d != (Decision{}) || called != 15 {
		t.Errorf("%+v, %v, %d calls", d, err, called)
	}
	now = now.Add(59 * time.Second)
	if call(); called != 15 {
		t.Errorf("%d calls", called)
	}
	now = now.Add(time.Second)
	if call(); called != 16 {
		t.Errorf("%d calls", called)
	}
	now = now.Add(time.Minute)
	result = nil
	if f := call(); f != nil || called != 17 || m.open != 0 {
		t.Errorf("%v, %d calls, %d open", f, called, m.open)
	}
	if m.outcomes["message_sending skipped"] != 3 {
		t.Error(m.outcomes)
	}
}

// What is not the doing of a hook does not open its breaker: an event that is too large, which a stranger can send, and
// hooks before it that have used up the time of the event.
func TestBreakerOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m := newCaller(func(ctx context.Context, h Hook, _ *Event, _ []byte) (Answer, error) {
			if h.Name != "guard" {
				<-ctx.Done()
				return Answer{}, ctx.Err()
			}
			return Answer{Cancel: true}, ctx.Err()
		})
		guard := Hook{Name: "guard", Events: []string{MessageReceived}, Timeout: DefaultTimeout}
		slow := func(name string) Hook {
			return Hook{Name: name, Events: []string{MessageReceived}, Timeout: EventLimit - time.Second, Priority: 1}
		}
		guards := func(event string) {
			t.Helper()
			d, err := c.Call(t.Context(), []Hook{guard}, &Event{Name: MessageReceived})
			if err != nil || !d.Cancel || m.open != 0 {
				t.Errorf("after %d events that %s: %+v, %v, %d open", maxFailures, event, d, err, m.open)
			}
		}
		for range maxFailures {
			_, _ = c.Call(t.Context(), []Hook{guard}, &Event{Name: MessageReceived, Payload: Payload{Text: strings.Repeat("x", MaxJSON)}}) // open
		}
		guards("were too large")
		for n := range maxFailures {
			_, _ = c.Call(t.Context(), []Hook{slow(fmt.Sprint("a", n)), slow(fmt.Sprint("b", n)), guard}, &Event{Name: MessageReceived}) // open
		}
		guards("had no time")
	})
}

// A hook that hangs is cut at its timeout, and all hooks of an event together at 15 s; observers run at the same time.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m := newCaller(func(ctx context.Context, _ Hook, _ *Event, _ []byte) (Answer, error) {
			<-ctx.Done()
			return Answer{}, ctx.Err()
		})
		list := func(event string, timeout time.Duration) (out []Hook) {
			for n := range 4 {
				out = append(out, Hook{Name: fmt.Sprint("h", n), Events: []string{event}, Timeout: timeout, OnFailure: Open})
			}
			return out
		}
		began := time.Now()
		if _, err := c.Call(t.Context(), list(MessageSending, 2*time.Second), sending("")); err != nil || time.Since(began) != 8*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		began = time.Now()
		if _, err := c.Call(t.Context(), list(MessageSending, 10*time.Second), sending("")); err != nil || time.Since(began) != EventLimit {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		began = time.Now()
		if _, err := c.Call(t.Context(), list(MessageSent, 2*time.Second), &Event{Name: MessageSent}); err != nil || time.Since(began) != 2*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if n := m.outcomes["message_sending timeout"]; n != 8 {
			t.Errorf("%v", m.outcomes)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := c.Call(ctx, list(MessageSending, 2*time.Second), sending("")); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}

// An answer is nothing, or one JSON object with the fields that its event may change; all else is a failure.
func TestParse(t *testing.T) {
	text := "new"
	for _, c := range []struct {
		event, output string
		want          Answer
	}{
		{MessageSending, "", Answer{}},
		{MessageSending, " \n{}\n", Answer{}},
		{MessageSending, `{"text":"new"}`, Answer{Text: &text}},
		{MessageReceived, `{"cancel":true,"reason":" no "}`, Answer{Cancel: true, Reason: "no"}},
		{MessageSent, "it observes: [", Answer{}},
	} {
		got, err := Parse(c.event, []byte(c.output))
		if err != nil || got.Cancel != c.want.Cancel || got.Reason != c.want.Reason || (got.Text == nil) != (c.want.Text == nil) || got.Text != nil && *got.Text != *c.want.Text {
			t.Errorf("%s %q: %+v, %v", c.event, c.output, got, err)
		}
	}
	for _, c := range []struct{ event, output, want string }{
		{MessageSending, `{"cancle":true}`, `has the field "cancle"; message_sending may have cancel, reason, text`},
		{MessageReceived, `{"text":"x"}`, "message_received may have cancel, reason"},
		{MessageSending, `{} {}`, "more than one"},
		{MessageSending, `{"text":NaN}`, "not a JSON object"},
		{MessageSending, `[]`, "not a JSON object"},
		{MessageSending, `{"cancel":"yes"}`, "wrong type"},
		{MessageSending, "{\"text\":\"\xff\"}", "not valid UTF-8"},
		{MessageSending, `{"text":"` + strings.Repeat("x", MaxJSON) + `"}`, "longer than 262144 bytes"},
	} {
		if got, err := Parse(c.event, []byte(c.output)); err == nil || !strings.Contains(err.Error(), c.want) || got != (Answer{}) {
			t.Errorf("%s %.60q: %+v, %v", c.event, c.output, got, err)
		}
	}
}

// The JSON of an event is a contract: fields are only added. Its id is the same in each repetition, and secrets are
// not in it. One that is too long is a failure.
func TestEventJSON(t *testing.T) {
	var input []byte
	c, _ := newCaller(func(_ context.Context, _ Hook, _ *Event, in []byte) (Answer, error) {
		input = in
		return Answer{}, nil
	})
	c.Clean = func(s string) string { return strings.ReplaceAll(s, "hunter2", "***") }
	hooks := []Hook{{Name: "x", Events: []string{MessageSent}, Timeout: time.Second}}
	e := &Event{
		Name: MessageSent, Key: "u:7", Agent: "a1", SessionKey: "s", RunID: "r", Source: "self", At: time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC),
		Payload: Payload{Account: "tg", Peer: "7", Text: "is hunter2\n", Attachments: []Attachment{{Name: "a", Size: 1}}, Result: &Result{Status: "sent", Channel: "tg", Attempt: 1}},
	}
	if _, err := c.Call(t.Context(), hooks, e); err != nil {
		t.Fatal(err)
	}
	want := `{"event":"message_sent","id":"u:7:message_sent:x","agent":"a1","session_key":"s","run_id":"r","source":"self","at":"2026-01-02T03:04:05.006Z",` +
		`"payload":{"account":"tg","peer":"7","text":"is ***\n","attachments":[{"name":"a","size":1}],"result":{"status":"sent","channel":"tg","attempt":1}}}`
	if string(input) != want {
		t.Errorf("%s", input)
	}
	hooks[0].Events = []string{MessageSending}
	var f *Failure
	if _, err := c.Call(t.Context(), hooks, sending(strings.Repeat("x", MaxJSON))); !errors.As(err, &f) || !strings.Contains(f.Error(), "262144 are the most") {
		t.Errorf("%v", err)
	}
}

// Without a hook an event allocates nothing.
func TestNoHookCostsNothing(t *testing.T) {
	c, _ := newCaller(nil)
	e := sending("x")
	if n := testing.AllocsPerRun(100, func() { _, _ = c.Call(t.Context(), nil, e); _ = For(nil, "a1", MessageSending, MessageSent) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
