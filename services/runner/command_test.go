package runner_test

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/testing/backendtest"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
)

// said are the events of a conversation, each as its kind and the beginning of its text.
func (w *world) said(thread string) (out []string) {
	w.t.Helper()
	for _, e := range w.events("a1", thread) {
		kind := e.GetType()
		if e.GetSubtype() != "" {
			kind += "/" + e.GetSubtype()
		}
		_, text, _ := strings.Cut(e.GetContent(), `"text":"`)
		text, _, _ = strings.Cut(text, `"`)
		out = append(out, kind+" "+text)
	}
	return out
}

// A command of the console is answered once, without a model, and no prompt shows it; the text after
// /new is answered in the new session.
func TestCommandsOfConsole(t *testing.T) {
	w := newWorld(t)
	w.agent("a1", "")
	script := modeltest.New(t, modeltest.Say("one"), modeltest.Say("two"), modeltest.Say("three"), modeltest.Say("four"))
	r := w.runner(script)
	for _, c := range []struct{ text, answer string }{
		{"hello", "one"},
		{"/think off", "Thinking: off."},
		{"/model nothing", "\"nothing\" is none of the models that can be chosen.\nModels: none; model.fallbacks of the settings names those that can be chosen."},
		{"stop", "Nothing is running."},
		{"/status", "two"}, // no command of an agent: a message
		{"/reset", "New session. The model does not see what was said before."},
		{"/new and now", "three"},
	} {
		end := w.wait(r, "a1", w.say(r, "a1", c.text))
		if end.GetStatus() != runnerpb.RunStatus_RUN_STATUS_OK || end.GetText() != c.answer || len(end.GetPayloads()) != 1 {
			t.Errorf("%s: %v", c.text, end)
		}
	}
	started, err := r.StartRun(t.Context(), &runnerpb.StartRunRequest{AgentId: "a1", Text: "/reset", Source: "external:telegram:main:dm:bob:bob", SessionKey: "agent:a1:console:cli:dm:cli"})
	if err != nil {
		t.Fatal(err)
	}
	if end := w.wait(r, "a1", started.GetRunId()); end.GetText() != "four" {
		t.Errorf("not of the console: %v", end)
	}
	var asked []string
	for _, q := range script.Requests() {
		var texts []string
		for _, m := range q.Chat.Messages {
			if m.Role != "system" {
				texts = append(texts, m.Content)
			}
		}
		asked = append(asked, strings.Join(texts, "|"))
	}
	if want := []string{"hello", "hello|one|/status", "and now", "and now|three|/reset"}; !slices.Equal(asked, want) {
		t.Errorf("the model was asked %q, want %q", asked, want)
	}
}

// A command that an earlier build stored in the inbox, and this one does not carry out, is answered once all the same.
func TestCommandOfAnEarlierBuild(t *testing.T) {
	w := newWorld(t)
	w.agent("a1", "")
	pushed := backendtest.Must2(w.threads.PushEvents(t.Context(), &registrypb.PushEventsRequest{
		Thread: &registrypb.ThreadRef{AgentId: "a1", ThreadId: "inbox"},
		Events: []*registrypb.NewEvent{{Source: "external:console:cli:dm:cli:cli", Type: "message", Content: `{"text":"/usage"}`, Command: &registrypb.ChatCommand{Name: "think"}}},
	}))
	db, err := sql.Open("sqlite", "file:"+filepath.Join(w.home.AgentDir("a1"), "inbox", "events.db")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), `UPDATE x_origin SET command = '{"name":"usage"}'`); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	r := w.runner(modeltest.New(t))
	if end := w.wait(r, "a1", pushed.GetRunIds()[0]); end.GetStatus() != runnerpb.RunStatus_RUN_STATUS_OK || end.GetText() != "This agent does not know the command /usage." {
		t.Errorf("%v", end)
	}
}

