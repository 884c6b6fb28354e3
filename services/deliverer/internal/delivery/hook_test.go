package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/hook"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/obs"
)

// programs stand for a runner: they answer by a script, which counts the calls of each event.
type programs struct {
	mu     sync.Mutex
	calls  []string // event and result
	answer func(ctx context.Context, n int, e *hook.Event) (hook.Answer, error)
}

func (p *programs) run(ctx context.Context, _ hook.Hook, e *hook.Event, _ []byte) (hook.Answer, error) {
	p.mu.Lock()
	n := len(p.calls)
	call := e.Name + " " + e.Payload.Text
	if e.Payload.Result != nil {
		call += " " + e.Payload.Result.Status
	}
	p.calls = append(p.calls, call)
	p.mu.Unlock()
	return p.answer(ctx, n, e)
}

func (p *programs) called() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls)
}

// hooked gives a world a hook with a failure policy.
func hooked(w *world, onFailure string, answer func(ctx context.Context, n int, e *hook.Event) (hook.Answer, error), events ...string) *programs {
	p := &programs{answer: answer}
	w.pool.Hooks = &hook.Caller{Run: p.run, Meter: obs.NewDelivererMetrics(nil), Logger: slog.New(slog.DiscardHandler)}
	w.journal.hooks = []hook.Hook{{Name: "guard", Events: events, Timeout: 5 * time.Second, OnFailure: onFailure}}
	return p
}

func text(s string) hook.Answer { return hook.Answer{Text: &s} }

// S1-41: what a hook changes is what is sent, what it cancels is not sent, and a hook is asked once about a message.
func TestHookDecides(t *testing.T) {
	s := &sink{}
	inBubble(t, s, func(t *testing.T, w *world) {
		s.answer = func(n int, _ channel.Message) error {
			if n == 0 {
				return failed
			}
			return nil
		}
		p := hooked(w, "", func(_ context.Context, _ int, e *hook.Event) (hook.Answer, error) {
			if e.Payload.Text == "secret" {
				return hook.Refusal("it is secret"), nil
			}
			return text(e.Payload.Text + "!"), nil
		}, hook.MessageSending)
		w.journal.push("threads/a", "one", "secret", "two")
		w.agent.Wake("threads/a")
		<-w.ended
		if got := s.texts(); !slices.Equal(got, []string{"one!", "one!", "two!"}) {
			t.Errorf("sent %q", got)
		}
		if got := p.called(); !slices.Equal(got, []string{"message_sending one", "message_sending secret", "message_sending two"}) {
			t.Errorf("%q", got)
		}
		if r := w.journal.row("threads/a", 2); r.state != "skipped" || r.error != "canceled by hook guard: it is secret" {
			t.Errorf("%+v", r)
		}
	})
}

// S1-41: killed between the decision and the send, the next holder sends what was decided, and asks no hook, also
// when the settings have none any more.
func TestDecisionOutlivesTheProcess(t *testing.T) {
	for _, label := range []string{"decided", "D2.before"} {
		inBubble(t, &sink{}, func(t *testing.T, w *world) {
			j := w.journal
			lose := func() { j.set(func() { j.token, j.hooks = 2, nil }) } // another holder was granted the lease
			p := hooked(w, "", func(context.Context, int, *hook.Event) (hook.Answer, error) { return text("changed"), nil }, hook.MessageSending)
			if label == "decided" {
				j.lose = func(call string) error {
					if call == "decide" && j.token == 1 {
						j.token, j.hooks = 2, nil
						return errors.New("no answer")
					}
					return nil
				}
			} else {
				fault.SetPoint(func(at string) {
					if at == label && w.sink.sends() == 0 && len(p.called()) == 1 {
						p.mu.Lock()
						p.calls = append(p.calls, "killed")
						p.mu.Unlock()
						lose()
					}
				})
				defer fault.SetPoint(nil)
			}
			j.push("threads/a", "plain")
			w.agent.Wake("threads/a")
			if err := <-w.ended; !errors.Is(err, lease.ErrLost) {
				t.Fatalf("ended with %v", err)
			}
			w.pool.Wait()
			w.start()
			w.agent.Wake("threads/a")
			<-w.ended
			got := w.sink.texts()
			if len(got) == 0 || slices.ContainsFunc(got, func(s string) bool { return s != "changed" }) {
				t.Errorf("%s: sent %q", label, got)
			}
			if r := j.row("threads/a", 1); r.state != "sent" {
				t.Errorf("%s: %+v", label, r)
			}
			asked := slices.DeleteFunc(p.called(), func(c string) bool { return c != "message_sending plain" })
			if len(asked) != 1 {
				t.Errorf("%s: asked %d times", label, len(asked))
			}
		})
	}
}

