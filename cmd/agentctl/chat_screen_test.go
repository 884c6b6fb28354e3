//go:build proof

package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// at makes the terminal as large as that.
func (m tmux) at(width, height int) {
	m.t.Helper()
	m.do("resize-window", "-x", fmt.Sprint(width), "-y", fmt.Sprint(height))
}

// typed types a text and sends it.
func (m tmux) typed(text string) {
	m.t.Helper()
	m.do("send-keys", "-l", text)
	m.do("send-keys", "Enter")
}

// TestChatScreens shows the parts of a conversation in a small terminal and in a large one.
func TestChatScreens(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h")
	model := newLoopback(t)
	services(t, home, model.env()...)
	agentOf(t, home)
	m := terminal(t, ctl(t, home, "", "chat a1"))
	// each shows texts at both sizes, below the banner.
	each := func(what string, texts ...string) {
		t.Helper()
		for _, size := range [][2]int{{200, 60}, {80, 24}} {
			m.at(size[0], size[1])
			screen := m.shows(append([]string{" a1 · openai/scripted (environment)\n"}, append(texts, "> Say something to a1")...)...)
			t.Logf("%s, %d columns:\n%s", what, size[0], screen)
		}
	}
	each("the beginning")

	m.typed("2*3*4 = *x* &amp; **raw**")
	each("own text", "you: 2*3*4 = *x* &amp; **raw**", "tokens in")

	m.typed("a table")
	each("a table", "Name", "What it does", "Cost", "──┼──", "表格", " 12\n", "👩 joined", "R&D a|b bold", "3\n", "That is 2*3*4 = 24, or 2*3*4 = x.")

	m.shows("has to be wrapped in", "│", "eighty columns") // a cell in two lines
	m.typed("a list")
	each("a list", "1. one\n", "   • two\n", "     • three\n", "2. four:\n", "  ls -l\n", "│ quoted words")

	m.do("send-keys", "-l", "你好 **世界**")
	m.do("send-keys", "C-j")
	m.typed("chinese")
	each("wide characters", "you: 你好 **世界**\nchinese", "a1: 漢字は", "どこでも")

	m.shows("漢字は空\n白なしで") // broken where the line ends
	m.typed("use a tool")
	each("a folded tool", "▸ thought for ", "▸ bash_exec echo from-the-tool · ok · ", "a1: The tool has said it.", "1 tool")

	m.at(80, 24)
	m.typed("the long")
	m.shows("The end of it", "tokens in", "> Say")
	m.do("send-keys", "PPage")
	m.shows("wider than eighty columns", "more lines below (PgDn, Ctrl-End)")
	m.do("send-keys", "C-Home")
	m.shows("you: 2*3*4 = *x*", "more lines below")
	m.do("send-keys", "C-End")
	m.hides("more lines below")
	each("a long answer", "wrapped at a blank.", "The end of it")

	// Lines that are pasted are one message.
	m.do("set-buffer", "first line\nsecond line\nuse no t**l")
	m.do("paste-buffer", "-p")
	m.shows("> first line\n", "  second line\n", "  use no t**l")
	m.do("send-keys", "Enter")
	each("what was pasted", "you: first line\nsecond line\nuse no t**l", "a1: heard: use no t")

	m.typed("hang")
	m.shows("a1: this never ends", "Ctrl-C ends it")
	m.do("send-keys", "C-c")
	each("a run that was ended", "a1: this never ends\n! aborted")
	m.do("send-keys", "C-d")
	m.shows("exit=0")
}