// /compact digests the conversation, and says so; a failure is an answer, too.
func TestCompactCommand(t *testing.T) {
	w := newWorld(t)
	w.agent("a1", "compaction: {strategy: truncate, keep_tokens: 1}")
	r := w.runner(modeltest.New(t, modeltest.Say("one"), modeltest.Say("two")))
	for _, text := range []string{"first", "second"} {
		w.wait(r, "a1", w.say(r, "a1", text))
	}
	for _, want := range []string{"Digested ", "There is nothing new to digest."} {
		if end := w.wait(r, "a1", w.say(r, "a1", "/compact")); !strings.HasPrefix(end.GetText(), want) {
			t.Errorf("%v, want %s", end, want)
		}
	}
	w.agent("a2", "")
	r.stop()
	r = w.runner(nil)
	for _, text := range []string{"say: x", "say: y"} {
		w.wait(r, "a2", w.say(r, "a2", text))
	}
	if end := w.wait(r, "a2", w.say(r, "a2", "/compact")); end.GetStatus() != runnerpb.RunStatus_RUN_STATUS_OK || !strings.HasPrefix(end.GetText(), "/compact failed: the model offline cannot digest a memory - ") {
		t.Errorf("without a model: %v", end)
	}
}

// S1-20, S1-22: a command is merged into no turn, and nothing into its own.
func TestCommandsAreNotMerged(t *testing.T) {
	for _, mode := range []string{"collect", "steer"} {
		t.Run(mode, func(t *testing.T) {
			w := newWorld(t)
			w.agent("a1", "queue: {mode: "+mode+"}")
			gate := make(chan struct{})
			script := modeltest.New(t, modeltest.Step{Gate: gate, ToolCalls: []modeltest.ToolCall{{ID: "c1", Name: "bash_exec", Arguments: []string{`{"command":"true"}`}}}})
			for n := range 3 {
				script.Push(modeltest.Say(fmt.Sprint("answer ", n)))
			}
			r := w.runner(script)
			first := w.say(r, "a1", "m0")
			begun(t, r, first)
			runs := []string{first}
			for _, text := range []string{"m1", "/think off", "m2"} {
				runs = append(runs, w.say(r, "a1", text))
			}
			waiting(t, r, 3)
			close(gate)
			for _, run := range runs {
				w.wait(r, "a1", run)
			}
			if end := w.wait(r, "a1", runs[2]); end.GetText() != "Thinking: off." || end.GetMergedInto() != "" {
				t.Errorf("the command: %v", end)
			}
			if end := w.wait(r, "a1", runs[3]); end.GetMergedInto() != "" || !strings.HasPrefix(end.GetText(), "answer") {
				t.Errorf("the message behind it: %v", end)
			}
			if end := w.wait(r, "a1", runs[1]); (mode == "steer") != (end.GetMergedInto() == first) {
				t.Errorf("the message before it: %v", end)
			}
		})
	}
}

// S1-16: /stop while a program runs: when it is answered the program is gone, and what waited has the fate
// aborted, 20 times of 20. What comes after it is worked on.
func TestStop(t *testing.T) {
	c := newCoder(t, "")
	line := fmt.Sprintf("sleep 3000.%d", os.Getpid())
	for n := range 20 {
		c.last = c.say(c.shop, "a1", "call: "+bashCall("exec "+line, ""))
		c.begins()
		c.runs(line, 1)
		ids := []string{c.last}
		for _, text := range []string{"say: m1", "say: m2", "/think off"} {
			ids = append(ids, c.say(c.shop, "a1", text))
		}
		waiting(t, c.shop, 3)
		stop := c.wait(c.shop, "a1", c.say(c.shop, "a1", "/stop"))
		if stop.GetText() != "Stopped 1 run and 3 waiting messages." || running(t, line) != 0 {
			t.Fatalf("%d: %v; %d programs run", n, stop, running(t, line))
		}
		for i, id := range ids {
			got, err := c.turns.GetTurn(t.Context(), &registrypb.GetTurnRequest{AgentId: "a1", Key: id})
			if err != nil || got.GetTurn().GetFate() != registrypb.Fate_FATE_ABORTED || i == 0 && !strings.HasPrefix(got.GetTurn().GetError(), "stopped by message ") {
				t.Fatalf("%d: message %d: %v %v", n, i, got, err)
			}
		}
		if next := c.wait(c.shop, "a1", c.say(c.shop, "a1", "say: next")); next.GetText() != "next" {
			t.Fatalf("%d: the message behind it: %v", n, next)
		}
	}
	if again := c.wait(c.shop, "a1", c.say(c.shop, "a1", "/stop")); again.GetText() != "Nothing is running." {
		t.Errorf("with nothing to stop: %v", again)
	}
}

