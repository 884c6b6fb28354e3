package gateway_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/channel/slack/slacktest"
	"github.com/theclaw/agents/internal/testing/world"
	gatewayv1 "github.com/theclaw/agents/proto/gen/theclaw/gateway/v1"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

var (
	slackBob     = slacktest.User{ID: "U1207", Name: "bob", RealName: "Bob"}
	slackGeneral = slacktest.Channel{ID: "C100", Type: "channel", Name: "general"}
)

// workspace starts a workspace of Slack.
func workspace(t *testing.T) *slacktest.Server {
	t.Helper()
	s, err := slacktest.Start(slacktest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	s.AddUser(slackBob)
	s.AddChannel(slackGeneral)
	s.AddChannel(slacktest.IM(slackBob))
	return s
}

// slack starts a world with the account sl, whose entry has further keys.
func slack(t *testing.T, s *slacktest.Server, o world.Options, keys string) *site {
	t.Helper()
	h := open(t, o, fmt.Sprintf("  sl: {type: slack, token: \"env:SLACK_BOT\", app_token: \"env:SLACK_APP\", api: %q, %s}\n", s.URL(), keys))
	h.state(t, "sl", gatewayv1.ChannelState_CHANNEL_STATE_UP)
	return h
}

// posted waits until the bot has posted so many messages in a conversation.
func posted(t *testing.T, s *slacktest.Server, conversation string, n int) (list []slacktest.Message) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := s.Wait(ctx, func() bool { list = s.Messages(conversation); return len(list) >= n }); err != nil {
		t.Fatalf("%v: %+v", err, list)
	}
	return list
}

// postedText waits until the bot has posted a message that contains a text, after the one with a ts.
func postedText(t *testing.T, s *slacktest.Server, text, after string) slacktest.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	m, err := s.WaitText(ctx, text, after)
	if err != nil {
		t.Fatalf("%q: %v: %+v", text, err, s.Messages(""))
	}
	return m
}

func slackSettled(t *testing.T, s *slacktest.Server) slacktest.Stats {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := s.Wait(ctx, func() bool { st := s.Stats(); return st.Acked+st.Lost == st.Events }); err != nil {
		t.Fatalf("%v: %+v", err, s.Stats())
	}
	return s.Stats()
}

// S2-17: messages of a conversation are answered in their order while others go on, and the end of
// a connection, its loss and a restart of all services neither lose nor repeat one, also when the
// platform has given up what was written meanwhile.
func TestSlack(t *testing.T) {
	each(t, func(t *testing.T, o world.Options) {
		s := workspace(t)
		h := slack(t, s, o, "dm: open")
		const people, messages = 4, 3
		ids := make([]string, people)
		for p := range people {
			u := slacktest.User{ID: fmt.Sprint("U200", p), Name: fmt.Sprint("p", p)}
			s.AddUser(u)
			ids[p] = slacktest.IM(u).ID
		}
		for n := range messages {
			for p := range people {
				u := slacktest.User{ID: fmt.Sprint("U200", p)}
				s.Say(slacktest.Message{Channel: slacktest.IM(u), User: u.ID, Text: fmt.Sprintf("say: %d", n)})
			}
			s.Refresh("warning")
		}
		for _, id := range ids {
			var got []string
			for _, m := range posted(t, s, id, messages) {
				got = append(got, m.Text)
			}
			if !slices.Equal(got, []string{"0", "1", "2"}) {
				t.Errorf("%s: %q", id, got)
			}
		}
		if st := slackSettled(t, s); st.Lost != 0 {
			t.Errorf("%+v", st)
		}
		if n := h.stored(t); n != people*messages {
			t.Errorf("%d are stored", n)
		}
		if c := h.state(t, "sl", gatewayv1.ChannelState_CHANNEL_STATE_UP); c.GetIn() != people*messages || c.GetLag() == nil || c.GetWhat() != "@demo_bot, lease gateway" {
			t.Errorf("%v", c)
		}
		s.Cut()
		say := func(text string) {
			s.Say(slacktest.Message{Channel: slacktest.IM(slackBob), User: slackBob.ID, Text: text})
		}
		say("say: after the cut")
		postedText(t, s, "after the cut", "")
		if o.DSN != "" {
			return
		}
		slackSettled(t, s)
		h.Stop()
		say("say: later")
		s.Forget() // the platform has given it up: it is in the history alone
		h = slack(t, s, world.Options{Home: h.Home}, "dm: open")
		postedText(t, s, "later", "")
		slackSettled(t, s)
		if n := h.stored(t); n != people*messages+2 {
			t.Errorf("%d are stored", n)
		}
	})
}