// A command that a person is asked about is answered in the conversation.
func TestChatAsks(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h")
	services(t, home, newLoopback(t).env()...)
	agentOf(t, home)
	for _, kv := range [][2]string{{"sandbox.mode", "off"}, {"approvals", "ask"}} {
		if _, err := owner(t, home).Agents().SetAgentConfig(t.Context(), &registry.SetAgentConfigRequest{AgentId: "a1", Key: kv[0], Value: kv[1]}); err != nil {
			t.Fatal(err)
		}
	}
	m := terminal(t, ctl(t, home, "", "chat a1"))
	for _, size := range [][2]int{{80, 24}, {200, 60}} {
		m.at(size[0], size[1])
		m.shows("> Say something")
		m.typed("use a tool")
		t.Log(m.shows("! a1 asks whether it may run this, once", "echo from-the-tool", "waits for your answer", "Run it, once? y or n, then Enter: ", "> "))
		m.typed("y")
		m.shows("approved, once: ", "a1: The tool has said it.")
		m.hides("Run it, once?")
		m.typed("use a tool")
		m.shows("Run it, once? y or n, then Enter: ")
		m.typed("n")
		m.shows("denied: ", "a1: The tool has said it.", "> Say something")
		m.hides("Run it, once?")
		m.typed("/new again" + fmt.Sprint(size[0]))
		m.shows("--- conversation again", "> Say something")
	}

	// The same for a screen reader.
	plain := terminal(t, ctl(t, home, "", "chat a1 --plain"))
	plain.shows("model: openai/scripted (", "you:")
	plain.typed("use a tool")
	plain.shows("a1 asks whether it may run this, once (", "y or n:")
	plain.typed("y")
	t.Log(plain.shows("approved, once: ", "bash_exec: ok\nfrom-the-tool", "a1: The tool has said it.", "you:"))
	if e := plain.do("capture-pane", "-p", "-e"); strings.Contains(e, "\x1b") {
		t.Errorf("an escape sequence: %q", e)
	}
	plain.typed("hang")
	plain.shows("you: hang")
	plain.do("send-keys", "C-d")
	plain.do("send-keys", "C-c")
	plain.shows("aborted", "exit=1")
}

// With --plain a pipe gets the conversation as lines, with the names of the speakers and
// without an escape sequence.
func TestChatPlainInAPipe(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h")
	services(t, home, newLoopback(t).env()...)
	agentOf(t, home)
	c := exec.Command(filepath.Join(built(t), "agentctl"), "chat", "a1", "--plain")
	c.Env = []string{"THECLAW_HOME=" + home, "TERM=xterm"}
	c.Stdin = strings.NewReader("hello\n\nuse a tool\na list\n")
	var notes strings.Builder
	c.Stderr = &notes
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, notes.String())
	}
	want := "you: hello\na1: heard: hello\nyou: use a tool\na1 runs bash_exec: echo from-the-tool\nbash_exec: ok\nfrom-the-tool\n" +
		"a1: The tool has said it.\nyou: a list\na1: " + answers["a list"] + "\n"
	if string(out) != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
	if !strings.HasPrefix(notes.String(), "model: openai/scripted (") {
		t.Errorf("on standard error: %q", notes.String())
	}
}

// The services are killed in the middle of an answer: what was said stays on the screen, and
// the answer goes on behind it, without a word lost or said twice.
func TestChatSurvivesAKill(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h")
	model := newLoopback(t)
	services(t, home, model.env()...)
	agentOf(t, home)
	m := terminal(t, ctl(t, home, "", "chat a1"))
	m.at(80, 24)
	m.shows("> Say something to a1")
	m.typed("count")
	m.shows("you: count\na1: one\ntwo\nthr\n", "a1 is working")
	if err := syscall.Kill(lockedBy(t, home), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	t.Log(m.shows("a1: one\ntwo\nthr\n", "the registry does not answer", "no connection to the registry", "> Say"))
	services(t, home, model.env()...)
	m.shows("the run goes on after an interruption")
	m.shows("the registry is back")
	m.hides("no connection")
	if s := m.shows("a1: one\ntwo\nthr\n", "> Say"); strings.Count(s, "one\n") != 1 {
		t.Errorf("the beginning of the answer is there twice:\n%s", s)
	}
	close(model.goOn)
	s := m.shows("a1: one\ntwo\nthree\nfour\nfive\n", "tokens in", "> Say")
	if t.Log(s); strings.Count(s, "one\n") != 1 || strings.Count(s, "five") != 1 {
		t.Error("said twice")
	}
}
