//go:build proof

package runner_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	server "github.com/theclaw/agents/internal/testing/world"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
	"github.com/theclaw/agents/services/runner/internal/model/pai"
)

// desk is a home whose agent a1 speaks through pai with a scripted provider.
type desk struct {
	*server.World
	script *modeltest.Server
	dir    string
}

// withPai starts it. pai is this binary in a script that sets its quirks.
func withPai(t *testing.T, steps ...modeltest.Step) *desk {
	t.Helper()
	d := &desk{script: modeltest.New(t, steps...), dir: t.TempDir()}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(d.dir, "real"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(d.dir, "real", "pai")); err != nil {
		t.Fatal(err)
	}
	d.file(t, "pai", 0o700, fmt.Sprintf("#!/bin/sh\nSTANDIN_PAI=quick,usage=%[1]s/usage,die=%[1]s/die,die-help=%[1]s/die-help exec %[1]s/real/pai \"$@\"\n", d.dir))
	config := d.file(t, "pai.json", 0o600, fmt.Sprintf(
		`{"schema_version":"1.0.0","defaultProvider":"fake","providers":[{"name":"fake","apiKey":"sk-fake","api":"openai-completions","baseUrl":%q,"defaultModel":"m9","contextWindow":64000}]}`, d.script.URL()))
	d.World = server.Start(t, server.Options{
		Env:    map[string]string{"PATH": d.dir + ":" + os.Getenv("PATH"), "HOME": d.dir, "PAI_CONFIG": config},
		Runner: runner.Config{Backoff: 10 * time.Millisecond, Probe: 100 * time.Millisecond},
	})
	d.Create(t, "a1", "")
	d.Set(t, "a1", "sandbox.mode", "off")
	d.Set(t, "a1", "pai.provider", "pai/fake")
	return d
}

