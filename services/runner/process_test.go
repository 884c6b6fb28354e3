package runner_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner"
)

// cli is the conversation of the console.
const cli = "threads/peers/cli-cli"

var processID = regexp.MustCompile(`p-[a-z2-7]{8}`)

// coder is an agent with the tools for programs, and how to make its model call them.
type coder struct {
	*world
	shop *workshop
	last string // the run of the last call
}

func newCoder(t *testing.T, settings string) *coder {
	w := newWorld(t)
	w.agent("a1", "tools: {profile: full"+settings+"}\noutbound: []")
	return &coder{world: w, shop: w.runner(nil)}
}

// call makes the calls of one message and answers what the model reports of the last one.
func (c *coder) call(lines ...string) string {
	c.t.Helper()
	c.last = c.say(c.shop, "a1", "call: "+strings.Join(lines, "\ncall: "))
	return c.wait(c.shop, "a1", c.last).GetText()
}

// begins waits until the last run makes a call.
func (c *coder) begins() {
	c.t.Helper()
	s, err := c.shop.StreamRun(c.t.Context(), &runnerpb.StreamRunRequest{AgentId: "a1", RunId: c.last})
	if err != nil {
		c.t.Fatal(err)
	}
	for {
		m, err := s.Recv()
		if err != nil {
			c.t.Fatal(err)
		}
		if m.GetTool() != "" {
			return
		}
	}
}

// bashCall is a call of the tool for commands, with what else it says.
func bashCall(command, more string) string {
	b, _ := json.Marshal(command) // a text always encodes
	return `bash_exec {"command":` + string(b) + more + `}`
}

// file is one of the working directory.
func (c *coder) file(name string) string {
	return filepath.Join(c.home.Path(), "agents", "a1", "workdir", name)
}

// exits are the texts of the messages about processes, in the order they came.
func (c *coder) exits() (out []string) {
	for _, e := range c.events("a1", "inbox") {
		if strings.HasPrefix(e.GetSource(), "internal:process:") {
			var m struct{ Text string }
			if err := json.Unmarshal([]byte(e.GetContent()), &m); err != nil {
				c.t.Error(err)
			}
			out = append(out, m.Text)
		}
	}
	return out
}

// awaits waits until the inbox has n messages about processes that have their fate, and answers all.
func (c *coder) awaits(n int) []string {
	c.t.Helper()
	watch, err := c.threads.WatchEvents(c.t.Context(), &registrypb.WatchEventsRequest{Thread: &registrypb.ThreadRef{AgentId: "a1", ThreadId: "inbox"}})
	if err != nil {
		c.t.Fatal(err)
	}
	for n > 0 {
		m, err := watch.Recv()
		if err != nil {
			c.t.Fatal(err)
		}
		for _, e := range m.GetEvents() {
			if !strings.HasPrefix(e.GetSource(), "internal:process:") {
				continue
			}
			t, err := c.turns.GetTurn(c.t.Context(), &registrypb.GetTurnRequest{AgentId: "a1", InboxId: e.GetId(), Wait: durationOf(30 * time.Second)})
			if err != nil || t.GetTurn().GetFate() != registrypb.Fate_FATE_REPLIED {
				c.t.Fatalf("%v %v", t, err)
			}
			n--
		}
	}
	return c.exits()
}