// A mention in a channel, which is two events, is one message. A thread is a conversation of its
// own, and is answered there; what does not address the bot is context.
func TestSlackChannel(t *testing.T) {
	s := workspace(t)
	h := slack(t, s, world.Options{}, `dm: open, groups: {allow: ["*"]}`)
	say := func(text, thread string) string {
		return s.Say(slacktest.Message{Channel: slackGeneral, User: slackBob.ID, Text: text, Thread: thread})
	}
	root := say("not for the bot", "")
	say("<@U0BOT> say: hello", "")
	if got := posted(t, s, "C100", 1); !strings.HasSuffix(got[0].Text, "say: hello") || got[0].Thread != "" {
		t.Errorf("%+v", got)
	}
	say("<@U0BOT> say: in the thread", root)
	if got := posted(t, s, "C100", 2); !strings.HasSuffix(got[1].Text, "say: in the thread") || got[1].Thread != root {
		t.Errorf("%+v", got)
	}
	say("<@U0BOT> !whoami", "")
	m := postedText(t, s, "You are bob (slack:U1207)", "")
	say("!whoami", "")
	say("<@U0BOT> /help", "")
	postedText(t, s, "!status - show the agent", m.TS)
	slackSettled(t, s)
	if n := h.stored(t); n != 2 {
		t.Errorf("%d are stored, not 2", n)
	}
	if got := posted(t, s, "C100", 4); len(got) != 4 {
		t.Errorf("%+v", got)
	}
}

// S4-06: in a channel, what is written in the thread of an answer needs no mention, and quotes the answer. In the thread of
// another person's message it does.
func TestSlackReply(t *testing.T) {
	s := workspace(t)
	h := slack(t, s, world.Options{}, `dm: open, groups: {allow: ["*"]}`)
	say := func(text, thread string) string {
		return s.Say(slacktest.Message{Channel: slackGeneral, User: slackBob.ID, Text: text, Thread: thread})
	}
	root := say("not for the bot", "")
	say("<@U0BOT> say: it is Tuesday", "")
	answer := postedText(t, s, "it is Tuesday", root)
	say("say: not answered", root)
	say("why?", answer.TS)
	m := postedText(t, s, "why?", answer.TS)
	if m.Thread != answer.TS || !strings.Contains(m.Text, "it is Tuesday") {
		t.Errorf("%+v", m)
	}
	slackSettled(t, s)
	if n := h.stored(t); n != 2 {
		t.Errorf("%d messages are stored, not 2", n)
	}
}

// What waits for a decision is shown to the owner, whose direct conversation has another id, and
// decided by a button.
func TestSlackApproval(t *testing.T) {
	s := workspace(t)
	h := slack(t, s, world.Options{}, "dm: open")
	if _, err := h.Homes.SetHomeValue(t.Context(), &registryv1.SetHomeValueRequest{Path: []string{"owners"}, Value: `["slack:U1207"]`}); err != nil {
		t.Fatal(err)
	}
	h.configure(t, "sandbox: {mode: \"off\"}\napprovals: ask")
	s.Say(slacktest.Message{Channel: slacktest.IM(slackBob), User: slackBob.ID, Text: "run: touch ran"})
	asked := postedText(t, s, "admin wants to run", "")
	if asked.Channel.ID != "D1207" || len(asked.Buttons) < 2 {
		t.Fatalf("%+v", asked)
	}
	ran := filepath.Join(h.Home, "agents/admin/workdir/ran")
	if _, err := os.Stat(ran); err == nil {
		t.Fatal("it ran without a decision")
	}
	if err := s.Press("D1207", asked.TS, slackBob.ID, asked.Buttons[0].Value); err != nil {
		t.Fatal(err)
	}
	postedText(t, s, "Approved once", asked.TS)
	h.Await(t, "admin", 1)
	if _, err := os.Stat(ran); err != nil {
		t.Error(err)
	}
}