func (d *desk) file(t *testing.T, name string, mode os.FileMode, text string) string {
	t.Helper()
	path := filepath.Join(d.dir, name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// calls are the arguments of each call of pai so far.
func (d *desk) calls(t *testing.T) (out [][]string) {
	t.Helper()
	f, err := os.Open(filepath.Join(d.dir, "usage"))
	if err != nil {
		return nil
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		var args []string
		if err := json.Unmarshal(in.Bytes(), &args); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(args, "--help") {
			out = append(out, args)
		}
	}
	return out
}

func (d *desk) session(t *testing.T, turn *registrypb.Turn) (path string, roles []string) {
	t.Helper()
	path = filepath.Join(d.Home, "agents", "a1", "sessions", strings.ReplaceAll(turn.GetThreadId(), "/", "%2F")+".jsonl")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var m struct{ Role, Content string }
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if m.Role != "system" {
			m.Role += ":" + m.Content
		}
		roles = append(roles, m.Role)
	}
	return path, roles
}

func journal(turn *registrypb.Turn) (out []string) {
	for _, s := range turn.GetSteps() {
		out = append(out, s.GetKey()+" "+strings.ToLower(strings.TrimPrefix(s.GetState().String(), "STEP_STATE_")))
	}
	return out
}

// A message is answered through pai: the arguments are the contract's, its tools
// are in the journal and on record in their order between message and reply, and
// the session is rebuilt from the thread (S0-77, S0-79, S0-99, S0-100, S0-101).
func TestPai(t *testing.T) {
	d := withPai(t,
		modeltest.Step{ToolCalls: []modeltest.ToolCall{bash("c1", "echo one"), bash("c2", "echo $XAR_AGENT_ID; exit 3")}},
		modeltest.Step{ToolCalls: []modeltest.ToolCall{bash("c3", "basename $(pwd)")}},
		modeltest.Say("all ", "done"),
		modeltest.Say("twice"),
	)
	turn := d.Say(t, "a1", server.Peer("bob"), "work")
	want(t, d.World, turn, replied, "all done")
	record := "self record/toolcall"
	if got := kinds(t, d.World, turn); !slices.Equal(got, []string{"external message", record, record, record, "self message"}) {
		t.Errorf("thread holds %q", got)
	}
	if got := journal(turn); !slices.Equal(got, []string{"pai:1 done", "pai:1:1 done", "pai:1:2 done", "pai:1:3 done"}) {
		t.Errorf("journal holds %q", got)
	}
	if s := turn.GetSteps()[0]; s.GetClass() != registrypb.ToolClass_TOOL_CLASS_EFFECT || s.GetName() != "pai/fake/m9" {
		t.Errorf("step %v", s)
	}
	for i, e := range d.Events(t, "a1", turn.GetThreadId(), "subtype = 'toolcall'") {
		for _, part := range [][]string{{"echo one", `"stdout":"one\n"`}, {"a1\n", `"exitCode":3`}, {"workdir"}}[i] {
			if !strings.Contains(strings.ReplaceAll(e.GetContent(), `\n`, "\n"), strings.ReplaceAll(part, `\n`, "\n")) {
				t.Errorf("record %d is %s", i, e.GetContent())
			}
		}
	}
	path, roles := d.session(t, turn)
	calls := d.calls(t)
	wantArgs := []string{"chat", "--stream", "--json", "--session", path, "--system-file", path + ".system", "--provider", "fake", "--model", "m9", "--input-file", path + ".input"}
	if len(calls) != 1 || !slices.Equal(calls[0], wantArgs) {
		t.Errorf("called with %q", calls)
	}
	if len(roles) != 8 || roles[0] != "system" || roles[1] != "user:work" || roles[7] != "assistant:all done" || !strings.HasPrefix(roles[3], "tool:{") {
		t.Errorf("session %q", roles)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	turn = d.Say(t, "a1", server.Peer("bob"), "again")
	want(t, d.World, turn, replied, "twice")
	if _, roles := d.session(t, turn); !slices.Equal(roles, []string{"system", "user:work", "assistant:all done", "user:again", "assistant:twice"}) {
		t.Errorf("session %q", roles)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("left %v, %v", left, err)
	}
}

// What passes is tried again, and pai's own tries count; what does not is told
// once, with the class another driver would give it (S0-86, S0-87).
func TestPaiFails(t *testing.T) {
	d := withPai(t)
	d.Set(t, "a1", "retry.max_attempts", "6")
	busy := modeltest.Fail(429, "slow down")
	for _, c := range []struct {
		name         string
		steps        []modeltest.Step
		die          bool
		tries, calls int
		reply, say   string
	}{
		{"pai tries", []modeltest.Step{busy, modeltest.Say("whole")}, false, 0, 1, "whole", ""},
		{"we try", []modeltest.Step{busy, busy, busy, modeltest.Say("whole")}, false, 0, 2, "whole", ""},
		{"away", append(slices.Repeat([]modeltest.Step{modeltest.Fail(503, "overloaded")}, 6), modeltest.Say("whole")), false, 0, 3, "whole", ""},
		{"dies", []modeltest.Step{modeltest.Say("who", "le"), modeltest.Say("whole")}, true, 1, 2, "whole", ""},
		{"empty", []modeltest.Step{{}, modeltest.Say("whole")}, false, 1, 2, "whole", ""},
		{"key", []modeltest.Step{modeltest.Fail(401, "Incorrect API key provided: sk-fake-12345678")}, false, 0, 1, "", "key refused (401)"},
		{"long", []modeltest.Step{modeltest.Fail(400, "This model's maximum context length is 8192 tokens.")}, false, 0, 1, "", "prompt too long (400)"},
		// Not to be told from an answer: see docs/decisions/008.
		{"cut", []modeltest.Step{{Text: []string{"who"}, Cut: true}}, false, 0, 1, "who", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.die {
				d.file(t, "die", 0o600, "")
			}
			before := len(d.calls(t))
			d.script.Push(c.steps...)
			fate := replied
			if c.reply == "" {
				fate = dead
			}
			turn := d.Say(t, "a1", server.Peer(c.name[:3]), "hi")
			want(t, d.World, turn, fate, c.reply)
			if n := len(d.calls(t)) - before; n != c.calls || int(turn.GetErrorAttempts()) != c.tries || !strings.Contains(turn.GetError(), c.say) {
				t.Errorf("%d calls, told %v", n, turn)
			}
			if got := journal(turn); len(got) != c.calls || slices.ContainsFunc(got, func(s string) bool { return !strings.HasSuffix(s, " done") }) {
				t.Errorf("journal %q", got)
			}
			errs := d.Events(t, "a1", turn.GetThreadId(), "subtype = 'error'")
			if (len(errs) == 1) != (fate == dead) || strings.Contains(fmt.Sprint(turn, errs), "sk-fake") {
				t.Errorf("records %v", errs)
			}
		})
	}
}

// A call that fails after its tools ran is not made from the start again: the
// next one goes on behind them.
func TestPaiGoesOnAfterItsTools(t *testing.T) {
	busy := modeltest.Fail(429, "slow down")
	d := withPai(t, modeltest.Step{ToolCalls: []modeltest.ToolCall{bash("c1", "echo ran >> ran")}}, busy, busy, busy, modeltest.Say("done"))
	d.Set(t, "a1", "retry.max_attempts", "6")
	turn := d.Say(t, "a1", server.Peer("bob"), "work")
	want(t, d.World, turn, replied, "done")
	if b, err := os.ReadFile(filepath.Join(d.Home, "agents/a1/workdir/ran")); err != nil || string(b) != "ran\n" {
		t.Errorf("the tool's traces: %q, %v", b, err)
	}
	r := d.script.Requests()
	last := r[len(r)-1].Chat
	if n := len(last.Messages); last.LastUser() != pai.Resume || last.Messages[n-2].Role != "tool" || last.Messages[n-4].Content != "work" {
		t.Errorf("the second call says %+v", last.Messages)
	}
	if got := journal(turn); !slices.Equal(got, []string{"pai:1 done", "pai:1:1 done", "pai:2 done"}) {
		t.Errorf("journal %q", got)
	}
}

// A call that dies in the middle of a tool is in doubt: told, and never made
// again by itself (RELIABILITY T5). Its tool, in a session of its own, does not
// outlive the turn.
func TestPaiInDoubt(t *testing.T) {
	d := withPai(t, modeltest.Step{ToolCalls: []modeltest.ToolCall{bash("c1", "echo $$ > ran; kill -9 $PPID; sleep 600")}}, modeltest.Say("next"))
	turn := d.Say(t, "a1", server.Peer("bob"), "work")
	pid, err := os.ReadFile(filepath.Join(d.Home, "agents/a1/workdir/ran"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/proc/" + strings.TrimSpace(string(pid))); err == nil {
		t.Errorf("the tool %s lives on", pid)
	}
	want(t, d.World, turn, dead, "")
	if got := journal(turn); !slices.Equal(got, []string{"pai:1 in_doubt", "pai:1:1 in_doubt"}) || !strings.Contains(turn.GetError(), "in doubt") {
		t.Errorf("journal %q, told %q", got, turn.GetError())
	}
	// The last one is the apology: the peer is a person in a direct chat.
	if got := kinds(t, d.World, turn); !slices.Equal(got, []string{"external message", "self record/toolcall", "self record/error", "self message"}) {
		t.Errorf("thread holds %q", got)
	}
	want(t, d.World, d.Say(t, "a1", server.Peer("bob"), "well?"), replied, "next")
	if n := len(d.calls(t)); n != 2 {
		t.Errorf("%d calls", n)
	}
	// Asked for, it is made again, from the start.
	d.script.Push(modeltest.Say("asked"))
	again, err := d.Turns.RetryTurn(t.Context(), &registrypb.RetryTurnRequest{AgentId: "a1", InboxId: turn.GetInboxId()})
	if err != nil {
		t.Fatal(err)
	}
	want(t, d.World, d.Await(t, "a1", again.GetInboxId()), replied, "asked")
}

// The provider of a pai configuration is used without the program, too, in the
// sandbox, and with the same result (CONTRACTS 3.1, S0-99).
func TestPaiConfigurationWithoutPai(t *testing.T) {
	steps := []modeltest.Step{{ToolCalls: []modeltest.ToolCall{bash("c1", "echo one")}}, modeltest.Say("done")}
	d := withPai(t, slices.Concat(steps, steps)...)
	through := d.Say(t, "a1", server.Peer("bob"), "work")
	d.Set(t, "a1", "pai.provider", "fake")
	d.Set(t, "a1", "sandbox.mode", "required")
	native := d.Say(t, "a1", server.Peer("eve"), "work")
	for _, turn := range []*registrypb.Turn{through, native} {
		want(t, d.World, turn, replied, "done")
		if got := kinds(t, d.World, turn); !slices.Equal(got, []string{"external message", "self record/toolcall", "self message"}) {
			t.Errorf("thread holds %q", got)
		}
	}
	r := d.script.Requests()
	if n := len(d.calls(t)); n != 1 || len(r) != 4 || r[3].Chat.Model != "m9" || r[3].Header.Get("Authorization") != "Bearer sk-fake" {
		t.Errorf("%d calls of pai, %d requests", n, len(r))
	}
}

// pai brings a bash without walls, so an agent has to allow it.
func TestPaiNeedsNoSandbox(t *testing.T) {
	d := withPai(t)
	d.Set(t, "a1", "sandbox.mode", "required")
	turn := d.Say(t, "a1", server.Peer("bob"), "work")
	want(t, d.World, turn, dead, "")
	if !strings.Contains(turn.GetError(), "set sandbox.mode to off") || len(d.calls(t)) != 0 || len(turn.GetSteps()) != 0 {
		t.Errorf("told %v", turn)
	}
}

// A person's abort ends pai and all that it has started within a second.
func TestPaiAborted(t *testing.T) {
	d := withPai(t)
	fifo := filepath.Join(d.dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	d.script.Push(modeltest.Step{ToolCalls: []modeltest.ToolCall{bash("c1", "setsid sleep 600 & echo $PPID $$ $! > "+fifo+"; sleep 601")}})
	id, err := d.Push(t.Context(), "a1", server.Peer("bob"), "work", "")
	if err != nil {
		t.Fatal(err)
	}
	said, err := os.ReadFile(fifo) // waits for the tool
	if err != nil {
		t.Fatal(err)
	}
	var pids [3]int
	if _, err := fmt.Sscan(string(said), &pids[0], &pids[1], &pids[2]); err != nil {
		t.Fatal(err)
	}
	var fds []unix.PollFd
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	run := d.Ask(t, "a1", id, 0).GetKey()
	start := time.Now()
	if _, err := d.Runner.AbortRun(t.Context(), &runnerpb.AbortRunRequest{AgentId: "a1", RunId: run}); err != nil {
		t.Fatal(err)
	}
	for i := range fds {
		if n, err := unix.Poll(fds[i:i+1], int(max(time.Until(start.Add(30*time.Second)).Milliseconds(), 1))); n != 1 {
			t.Errorf("process %d lives on (%v)", pids[i], err)
		}
	}
	t.Logf("pai, its bash and a process of another session ended %s after the abort", time.Since(start))
	turn := d.Await(t, "a1", id)
	if turn.GetFate() != registrypb.Fate_FATE_ABORTED {
		t.Errorf("told %v", turn)
	}
	if got := journal(turn); !slices.Equal(got, []string{"pai:1 in_doubt", "pai:1:1 in_doubt"}) {
		t.Errorf("journal %q", got)
	}
}

// R4: a help text that was interrupted says nothing about the version: it is asked for
// again, and the message is answered.
func TestPaiProbeKilled(t *testing.T) {
	d := withPai(t, modeltest.Say("hello"))
	d.file(t, "die-help", 0o600, "")
	want(t, d.World, d.Say(t, "a1", server.Peer("bob"), "hi"), replied, "hello")
	if _, err := os.Stat(filepath.Join(d.dir, "die-help")); !os.IsNotExist(err) {
		t.Errorf("the probe was not killed: %v", err)
	}
}

// BuildContext shows the network as a turn does: a program has it, whatever the sandbox's
// setting is.
func TestPaiContext(t *testing.T) {
	d := withPai(t, modeltest.Say("hello"))
	turn := d.Say(t, "a1", server.Peer("bob"), "hi")
	built, err := d.Runner.BuildContext(t.Context(), &runnerpb.BuildContextRequest{AgentId: "a1", ThreadId: turn.GetThreadId()})
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for _, p := range built.GetParts() {
		if p.GetRole() == "system" {
			shown = append(shown, p.GetText())
		}
	}
	if sent := d.script.Requests()[0].Chat.Messages[0].Content; sent != strings.Join(shown, "\n\n") || !strings.Contains(sent, "The network is ") {
		t.Errorf("sent %q, shown %q", sent, shown)
	}
}
