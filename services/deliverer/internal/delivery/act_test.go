package delivery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
)

// platform is a sink that changes messages, and whose direct conversations have names of their own.
type platform struct {
	*sink
	shown map[string]string // by id
	did   []string
	fail  error // of the next change, after it
}

func (p *platform) Name() string { return "c" }

func (p *platform) act(what, id string, to channel.ReplyContext, change func()) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.did = append(p.did, what+" "+id+" in "+to.SessionID())
	change()
	err := p.fail
	p.fail = nil
	return err
}

func (p *platform) Edit(_ context.Context, id string, m channel.Message) error {
	return p.act("edit", id, m.ReplyContext, func() { p.shown[id] = m.Text })
}

func (p *platform) Delete(_ context.Context, id string, to channel.ReplyContext) error {
	return p.act("delete", id, to, func() { delete(p.shown, id) })
}

func (p *platform) React(_ context.Context, id, mark string, to channel.ReplyContext) error {
	return p.act("react", id, to, func() { p.shown[id] += mark })
}

func (p *platform) Find(_ context.Context, peer string) (string, error) { return "dm-" + peer, nil }

// change is the content of an event that changes a message.
func change(action, id, text string) string {
	return fmt.Sprintf(`{"action":%q,"message_id":%q,`, action, id) + fmt.Sprintf(toPeer, text)[1:]
}

// S4-68: an event with an action changes the message that it names, in the order of the thread and under the attempts
// and records of a send. Without the means, or without an id, it is dead at once and says why.
func TestActions(t *testing.T) {
	inBubble(t, &sink{}, func(t *testing.T, w *world) {
		p := &platform{sink: w.sink, shown: map[string]string{"7": "old"}, fail: &channel.Error{Class: channel.Unavailable, InDoubt: true, What: "no answer"}}
		w.carry(p)
		w.journal.maxChars = 3 // a changed text is one message
		for _, content := range []string{change("edit", "7", "a longer text"), change("react", "7", "+"), change("edit", "", "x"), change("paint", "7", "x")} {
			w.journal.pushContent("threads/a", content)
		}
		w.agent.Wake("threads/a")
		if err := <-w.ended; err != nil {
			t.Fatal(err)
		}
		if want := []string{"edit 7 in s", "edit 7 in s", "react 7 in s"}; !slices.Equal(p.did, want) || p.shown["7"] != "a longer text+" || w.sink.sends() != 0 {
			t.Errorf("%q, shown %q, sent %q", p.did, p.shown, w.sink.texts())
		}
		for id, why := range map[int64]string{3: "has no id at its platform", 4: "c cannot paint messages"} {
			if r := w.journal.row("threads/a", id); r.state != "dead" || !strings.Contains(r.error, why) {
				t.Errorf("%d: %s %q", id, r.state, r.error)
			}
		}
		w.start()
		w.carry(w.sink) // it cannot change anything
		w.journal.pushContent("threads/b", change("delete", "7", ""))
		w.agent.Wake("threads/b")
		<-w.ended
		if r := w.journal.row("threads/b", 1); r.state != "dead" || r.error != "xgw cannot delete messages" {
			t.Errorf("%+v", r)
		}
	})
}

// Window B: the change that was under way when its sender died is made again and has no further effect.
func TestKilledInAction(t *testing.T) {
	inBubble(t, &sink{}, func(t *testing.T, w *world) {
		p := &platform{sink: w.sink, shown: map[string]string{"7": "old"}}
		w.carry(p)
		fault.SetPoint(func(label string) {
			if label == "D2.after" {
				w.journal.set(func() { w.journal.token = 2 })
			}
		})
		defer fault.SetPoint(nil)
		w.journal.pushContent("threads/a", change("edit", "7", "new"))
		w.agent.Wake("threads/a")
		if err := <-w.ended; !errors.Is(err, lease.ErrLost) {
			t.Fatal(err)
		}
		w.pool.Wait()
		w.start()
		w.carry(p)
		w.agent.Wake("threads/a")
		<-w.ended
		if r := w.journal.row("threads/a", 1); r.state != "sent" || !r.duplicate || len(p.did) != 2 || p.shown["7"] != "new" {
			t.Errorf("%+v, %q, shown %q", r, p.did, p.shown)
		}
	})
}

// A message to a person with whom the account has had no conversation goes to the direct one, which the platform
// names. What has a conversation, or comes from no account, stays as it is.
func TestFirstMessage(t *testing.T) {
	inBubble(t, &sink{}, func(t *testing.T, w *world) {
		w.carry(&platform{sink: w.sink})
		const content = `{"text":"x","reply_context":{"channel_type":"external","channel_id":%q,"peer_id":"p",%s"kind":%q}}`
		for _, c := range [][]any{{"c", "", "dm"}, {"c", `"session_id":"s",`, "dm"}, {"c", "", "group"}, {"other", "", "dm"}} {
			w.journal.pushContent("threads/a", fmt.Sprintf(content, c...))
		}
		w.agent.Wake("threads/a")
		<-w.ended
		var got []string
		for _, m := range w.sink.got {
			got = append(got, m.ReplyContext.SessionID())
		}
		if want := []string{"dm-p", "s", "", ""}; !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
	})
}
