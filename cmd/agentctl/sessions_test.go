package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/theclaw/agents/cmd/agentctl/internal/message"
	"github.com/theclaw/agents/internal/source"
	"github.com/theclaw/agents/internal/testing/world"
	"github.com/theclaw/agents/internal/thread"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// answerOf runs a command with --json and reads what it prints.
func answerOf[T any](t *testing.T, do func(args ...string) outcome, args ...string) (v T) {
	t.Helper()
	o := do(append(args, "--json")...)
	if err := json.Unmarshal([]byte(o.out), &v); err != nil || o.code != 0 {
		t.Fatalf("agentctl %q: exit %d, %v\n%s%s", args, o.code, err, o.out, o.err)
	}
	return v
}

// done runs a command that must succeed.
func done(t *testing.T, do func(args ...string) outcome, args ...string) outcome {
	t.Helper()
	o := do(args...)
	if o.code != 0 {
		t.Fatalf("agentctl %q: exit %d\n%s%s", args, o.code, o.out, o.err)
	}
	return o
}

// fails runs a command that must fail with a text in its error.
func fails(t *testing.T, do func(args ...string) outcome, code int, text string, args ...string) {
	t.Helper()
	if o := do(args...); o.code != code || !strings.Contains(o.err, text) || !errorLine.MatchString(o.err) {
		t.Errorf("agentctl %q: exit %d, want %d and %q\n%s%s", args, o.code, code, text, o.out, o.err)
	}
}

type sessionRow struct {
	Key       string `json:"key"`
	ThreadID  string `json:"thread_id"`
	SessionID string `json:"session_id"`
	Messages  int    `json:"messages"`
	Title     string `json:"title"`
	Archived  bool   `json:"archived"`
	Pending   string `json:"pending"`
	Overrides struct{ Thinking, Model, Verbose string }
}

type historyRow struct {
	EventID   int64  `json:"event_id"`
	Source    string `json:"source"`
	Text      string `json:"text"`
	SessionID string `json:"session_id"`
	Reason    string `json:"reason"`
}

func textsOf(rows []historyRow) string {
	var all []string
	for _, r := range rows {
		if r.SessionID != "" {
			all = append(all, "("+r.Reason+")")
		} else {
			all = append(all, r.Text)
		}
	}
	return strings.Join(all, "|")
}