// S3-48: the options of a question are buttons also in a thread, where the notice of an answer elsewhere is, too.
func TestSlackQuestionButtons(t *testing.T) {
	s := workspace(t)
	h := slack(t, s, world.Options{}, `dm: open, groups: {allow: ["*"], mode: always}`)
	h.configure(t, "tools: {also_allow: [ask_user]}")
	root := s.Say(slacktest.Message{Channel: slackGeneral, User: slackBob.ID, Text: "say: hello"})
	s.Say(slacktest.Message{Channel: slackGeneral, User: slackBob.ID, Thread: root, Text: "say: here"}) // the first in a thread may quote the root
	first := postedText(t, s, "here", root)
	ask := func(after string) slacktest.Message {
		t.Helper()
		s.Say(slacktest.Message{Channel: slackGeneral, User: slackBob.ID, Thread: root, Text: `call: ask_user {"question":"Which account?","options":["main","savings"]}`})
		m := postedText(t, s, "1. main", after)
		if len(m.Buttons) != 2 || m.Buttons[1].Text != "2. savings" || m.Thread != root {
			t.Fatalf("%+v", m)
		}
		return m
	}
	m := ask(first.TS)
	if err := s.Press("C100", m.TS, slackBob.ID, m.Buttons[1].Value); err != nil {
		t.Fatal(err)
	}
	answer := postedText(t, s, `{"answer":"savings"}`, m.TS)
	ask(answer.TS)
	list, err := h.Questions.ListQuestions(t.Context(), &registryv1.ListQuestionsRequest{State: registryv1.QuestionState_QUESTION_STATE_PENDING})
	if err != nil || len(list.GetQuestions()) != 1 {
		t.Fatal(list, err)
	}
	if _, err := h.Questions.AnswerQuestion(t.Context(), &registryv1.AnswerQuestionRequest{QuestionId: list.GetQuestions()[0].GetQuestionId(), Answer: "main"}); err != nil {
		t.Fatal(err)
	}
	if got := postedText(t, s, "Answered elsewhere: Which account? - main", answer.TS); got.Thread != root {
		t.Errorf("%+v", got)
	}
}

// S2-12: a token that is refused is a state that names it, and leaves other accounts alone.
func TestSlackStates(t *testing.T) {
	s, refusing := workspace(t), workspace(t)
	refusing.Fail(slacktest.Fault{Method: "apps.connections.open", Error: "invalid_auth", Times: -1})
	h := open(t, world.Options{}, fmt.Sprintf(`  sl: {type: slack, token: "env:SLACK_BOT", app_token: "env:SLACK_APP", api: %q, dm: open}
  bad: {type: slack, token: "env:SLACK_BOT", app_token: "env:SLACK_APP", api: %q}
  half: {type: slack, token: "env:SLACK_BOT", api: %q}
`, s.URL(), refusing.URL(), s.URL()))
	if c := h.state(t, "bad", gatewayv1.ChannelState_CHANNEL_STATE_AUTH); !strings.Contains(c.GetWhat(), "env:SLACK_APP") || !strings.Contains(c.GetWhat(), "; then start agentd again") {
		t.Errorf("%v", c)
	}
	if c := h.state(t, "half", gatewayv1.ChannelState_CHANNEL_STATE_AUTH); !strings.Contains(c.GetWhat(), "channels.half.app_token") {
		t.Errorf("%v", c)
	}
	h.state(t, "sl", gatewayv1.ChannelState_CHANNEL_STATE_UP)
	s.Say(slacktest.Message{Channel: slacktest.IM(slackBob), User: slackBob.ID, Text: "say: hello"})
	postedText(t, s, "hello", "")
}