// A stop needs no slot, and stops the members of a turn with it.
func TestStopOfMergedMessages(t *testing.T) {
	w := newWorld(t)
	w.agent("a1", "queue: {mode: collect}\nrun: {concurrency: 1}")
	script := modeltest.New(t, modeltest.Say("one"), modeltest.Step{Gate: make(chan struct{})})
	script.Push(modeltest.Say("last"))
	r := w.runner(script)
	w.wait(r, "a1", w.say(r, "a1", "m0"))
	first := w.say(r, "a1", "m1")
	begun(t, r, first)
	others := []string{w.say(r, "a1", "m2"), w.say(r, "a1", "m3")}
	waiting(t, r, 2)
	if stop := w.wait(r, "a1", w.say(r, "a1", "/stop")); stop.GetText() != "Stopped 1 run and 2 waiting messages." {
		t.Errorf("stopped: %v", stop)
	}
	for _, run := range append(others, first) {
		if end := w.wait(r, "a1", run); end.GetStatus() != runnerpb.RunStatus_RUN_STATUS_ERROR {
			t.Errorf("ended %v", end)
		}
	}
	if end := w.wait(r, "a1", w.say(r, "a1", "m4")); end.GetText() != "last" {
		t.Errorf("the next message: %v", end)
	}
}