// S4-29, S4-34: a session is found by its key, also in another case; its settings and its
// epochs are changed, and no message is lost by that.
func TestSessions(t *testing.T) {
	w := world.Start(t, world.Options{})
	w.Create(t, "a1", "outbound: []")
	w.Create(t, "a2", "outbound: []")
	do := person(w)
	if list := answerOf[[]sessionRow](t, do, "sessions", "list", "a1"); len(list) != 0 {
		t.Errorf("before the first message: %+v", list)
	}
	fails(t, do, 1, "", "sessions", "show", aKey)
	done(t, do, "send", "a1", "say: one", "--wait")
	list := answerOf[[]sessionRow](t, do, "sessions", "list", "a1")
	if len(list) != 1 || list[0].Key != aKey || list[0].ThreadID != "threads/peers/cli-cli" || list[0].Messages != 1 || list[0].Archived {
		t.Fatalf("%+v", list)
	}
	table := done(t, do, "sessions", "list", "a1")
	if !regexp.MustCompile(`^KEY +EPOCH +MESSAGES +LAST +WHERE +TITLE\n`+aKey+` +\S+ +1 +\d+s +cli dm\n$`).MatchString(table.out) || table.err != "" {
		t.Errorf("%q, %q", table.out, table.err)
	}
	wide := done(t, do, "sessions", "list", "a1", "-o", "wide")
	if !regexp.MustCompile(`^KEY +EPOCH +MESSAGES +LAST +MODEL +WHERE +TITLE +THREAD\n`+aKey+` +\S+ +1 +\d+s +- +cli dm +threads/peers/cli-cli\n$`).MatchString(wide.out) || wide.err != "" {
		t.Errorf("%q, %q", wide.out, wide.err)
	}
	if s := answerOf[sessionRow](t, do, "sessions", "show", "AGENT:a1:Console:CLI:dm:CLI"); s.Key != aKey {
		t.Errorf("in another case: %+v", s)
	}
	if got := textsOf(answerOf[[]historyRow](t, do, "sessions", "history", aKey)); got != "say: one|one" {
		t.Errorf("history %s", got)
	}

	// Settings of the session alone.
	o := done(t, do, "sessions", "patch", aKey, "--thinking", "off", "--title", "Plans", "--model", "")
	if want := aKey + ": model as the agent's settings say, thinking off, title Plans\n"; o.out != want {
		t.Errorf("%q, want %q", o.out, want)
	}
	done(t, do, "sessions", "patch", aKey, "--model", "work/m1", "--usage-footer", "full", "--elevated", "ask")
	if rows := answerOf[[]struct{ Model, Where string }](t, do, "sessions", "list", "a1"); len(rows) != 1 || rows[0].Model != "work/m1" || rows[0].Where != "cli dm" {
		t.Errorf("with a model of its own: %+v", rows)
	}
	if o := done(t, do, "sessions", "show", aKey); !strings.Contains(o.out, "\nusage-footer: full\nelevated:     ask\n") {
		t.Errorf("%q", o.out)
	}
	done(t, do, "sessions", "patch", aKey, "--model", "", "--usage-footer", "", "--elevated", "")
	s := answerOf[sessionRow](t, do, "sessions", "show", aKey)
	if s.Title != "Plans" || s.Overrides.Thinking != "off" || s.Overrides.Model != "" || s.Pending != "" {
		t.Errorf("%+v", s)
	}
	if o := done(t, do, "sessions", "show", aKey); !strings.Contains(o.out, "\nthinking:     off\nverbose:      as the agent's settings say\n") || !strings.Contains(o.out, "\ntitle:        Plans\n") {
		t.Error(o.out)
	}
	done(t, do, "sessions", "patch", aKey, "--thinking", "")
	if s := answerOf[sessionRow](t, do, "sessions", "show", aKey); s.Overrides.Thinking != "" || s.Title != "Plans" {
		t.Errorf("%+v", s)
	}

	// A new epoch begins with the next message, and the earlier ones stay.
	if o := done(t, do, "sessions", "reset", aKey); !strings.HasPrefix(o.out, aKey+": the next message begins a new epoch. ") {
		t.Error(o.out)
	}
	if o := done(t, do, "sessions", "history", aKey); !strings.Contains(o.out, "say: one") || !strings.Contains(o.err, "the next message begins a new epoch (reset)") {
		t.Errorf("%s%s", o.out, o.err)
	}
	first := answerOf[sessionRow](t, do, "sessions", "show", aKey)
	if first.Pending != "reset" {
		t.Errorf("%+v", first)
	}
	if o := done(t, do, "agent", "a1", "--message", "recall", "--wait", "--session", strings.ToUpper(aKey[:5])+aKey[5:]); o.out != "offline: I see no earlier message of yours.\n" {
		t.Errorf("the model sees an earlier epoch: %q", o.out)
	}
	second := answerOf[sessionRow](t, do, "sessions", "show", aKey)
	if second.Pending != "" || second.SessionID == first.SessionID || second.SessionID == "" {
		t.Errorf("%+v after %+v", second, first)
	}
	if got := textsOf(answerOf[[]historyRow](t, do, "sessions", "history", aKey)); got != "recall|offline: I see no earlier message of yours." {
		t.Errorf("history %s", got)
	}
	const all = "say: one|one|(reset)|recall|offline: I see no earlier message of yours."
	for _, limit := range []string{"100", "100000"} {
		if got := textsOf(answerOf[[]historyRow](t, do, "sessions", "history", aKey, "--all", "--limit", limit)); got != all {
			t.Errorf("history of all, at most %s: %s", limit, got)
		}
	}
	if o := done(t, do, "sessions", "history", aKey, "--all", "--limit", "2"); strings.Contains(o.out, "say: one") || !strings.Contains(o.err, "these are the newest 2; --limit shows more") {
		t.Errorf("%s%s", o.out, o.err)
	}
	if o := done(t, do, "sessions", "history", aKey, "--all"); !strings.Contains(o.out, "--- epoch "+second.SessionID+" begins (reset, by ") {
		t.Error(o.out)
	}

	// An archived one is in the list again with its next message.
	done(t, do, "sessions", "archive", aKey)
	if list := answerOf[[]sessionRow](t, do, "sessions", "list", "a1"); len(list) != 0 {
		t.Errorf("%+v", list)
	}
	if o := done(t, do, "sessions", "list", "a1", "--archived"); !strings.Contains(o.out, "Plans (archived)") {
		t.Error(o.out)
	}
	done(t, do, "send", "a1", "say: back", "--wait")
	if list := answerOf[[]sessionRow](t, do, "sessions", "list", "a1", "--kind", "dm", "--since", "1h"); len(list) != 1 || list[0].Archived {
		t.Errorf("%+v", list)
	}

	// A conversation of its own begins with its first message.
	const plans = "agent:a1:session:plans"
	o = done(t, do, "agent", "a1", "--message", "say: planned", "--wait", "--session", plans)
	if o.out != "planned\n" {
		t.Error(o.out)
	}
	if got := textsOf(answerOf[[]historyRow](t, do, "sessions", "history", plans)); got != "say: planned|planned" {
		t.Errorf("history %s", got)
	}
	if o := done(t, do, "sessions", "list", "a1", "--limit", "1"); !strings.Contains(o.out, plans) || strings.Contains(o.out, aKey) || o.err != "these are the newest 1; --limit shows more\n" {
		t.Errorf("%s%s", o.out, o.err)
	}
	if list := answerOf[[]sessionRow](t, do, "sessions", "list", "a1", "--kind", "named"); len(list) != 1 || list[0].Key != plans {
		t.Errorf("%+v", list)
	}

	fails(t, do, 2, "is a session of agent", "agent", "a1", "--message", "x", "--session", "agent:a2:main")
	fails(t, do, 2, "", "agent", "a1", "--message", "x", "--session", "agent:a1:no such:dm")
	fails(t, do, 1, "'missing' not found", "sessions", "show", "agent:missing:main")
}