// S2-53, S4-64: a process in the background has its input and output, ends once, and what the model
// waited for is no message.
func TestProcess(t *testing.T) {
	c := newCoder(t, "")
	text := c.call(bashCall("echo ready; read x; echo got $x; until [ -e go ]; do sleep 0.5; done; exit 3", `,"background":true`))
	id := processID.FindString(text)
	if id == "" || !strings.Contains(text, "output .output/"+id+".log") {
		t.Fatalf("started: %s", text)
	}
	if text := c.call(`process {"action":"list"}`); !strings.Contains(text, id+" running for") || !strings.Contains(text, "echo ready") {
		t.Errorf("listed: %s", text)
	}
	c.call(`process {"action":"write","id":"` + id + `","text":"a line\n"}`)
	c.last = c.say(c.shop, "a1", `call: process {"action":"poll","id":"`+id+`","wait_seconds":60}`)
	c.begins()
	if err := os.WriteFile(c.file("go"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	text = c.wait(c.shop, "a1", c.last).GetText()
	if !strings.Contains(text, "ready") || !strings.Contains(text, "got a line") || !strings.Contains(text, `"exited"`) || !strings.Contains(text, `"exit":3`) {
		t.Errorf("polled: %s", text)
	}
	text = c.call(`process {"action":"poll","id":"` + id + `","offset":6}`)
	if strings.Contains(text, "running") || !strings.Contains(text, `"exit":3`) {
		t.Errorf("polled again: %s", text)
	}
	if b, err := os.ReadFile(c.file(".output/" + id + ".log")); err != nil || string(b) != "ready\ngot a line\n" {
		t.Errorf("log: %q %v", b, err)
	}
	for _, call := range []string{"write", "poll", "kill"} {
		if text := c.call(`process {"action":"` + call + `","id":"p-none","text":"x"}`); !strings.Contains(text, "no process of this id") {
			t.Errorf("%s: %s", call, text)
		}
	}
	if text := c.call(`process {"action":"write","id":"` + id + `","text":"x"}`); !strings.Contains(text, "over") {
		t.Errorf("written after the end: %s", text)
	}
	if got := c.exits(); len(got) != 0 {
		t.Errorf("messages about an end that was seen: %q", got)
	}
}

// The list names the command, whatever directory it runs in; a text that is larger than an input holds is refused as that.
func TestProcessInADirectory(t *testing.T) {
	c := newCoder(t, "")
	c.call(bashCall("mkdir sub", ""))
	id := processID.FindString(c.call(bashCall("sleep 1000", `,"cwd":"sub","background":true`)))
	if text := c.call(`process {"action":"list"}`); !strings.Contains(text, id+" running for") || !strings.Contains(text, "sleep 1000") {
		t.Errorf("listed: %s", text)
	}
	if text := c.call(`process {"action":"write","id":"` + id + `","text":"` + strings.Repeat("x", 64<<10+1) + `"}`); !strings.Contains(text, "65537 bytes are too many") {
		t.Errorf("written: %s", text)
	}
	if text := c.call(`process {"action":"kill","id":"` + id + `"}`); !strings.Contains(text, `"killed"`) {
		t.Errorf("killed: %s", text)
	}
}

// S4-64: an end that no call has waited for is one message, in the conversation where the process was
// started, and is answered there.
func TestProcessEndsWithAMessage(t *testing.T) {
	c := newCoder(t, "")
	id := processID.FindString(c.call(bashCall("until [ -e go ]; do sleep 0.02; done; echo bye; exit 3", `,"background":true`)))
	if err := os.WriteFile(c.file("go"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	got := c.awaits(1)
	if len(got) != 1 || !regexp.MustCompile(`^process `+id+` exited with code 3 after \d+s; the end of its output:\nbye$`).MatchString(got[0]) {
		t.Fatalf("messages: %q", got)
	}
	said := 0
	for _, e := range c.events("a1", cli) {
		if e.GetSource() == "self" && strings.Contains(e.GetContent(), "offline: process "+id+" exited") && strings.Contains(e.GetContent(), `"channel_type":"console"`) {
			said++
		}
	}
	if said != 1 {
		t.Errorf("answered %d times in the conversation", said)
	}
}

// S4-64: a command goes on in the background after the time that its call, or the settings, give it,
// and has one that is waited for when it ends before.
func TestYield(t *testing.T) {
	c := newCoder(t, ", exec: {yield: 1s}")
	wait := "echo early; until [ -e go ]; do sleep 0.02; done; echo late"
	byCall, bySetting := c.call(bashCall(wait, `,"yield_seconds":0.2`)), c.call(bashCall(wait, ""))
	for _, text := range []string{byCall, bySetting} {
		if processID.FindString(text) == "" || !strings.Contains(text, "background") || !strings.Contains(text, "early") {
			t.Errorf("yielded: %s", text)
		}
	}
	if text := c.call(bashCall("echo quick", "")); !strings.Contains(text, `quick`) || processID.FindString(text) != "" {
		t.Errorf("quick: %s", text)
	}
	if logs, err := filepath.Glob(c.file(".output/*.log")); err != nil || len(logs) != 2 {
		t.Errorf("logs: %q %v", logs, err)
	}
	if text := c.call(`process {"action":"write","id":"` + processID.FindString(byCall) + `","text":"x"}`); !strings.Contains(text, "input is closed") {
		t.Errorf("written: %s", text)
	}
	if text := c.call(`process {"action":"kill","id":"` + processID.FindString(byCall) + `"}`); !strings.Contains(text, `"killed"`) {
		t.Errorf("killed: %s", text)
	}
	if text := c.call(`process {"action":"kill","id":"` + processID.FindString(byCall) + `"}`); !strings.Contains(text, `"killed"`) || !strings.Contains(text, "ended by a call") {
		t.Errorf("killed again: %s", text)
	}
	if err := os.WriteFile(c.file("go"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if got := c.awaits(1); len(got) != 1 || !strings.Contains(got[0], processID.FindString(bySetting)+" exited with code 0") || !strings.Contains(got[0], "late") {
		t.Errorf("messages: %q", got)
	}
}

// S4-64: there are as many processes as the settings allow, and none where they allow none.
func TestProcessLimits(t *testing.T) {
	c := newCoder(t, ", exec: {background: {max: 1, notify: false}}")
	id := processID.FindString(c.call(bashCall("sleep 1000", `,"background":true`)))
	if text := c.call(bashCall("sleep 1000", `,"background":true`)); id == "" || !strings.Contains(text, "1 processes run in the background") {
		t.Errorf("the second: %s", text)
	}
	if text := c.call(bashCall("echo a; sleep 0.3; echo b", `,"yield_seconds":0.1`)); !strings.Contains(text, "b") || processID.FindString(text) != "" {
		t.Errorf("one that cannot yield: %s", text)
	}
	c.call(`process {"action":"kill","id":"` + id + `"}`)
	id = processID.FindString(c.call(bashCall("true", `,"background":true`)))
	c.call(`process {"action":"poll","wait_seconds":60,"id":"` + id + `"}`)
	if got := c.exits(); len(got) != 0 {
		t.Errorf("messages without notification: %q", got)
	}
}

// runs waits until n programs here have a command line.
func (c *coder) runs(line string, n int) {
	c.t.Helper()
	for end := time.Now().Add(time.Minute); running(c.t, line) != n; <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("%d programs run, want %d", running(c.t, line), n)
		}
	}
}

// running counts the programs with a command line.
func running(t *testing.T, line string) (n int) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if b, err := os.ReadFile(d); err == nil && strings.TrimSpace(strings.ReplaceAll(string(b), "\x00", " ")) == line {
			n++
		}
	}
	return n
}

// S2-26: who ends a run, or stops the agent, ends what it left in the background: 20 of 20 are gone.
func TestStopEndsProcesses(t *testing.T) {
	for name, stop := range map[string]func(c *coder){
		"abort": func(c *coder) {
			if _, err := c.shop.AbortRun(c.t.Context(), &runnerpb.AbortRunRequest{AgentId: "a1", RunId: c.last}); err != nil {
				c.t.Error(err)
			}
		},
		"stop": func(c *coder) {
			if _, err := c.agents.StopAgent(c.t.Context(), &registrypb.StopAgentRequest{AgentId: "a1"}); err != nil {
				c.t.Error(err)
			}
		},
		"drain": func(c *coder) { c.shop.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCoder(t, ", exec: {background: {max: 32}}")
			line := fmt.Sprintf("sleep 1000.%d", os.Getpid()*10+len(name))
			var calls []string
			for range 20 {
				calls = append(calls, bashCall("exec "+line, `,"background":true`))
			}
			if text := c.call(calls...); processID.FindString(text) == "" {
				t.Fatal(text)
			}
			c.runs(line, 20)
			stop(c)
			c.runs(line, 0)
			if name == "drain" {
				c.shop = c.runner(nil)
			} else if name == "stop" {
				if _, err := c.agents.StartAgent(t.Context(), &registrypb.StartAgentRequest{AgentId: "a1"}); err != nil {
					t.Fatal(err)
				}
			}
			if got := c.awaits(20); len(got) != 20 || strings.Contains(strings.Join(got, " "), "restart") {
				t.Errorf("%d messages: %q", len(got), got)
			}
		})
	}
}

// the model sees the names of the presentation, and a call by another name of the tool is the same.
func TestPresentation(t *testing.T) {
	c := newCoder(t, ", presentation: agentclaw")
	for _, name := range []string{"shell", "exec", "bash_exec"} {
		if text := c.call(name + ` {"command":"echo by name"}`); !strings.Contains(text, "by name") {
			t.Errorf("%s: %s", name, text)
		}
	}
	r, err := c.shop.ListTools(t.Context(), &runnerpb.ListToolsRequest{AgentId: "a1"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range r.GetTools() {
		if tool.GetDenied() == "" {
			names = append(names, tool.GetName())
		}
	}
	if got := strings.Join(names, " "); !strings.Contains(got, "file_read file_write") || !strings.Contains(got, " shell ") || strings.Contains(got, "bash_exec") {
		t.Errorf("listed: %s", got)
	}
	steps := 0
	for _, e := range c.events("a1", cli) {
		if strings.Contains(e.GetContent(), `"shell"`) {
			steps++
		}
	}
	if steps == 0 {
		t.Error("no call has the name that was offered")
	}
}

// Who loses the lease ends what runs under it, and records nothing; the next holder gives it up, once.
func TestLostLeaseEndsProcesses(t *testing.T) {
	w := newWorld(t)
	w.agent("a1", "tools: {profile: full}\noutbound: []")
	c := &coder{world: w, shop: w.runner(nil, func(cfg *runner.Config) { cfg.TTL = time.Second })}
	line := fmt.Sprintf("sleep 3000.%d", os.Getpid())
	id := processID.FindString(c.call(bashCall("exec "+line, `,"background":true`)))
	c.runs(line, 1)
	if _, err := w.leases.ReleaseLease(t.Context(), &registrypb.ReleaseLeaseRequest{Resource: "agent/a1", Token: w.token("a1")}); err != nil {
		t.Fatal(err)
	}
	c.runs(line, 0)
	if got := c.awaits(1); len(got) != 1 || !strings.HasPrefix(got[0], "process "+id+" was ended by a restart after ") {
		t.Errorf("messages: %q", got)
	}
	if text := c.call(`process {"action":"list"}`); !strings.Contains(text, id+" lost") {
		t.Errorf("listed: %s", text)
	}
}