// S1-41: a hook that hangs is cut. Where it is open the message goes on; where it is closed, as message_sending is by
// itself, the message waits and no attempt is spent.
func TestHookHangs(t *testing.T) {
	hangs := func(times int) func(context.Context, int, *hook.Event) (hook.Answer, error) {
		return func(ctx context.Context, n int, _ *hook.Event) (hook.Answer, error) {
			if n < times {
				<-ctx.Done()
				return hook.Answer{}, ctx.Err()
			}
			return hook.Answer{}, nil
		}
	}
	inBubble(t, &sink{}, func(t *testing.T, w *world) {
		hooked(w, hook.Open, hangs(1), hook.MessageSending)
		w.journal.push("threads/a", "one")
		began := time.Now()
		w.agent.Wake("threads/a")
		<-w.ended
		if len(w.sink.at) != 1 || w.sink.at[0].Sub(began) != 5*time.Second {
			t.Errorf("%d sends", len(w.sink.at))
		}
	})
	inBubble(t, &sink{}, func(t *testing.T, w *world) {
		hooked(w, "", hangs(2), hook.MessageSending)
		w.journal.push("threads/a", "one")
		began := time.Now()
		w.agent.Wake("threads/a")
		time.Sleep(6 * time.Second)
		if r := w.journal.row("threads/a", 1); r.state != "pending" || r.attempts != 0 || r.error != "nothing was sent: hook guard failed: it has not answered within 5s" {
			t.Errorf("%+v", r)
		}
		<-w.ended
		if r := w.journal.row("threads/a", 1); len(w.sink.at) != 1 || w.sink.at[0].Sub(began) != 20*time.Second || r.state != "sent" || r.attempts != 1 {
			t.Errorf("%d sends, %+v", len(w.sink.at), r)
		}
	})
}

// S1-42: a hook observes each try, whether it succeeded or failed. It is called before the end is recorded: killed
// meanwhile, it is called again, and the message is not sent again.
func TestHookObserves(t *testing.T) {
	silent := func(context.Context, int, *hook.Event) (hook.Answer, error) { return hook.Answer{}, nil }
	s := &sink{}
	inBubble(t, s, func(t *testing.T, w *world) {
		s.answer = func(n int, _ channel.Message) error {
			if n == 0 {
				return failed
			}
			return nil
		}
		p := hooked(w, "", silent, hook.MessageSent)
		w.journal.push("threads/a", "one", "two")
		w.agent.Wake("threads/a")
		<-w.ended
		if got := p.called(); !slices.Equal(got, []string{"message_sent one failed", "message_sent one sent", "message_sent two sent"}) {
			t.Errorf("%q", got)
		}
		if got := s.texts(); !slices.Equal(got, []string{"one", "one", "two"}) {
			t.Errorf("%q", got)
		}
	})
	inBubble(t, &sink{}, func(t *testing.T, w *world) {
		j := w.journal
		p := hooked(w, "", func(_ context.Context, n int, _ *hook.Event) (hook.Answer, error) {
			if n == 0 {
				j.set(func() { j.token = 2 }) // another holder was granted the lease
			}
			return hook.Answer{}, nil
		}, hook.MessageSent)
		j.push("threads/a", "one")
		w.agent.Wake("threads/a")
		if err := <-w.ended; !errors.Is(err, lease.ErrLost) {
			t.Fatalf("ended with %v", err)
		}
		w.pool.Wait()
		w.start()
		w.agent.Wake("threads/a")
		<-w.ended
		if got := p.called(); len(got) != 2 || w.sink.sends() != 1 || j.row("threads/a", 1).state != "sent" {
			t.Errorf("%q, %d sends, %+v", got, w.sink.sends(), j.row("threads/a", 1))
		}
	})
	// In parts: one call, after the last.
	inBubble(t, &sink{}, func(t *testing.T, w *world) {
		w.journal.maxChars = 70
		p := hooked(w, "", silent, hook.MessageSent)
		w.journal.push("threads/a", fmt.Sprintf("%065d\n\n%065d\n\n%065d", 1, 2, 3))
		w.agent.Wake("threads/a")
		<-w.ended
		if n := len(p.called()); n != 1 || w.sink.sends() != 3 || w.journal.row("threads/a", 1).state != "sent" {
			t.Errorf("%d calls, %d sends, %+v", n, w.sink.sends(), w.journal.row("threads/a", 1))
		}
	})
}