// Two sessions whose keys differ in case alone are named when neither is meant exactly.
func TestSessionsInTwoCases(t *testing.T) {
	w := world.Start(t, world.Options{})
	w.Create(t, "a1", "outbound: []")
	do := person(w)
	keys := []string{"agent:a1:session:Plans", "agent:a1:session:plans"}
	for _, key := range keys { // the second one would be the first one on the command line
		r, err := w.Threads.PushEvents(t.Context(), &registry.PushEventsRequest{
			Thread: &registry.ThreadRef{AgentId: "a1", ThreadId: thread.Inbox}, IdempotencyKey: key,
			Events: []*registry.NewEvent{{Source: source.Console, Type: thread.TypeMessage, Content: message.Console.Envelope(key, "say: hi"), SessionKey: key}},
		})
		if err != nil {
			t.Fatal(err)
		}
		w.Await(t, "a1", r.GetEventIds()[0])
	}
	if list := answerOf[[]sessionRow](t, do, "sessions", "list", "a1"); len(list) != 2 {
		t.Fatalf("%+v", list)
	}
	for _, key := range keys {
		if s := answerOf[sessionRow](t, do, "sessions", "show", key); s.Key != key {
			t.Errorf("%s: %+v", key, s)
		}
		fails(t, do, 2, key, "sessions", "show", "agent:a1:session:PLANS")
	}
}

// S3-02: a conversation goes on from the terminal, by its key.
func TestChatSession(t *testing.T) {
	w := world.Start(t, world.Options{})
	w.Create(t, "a1", "outbound: []")
	const key = "agent:a1:telegram:group:-100"
	do := person(w)
	done(t, do, "agent", "a1", "--message", "say: from a script", "--wait", "--session", key)
	o := typing(w, "recall\n", "chat", "a1", "--session", key)
	if want := "offline: your earlier messages (1):\n1. say: from a script\n"; o.out != want || o.code != 0 {
		t.Errorf("exit %d, %q, %q, want %q", o.code, o.out, o.err, want)
	}
	// Its commands act on that session.
	o = typing(w, "/new recall\n/usage\n/status\n/think off\n/think\n/reset\n", "chat", "a1", "--plain", "--session", key)
	if want := "you: /new recall\nyou: recall\na1: offline: I see no earlier message of yours.\nyou: /usage\nyou: /status\nyou: /think off\nyou: /think\nyou: /reset\n"; o.out != want || o.code != 0 {
		t.Errorf("exit %d, %q, want %q", o.code, o.out, want)
	}
	for _, want := range []string{
		"New session: the next message begins it. Earlier messages stay in `agentctl sessions history " + key + " --all`.",
		"this session: 1 answer, ", "the conversation: 3 answers, ", "session: " + key + "\n", "epoch: ", "\ntokens: 1 answer, ", "version: agentctl ",
		"thinking: off, from the next message on, in this conversation\n", "thinking: off (this session)\n",
	} {
		if !strings.Contains(o.err, want) {
			t.Errorf("no %q in %s", want, o.err)
		}
	}
	if s := answerOf[sessionRow](t, do, "sessions", "show", key); s.Pending != "reset" || s.Overrides.Thinking != "off" {
		t.Errorf("%+v", s)
	}
	fails(t, do, 2, "is a session of agent", "chat", "a1", "--session", "agent:a2:main")

	// Before its first message there is nothing to reset, but settings can be made.
	o = typing(w, "/reset\n/think off\n/think\n", "chat", "a1", "--plain", "--thread", "fresh")
	if !strings.Contains(o.err, "This session is new: it has no message yet.") || !strings.Contains(o.err, "thinking: off (this session)\n") || o.code != 0 {
		t.Errorf("exit %d, %s", o.code, o.err)
	}
	// The conversation is the one that the routing of the agent names.
	w.Create(t, "a2", "outbound: []\nrouting:\n  default: per-agent")
	o = typing(w, "say: hi\n/reset\n", "chat", "a2", "--plain")
	if s := answerOf[sessionRow](t, do, "sessions", "show", "agent:a2:main"); s.Pending != "reset" || s.ThreadID != "threads/main" {
		t.Errorf("%+v, %s", s, o.err)
	}
	o = typing(w, "/status\n", "chat", "a2", "--plain")
	if !strings.Contains(o.err, "session: agent:a2:main\n") || !strings.Contains(o.err, "the next message begins a new one (reset)") {
		t.Error(o.err)
	}
}