// Who does not own the home stops their own messages alone; an owner stops all of the conversation, and none of
// another one.
func TestWhoStops(t *testing.T) {
	w := newWorld(t)
	if err := os.WriteFile(filepath.Join(w.home.Path(), "theclaw.yaml"), []byte("owners: ['telegram:carol']\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.agent("a1", "outbound: []")
	gate, other := make(chan struct{}), make(chan struct{})
	script := modeltest.New(t, modeltest.Step{Gate: gate, Text: []string{"for ann"}})
	r := w.runner(script)
	push := func(from, group, text, command string) *registrypb.PushEventsResponse {
		t.Helper()
		e := &registrypb.NewEvent{
			Source: "external:telegram:main:group:" + group + ":" + from, Type: "message", Content: `{"text":"` + text + `"}`, SessionKey: "agent:a1:telegram:group:" + group,
		}
		if command != "" {
			e.Command = &registrypb.ChatCommand{Name: command}
		}
		return backendtest.Must2(w.threads.PushEvents(t.Context(), &registrypb.PushEventsRequest{
			Thread: &registrypb.ThreadRef{AgentId: "a1", ThreadId: "inbox"}, Events: []*registrypb.NewEvent{e},
		}))
	}
	ann := push("ann", "g1", "a", "").GetRunIds()[0]
	begun(t, r, ann)
	bob := push("bob", "g1", "b", "").GetRunIds()[0]
	ann2 := push("ann", "g1", "a2", "").GetRunIds()[0]
	waiting(t, r, 2)
	stop := push("bob", "g1", "/stop", "stop").GetRunIds()[0]
	if end := w.wait(r, "a1", bob); end.GetStatus() != runnerpb.RunStatus_RUN_STATUS_ERROR {
		t.Errorf("bob's message: %v", end)
	}
	script.Push(modeltest.Step{Gate: other, Text: []string{"for ann again"}})
	close(gate)
	if end := w.wait(r, "a1", ann); end.GetText() != "for ann" {
		t.Errorf("ann's message: %v", end)
	}
	begun(t, r, ann2)
	script.Push(modeltest.Step{Gate: other, Text: []string{"in the other group"}})
	elsewhere := push("ann", "g2", "x", "").GetRunIds()[0]
	begun(t, r, elsewhere)
	owner := push("carol", "g1", "/stop", "stop").GetRunIds()[0]
	if end := w.wait(r, "a1", ann2); end.GetStatus() != runnerpb.RunStatus_RUN_STATUS_ERROR {
		t.Errorf("ann's second message: %v", end)
	}
	if end := w.wait(r, "a1", stop); end.GetText() != "Stopped 1 waiting message." {
		t.Errorf("bob's stop: %v", end)
	}
	if end := w.wait(r, "a1", owner); end.GetText() != "Stopped 1 run." {
		t.Errorf("the owner's stop: %v", end)
	}
	close(other)
	if end := w.wait(r, "a1", elsewhere); end.GetText() != "in the other group" {
		t.Errorf("the other group: %v", end)
	}
}

// A runner that is killed when it has read a stop and aborted nothing, or before the answer, leaves the
// cut: the next one ends what is below it and answers once, and works on what came after it.
func TestStopOutlivesItsRunner(t *testing.T) {
	eachBackend(t, func(t *testing.T, o backendtest.Options) {
		w, socket := socketWorld(t, o)
		p := prey{t, socket, t.TempDir()}
		if err := os.WriteFile(filepath.Join(p.dir, "providers.yaml"), []byte("default: offline\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		backendtest.Must2(w.agents.CreateAgent(t.Context(), &registrypb.CreateAgentRequest{AgentId: "a1"}))
		backendtest.Must2(w.agents.SetAgentConfig(t.Context(), &registrypb.SetAgentConfigRequest{AgentId: "a1", Key: "tools.profile", Value: "full"}))
		backendtest.Must2(w.agents.StartAgent(t.Context(), &registrypb.StartAgentRequest{AgentId: "a1"}))
		line := fmt.Sprintf("sleep 4000.%d", os.Getpid())
		push := func(text, command string) int64 {
			e := &registrypb.NewEvent{Source: "external:console:cli:dm:cli:cli", Type: "message", Content: fmt.Sprintf(`{"text":%q}`, text)}
			if command != "" {
				e.Command = &registrypb.ChatCommand{Name: command}
			}
			return backendtest.Must2(w.threads.PushEvents(t.Context(), &registrypb.PushEventsRequest{
				Thread: &registrypb.ThreadRef{AgentId: "a1", ThreadId: "inbox"}, Events: []*registrypb.NewEvent{e},
			})).GetEventIds()[0]
		}
		c := &coder{world: w}
		stops := 0
		for _, at := range []string{"C1", "C2.begun", "C2.answered"} {
			first := p.start(at, 1)
			ids := []int64{push("call: "+bashCall("exec "+line, ""), "")}
			c.runs(line, 1)
			ids = append(ids, push("say: m1", ""), push("say: m2", ""))
			stop := push("/stop", "stop")
			first.dead()
			next := p.start("never", 0)
			last := push("say: after", "")
			fates := map[registrypb.Fate]int{}
			for _, id := range append(ids, stop, last) {
				got := backendtest.Must2(w.turns.GetTurn(t.Context(), &registrypb.GetTurnRequest{AgentId: "a1", InboxId: id, Wait: durationOf(time.Minute)})).GetTurn()
				fates[got.GetFate()]++
				if (id < stop) != (got.GetFate() == registrypb.Fate_FATE_ABORTED) {
					t.Errorf("%s: message %d: %v", at, id, got)
				}
			}
			c.runs(line, 0)
			next.stop()
			stops++
			if all := strings.Join(w.said(cli), "\n"); strings.Count(all, "message/command Stopped 1 run and 2 waiting messages.") != stops || strings.Count(all, "message after") != stops {
				t.Errorf("%s: the conversation:\n%s", at, all)
			}
		}
	})
}