// S4-35: a chat without --session is in the conversation that session.dm_scope names, from its
// start: its past is shown, and its commands act on that session.
func TestChatInItsScope(t *testing.T) {
	w := world.Start(t, world.Options{})
	w.Create(t, "a1", "outbound: []\nsession:\n  dm_scope: main")
	do := person(w)
	done(t, do, "agent", "a1", "--message", "say: from a script", "--wait", "--session", "agent:a1:main")
	o := typing(w, "/reset\n/status\n", "chat", "a1", "--plain")
	if !strings.Contains(o.err, "session: agent:a1:main\n") || strings.Contains(o.err, "it has no message yet") || o.code != 0 {
		t.Errorf("exit %d, %s", o.code, o.err)
	}
	if s := answerOf[sessionRow](t, do, "sessions", "show", "agent:a1:main"); s.Pending != "reset" || s.ThreadID != "threads/main" {
		t.Errorf("%+v", s)
	}
}

// S4-10, S4-18, S4-21, S4-26: bindings are added, listed, tested and removed.
func TestBindings(t *testing.T) {
	w := world.Start(t, world.Options{})
	for _, id := range []string{"main", "work"} {
		w.Create(t, id, "outbound: []")
	}
	do := person(w)
	if o := done(t, do, "bindings", "list"); o.out != "" || o.err != "no bindings: every message goes to the default agent\n" {
		t.Errorf("%q, %q", o.out, o.err)
	}
	for _, c := range []struct{ line, want string }{
		{"bindings add work --channel discord --guild 81", "Binding 1 added: discord guild 81 -> agent work\n"},
		{"bindings add main --channel discord --peer group:77 --at 1", "Binding 1 added: discord peer group:77 -> agent main\n"},
		{"bindings list", "N  AGENT  CHANNEL  ACCOUNT    PEER      GUILD  TEAM\n1  main   discord  (default)  group:77  -      -\n2  work   discord  (default)  -         81     -\n"},
		{
			"bindings test --channel discord --peer channel:77 --guild 81",
			"agent work   matched by binding.guild (binding 2)   session agent:work:discord:channel:77   thread threads/sessions/discord.channel-77\n" +
				"not matched: 1 peer group:77 (discord reports kind \"channel\" for this id: did you mean channel:77?)\n",
		},
		{"bindings remove 1", "Binding 1 removed: discord peer group:77 -> agent main\n"},
	} {
		if o := done(t, do, strings.Fields(c.line)...); o.out != c.want {
			t.Errorf("agentctl %s\n%s\nwant\n%s", c.line, o.out, c.want)
		}
	}
	fails(t, do, 1, "'missing' not found", "bindings", "add", "missing", "--channel", "discord")
	fails(t, do, 1, "there is no binding 7: the list has 1 binding", "bindings", "remove", "7")
	fails(t, do, 2, "use a number from 1 to 2", "bindings", "add", "work", "--channel", "slack", "--at", "7")
	fails(t, do, 2, "", "bindings", "add", "main", "--channel", "discord", "--guild", "81") // the first one hides it

	// Changes at the same time are all there.
	var all sync.WaitGroup
	for n := range 3 {
		all.Go(func() {
			if o := do("bindings", "add", "work", "--channel", "discord", "--guild", fmt.Sprint(100+n)); o.code != 0 {
				t.Errorf("exit %d, %s", o.code, o.err)
			}
		})
	}
	all.Wait()
	if o := done(t, do, "bindings", "list", "-o", "name"); o.out != "1\n2\n3\n4\n" {
		t.Errorf("%q", o.out)
	}
}
