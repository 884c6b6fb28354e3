//go:build proof

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/charmbracelet/x/ansi"

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

// sizes are those that a screen is shown in: what a terminal has at first, and a large one.
var sizes = [][2]int{{200, 60}, {80, 24}}

// screenRow is one screen: what is typed for it, and the texts that a person must see, in their
// order.
type screenRow struct {
	name string
	do   func(m tmux)
	see  []string
	// small are texts of the small screen only.
	small []string
	// input is what the last line is; the empty one when it is not given.
	input string
}

// TestChatScreens shows the parts of a conversation at 80x24 and at 200x60: what must be seen
// is there, in a frame that is whole (framed). With SCREENS=DIR the screens are written to DIR,
// as text and with their colors.
func TestChatScreens(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h")
	model := newLoopback(t)
	services(t, home, model.env()...)
	agentOf(t, home)
	set := func(key, value string) func(tmux) {
		return func(m tmux) {
			m.t.Helper()
			if _, err := owner(t, home).Agents().SetAgentConfig(t.Context(), &registry.SetAgentConfigRequest{AgentId: "a1", Key: key, Value: value}); err != nil {
				m.t.Fatal(err)
			}
		}
	}
	say := func(text string) func(tmux) { return func(m tmux) { m.t.Helper(); m.typed(text) } }
	keys := func(names ...string) func(tmux) {
		return func(m tmux) { m.t.Helper(); m.do(append([]string{"send-keys"}, names...)...) }
	}
	shows := func(texts ...string) func(tmux) { return func(m tmux) { m.t.Helper(); m.shows(texts...) } }
	then := func(acts ...func(tmux)) func(tmux) {
		return func(m tmux) {
			m.t.Helper()
			for _, act := range acts {
				act(m)
			}
		}
	}
	m := terminal(t, ctl(t, home, "", "chat a1"))
	const empty = "> Say something to a1"
	for _, r := range []screenRow{
		{name: "the beginning"},
		{name: "own text", do: say("2*3*4 = *x* &amp; **raw**"), see: []string{"you: 2*3*4 = *x* &amp; **raw**\n", "tokens in"}},
		{name: "a table", do: say("a table"), see: []string{"Name", "What it does", "Cost", "──┼──", "表格", " 12\n", "👩 joined", "R&D a|b bold", "3\n", "That is 2*3*4 = 24, or 2*3*4 = x."}, small: []string{"has to be wrapped in", "│", "eighty columns"}},
		{name: "a list", do: say("a list"), see: []string{"1. one\n", "   • two\n", "     • three\n", "2. four:\n", "  ls -l\n", "│ quoted words"}},
		{name: "wide characters", do: then(keys("-l", "你好 **世界**"), keys("C-j"), say("chinese")), see: []string{"you: 你好 **世界**\nchinese", "a1: 漢字は", "どこでも"}, small: []string{"漢字は空\n白なしで"}},
		{name: "emoji", do: say("emoji"), see: []string{"a family", "a skin", "a flag, 한국어 텍스트.", "絵文字", "──┼──", "│   1\n", "│  22\n", "漢字 ", "│ 333\n", "tokens in"}},
		{name: "a folded tool", do: say("use a tool"), see: []string{"▸ thought for ", "▸ exec echo from-the-tool · ok · ", "a1: The tool has said it.", "1 tool"}},
		{name: "an unfolded tool", do: keys("C-o"), see: []string{"▾ thought for ", "  ┆ a tool is needed here\n", "▾ exec echo from-the-tool · ok · ", "  ┆ $ echo from-the-tool\n  ┆ # to see\n  ┆ ----\n  ┆ from-the-tool\n", "a1: The tool has said it."}},
		{name: "a long answer", do: then(keys("C-o"), say("the long")), see: []string{"wrapped at a blank.", "The end of it", "tokens in"}},
		{name: "a long answer, a page up", do: keys("PPage"), see: []string{"wider than eighty columns", "more lines below (PgDn, Ctrl-End)"}},
		{name: "code, a URL and a wide table", do: then(keys("C-Home"), shows("you: 2*3*4 = *x*", "more lines below"), keys("C-End"), say("all of it")), see: []string{"First", "──┼──", "22\n", "1. one\n   ☑ an item", "│ A quote", "The last line.", "tokens in"}},
		{name: "the help", do: say("/help"), see: []string{"  /help              this text\n", "  /quit, /exit       leave, also without the slash; the current run continues\n", "  //TEXT             send /TEXT to the agent"}},
		{name: "text of more lines", do: then(keys("-l", "first line"), keys("C-j"), keys("-l", strings.Repeat("a long line is wrapped, ", 10)), keys("C-j"), keys("-l", "last 行")), see: []string{"> first line\n", "  a long line"}, input: "  last 行"},
		{name: "pasted text of many lines", do: func(m tmux) {
			m.t.Helper()
			m.do("send-keys", "Enter")
			m.shows("you: first line\n", "\nlast 行\n", "a1: heard: last 行", empty)
			m.do("set-buffer", strings.Repeat("a pasted line\n", 199)+"the end of the paste")
			m.do("paste-buffer", "-p")
		}, see: []string{"your text has 200 lines: Enter sends it, Ctrl-C clears it", "  a pasted line\n"}, input: "  the end of the paste"},
		{
			name: "a command that asks", do: then(keys("C-c"), set("sandbox.mode", "off"), set("approvals", "ask"), say("use a tool")),
			see: []string{"! a1 asks whether it may run this, once", "  /usr/bin/echo from-the-tool\n", "waits for your answer", "Run it, once? y or n, then Enter: /usr/bin/echo from-the-tool\n"},
		},
		{name: "an approved command", do: say("y"), see: []string{"  approved, once: /usr/bin/echo from-the-tool", "a1: The tool has said it."}},
		{name: "an answer that ended early", do: func(m tmux) {
			m.t.Helper()
			m.typed("hang")
			m.shows("a1: this never ends", "Ctrl-C ends it")
			m.do("send-keys", "C-c")
		}, see: []string{"a1: this never ends\n! aborted"}},
		{name: "an unavailable model", do: func(m tmux) {
			m.t.Helper()
			model.Listener.Close()
			model.CloseClientConnections()
			m.typed("are you there")
		}, see: []string{"you: are you there\n", "the model provider openai cannot be reached: connection", "next try in ", "a1 waits · "}},
	} {
		if r.do != nil {
			r.do(m)
		}
		for _, size := range sizes {
			m.at(size[0], size[1])
			input := r.input
			if input == "" {
				input = empty
			}
			screen := m.shows(append(append([]string{" a1 · openai/scripted (environment)\n"}, r.see...), input)...)
			if size[0] == 80 {
				m.shows(r.small...)
			}
			m.framed(r.name, size, input)
			t.Logf("%s, %dx%d:\n%s", r.name, size[0], size[1], screen)
		}
	}
}

// framed waits until the screen is whole: the banner at the top, the input in the last line
// below a rule of the whole width, no line wider than the screen, and in each table all bars
// below those of its head. A screen that is being drawn is looked at again.
func (m tmux) framed(name string, size [2]int, input string) {
	m.t.Helper()
	problem, screen := "", ""
	m.until(func() bool {
		screen = m.do("capture-pane", "-p")
		problem = frameProblem(screen, size, input)
		return problem == ""
	}, func() string { return fmt.Sprintf("%s, %dx%d: %s:\n%s", name, size[0], size[1], problem, screen) })
	if dir := os.Getenv("SCREENS"); dir != "" {
		file := filepath.Join(dir, fmt.Sprintf("%s-%dx%d", strings.ReplaceAll(strings.ReplaceAll(name, ",", ""), " ", "-"), size[0], size[1]))
		for ending, text := range map[string]string{".txt": screen, ".ansi": m.do("capture-pane", "-p", "-e", "-N")} {
			if err := os.WriteFile(file+ending, []byte(text), 0o600); err != nil {
				m.t.Fatal(err)
			}
		}
	}
}

func frameProblem(screen string, size [2]int, input string) string {
	lines := strings.Split(strings.TrimSuffix(screen, "\n"), "\n")
	if len(lines) != size[1] {
		return fmt.Sprintf("%d lines", len(lines))
	}
	if !strings.HasPrefix(lines[0], " a1 · ") {
		return "the banner is not at the top"
	}
	if !strings.HasPrefix(lines[size[1]-1], input) {
		return fmt.Sprintf("the last line is not %q", input)
	}
	rule := slices.Index(lines, strings.Repeat("─", size[0]))
	if rule < size[1]-10 {
		return "no rule above the input"
	}
	var head []int // the bars of the table that a line is in
	for n, l := range lines {
		if w := ansi.StringWidthWc(l); w > size[0] {
			return fmt.Sprintf("line %d has %d columns", n, w)
		}
		bars := columnsOf(l, "│┼")
		switch {
		case strings.Contains(l, "─┼─"):
			if n > 1 && !slices.Equal(columnsOf(lines[n-1], "│┼"), bars) {
				return fmt.Sprintf("the bars of line %d are not below those of its head", n)
			}
			head = bars
		case len(bars) == 0 || strings.HasPrefix(l, "│"):
			head = nil
		case head != nil && !slices.Equal(bars, head):
			return fmt.Sprintf("the bars of line %d are at %v and not at %v", n, bars, head)
		}
	}
	return ""
}

// columnsOf are the columns of some characters in a line.
func columnsOf(line, of string) (at []int) {
	for i, r := range line {
		if strings.ContainsRune(of, r) {
			at = append(at, ansi.StringWidthWc(line[:i]))
		}
	}
	return at
}

// An answer goes on in a terminal that becomes small, and large again, in the middle of it:
// each word is there once, in whole lines.
func TestChatResize(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h")
	model := newLoopback(t)
	services(t, home, model.env()...)
	agentOf(t, home)
	m := terminal(t, ctl(t, home, "", "chat a1"))
	m.at(200, 60)
	m.shows("> Say something to a1")
	m.typed("grow")
	const input = "> Say something to a1"
	count := func(what string, size [2]int, begun, ended int) {
		t.Helper()
		m.at(size[0], size[1])
		m.shows("you: grow\na1: begun", input)
		m.framed(what, size, input)
		screen := m.do("capture-pane", "-p")
		if b, e := strings.Count(screen, "begun"), strings.Count(screen, "ended"); b != begun || e != ended {
			t.Errorf("%s, %v: %d and %d words of %d and %d:\n%s", what, size, b, e, begun, ended, screen)
		}
	}
	for _, size := range [][2]int{{200, 60}, {80, 24}, {200, 60}, {80, 24}} {
		count("the middle of an answer", size, 60, 0)
	}
	close(model.goOn)
	m.shows("All.", "tokens in")
	for _, size := range [][2]int{{80, 24}, {200, 60}, {80, 24}} {
		count("the end of an answer", size, 60, 60)
	}
}

// What is shown can be read in a terminal of 16 colors, on a dark and on a light background,
// and without colors.
func TestChatColors(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h")
	services(t, home, newLoopback(t).env()...)
	agentOf(t, home)
	m := terminal(t, ctl(t, home, "", "chat a1"))
	m.at(80, 50)
	m.shows("> Say something to a1")
	m.typed("use a tool")
	m.shows("1 tool", "> Say something to a1")
	m.do("send-keys", "C-d")
	m.shows("exit=0")
	// Beyond the sixteen; blue on black; cyan, green, yellow and magenta on white.
	var (
		beyond  = regexp.MustCompile(`\x1b\[([0-9;]*[;])?([34]8[;:]|9[0-7]|10[0-7])[0-9;:]*m`)
		onBlack = regexp.MustCompile(`\x1b\[([0-9;]*;)?34(;[0-9;]*)?m`)
		onWhite = regexp.MustCompile(`\x1b\[([0-9;]*;)?3[2356](;[0-9;]*)?m`)
	)
	for _, c := range []struct {
		env, style string
		bad        *regexp.Regexp
		colored    bool
	}{
		{"TERM=xterm", "bg=black,fg=white", onBlack, true},
		{"TERM=xterm", "bg=white,fg=black", onWhite, true},
		{"TERM=screen", "default", onBlack, true},
		{"TERM=linux", "default", onBlack, true},
		{"TERM=xterm-256color NO_COLOR=1", "bg=white,fg=black", colours, false},
	} {
		m.do("set-option", "-g", "window-style", c.style)
		m.do("respawn-pane", "-k", ctl(t, home, c.env, "chat a1"))
		m.shows(" a1 · openai/scripted (environment)\n", "you: use a tool", "> Say something to a1")
		for _, text := range []string{"all of it", "use a tool"} {
			m.typed(text)
			m.shows("you: "+text, "tokens in", "> Say something to a1")
		}
		m.shows("Code\n  func main", "the page\n", "──┼──", "▸ exec", "1 tool")
		e := ""
		m.until(func() bool { // the background is known a moment later
			e = m.do("capture-pane", "-p", "-e")
			return !c.bad.MatchString(e) && colours.MatchString(e) == c.colored
		}, func() string { return fmt.Sprintf("%s on %s: %q", c.env, c.style, e) })
		if bad := beyond.FindString(e); bad != "" {
			t.Errorf("%s on %s: %q is beyond 16 colors", c.env, c.style, bad)
		}
		m.do("send-keys", "C-d")
		m.shows("exit=0")
	}
	m.do("set-option", "-g", "window-style", "default")
	m.do("respawn-pane", "-k", ctl(t, home, "TERM=dumb", "chat a1"))
	m.shows("model: openai/scripted (", "you:")
	m.typed("a list")
	m.shows("a1: 1. one", "you:")
	if e := m.do("capture-pane", "-p", "-e"); strings.Contains(e, "\x1b") {
		t.Errorf("TERM=dumb: an escape sequence: %q", e)
	}
}

// S3-48: a question of the agent is answered in the conversation, on the screen and for a screen
// reader.
func TestChatQuestion(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h")
	services(t, home)
	agentOf(t, home)
	for _, kv := range [][2]string{{"pai.provider", "offline"}, {"tools.also_allow", "[ask_user]"}} {
		if _, err := owner(t, home).Agents().SetAgentConfig(t.Context(), &registry.SetAgentConfigRequest{AgentId: "a1", Key: kv[0], Value: kv[1]}); err != nil {
			t.Fatal(err)
		}
	}
	const ask = `call: ask_user {"question":"Which account?","options":["main","savings"],"allow_text":false}`
	m := terminal(t, ctl(t, home, "", "chat a1"))
	m.at(100, 30)
	m.shows("> Say something")
	m.typed(ask)
	t.Log(m.shows("! a1 asks you:", "1. main", "2. savings", "waits for your answer", "Type 1 to 2, then Enter: Which account?", "> "))
	m.typed("neither")
	m.shows("the answer is none of the options")
	m.typed("2")
	m.shows("answered: savings", "a1: offline: ", "> Say something")
	m.hides("Type 1 to 2")

	plain := terminal(t, ctl(t, home, "", "chat a1 --plain"))
	plain.shows("you:")
	plain.typed(ask)
	plain.shows("a1 asks you: Which account?", "1 to 2:")
	plain.typed("neither")
	plain.shows("the answer is none of the options", "1 to 2:")
	plain.typed("main")
	t.Log(plain.shows("answered: main", "a1: offline: ", "you:"))
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
		// What became of the approval and the reply come on two streams, in either order.
		m.shows("approved, once: ")
		m.shows("a1: The tool has said it.")
		m.hides("Run it, once?")
		m.typed("use a tool")
		m.shows("Run it, once? y or n, then Enter: ")
		m.typed("n")
		m.shows("denied: ")
		m.shows("echo from-the-tool · failed", "a1: The tool has said it.", "> Say something")
		m.hides("Run it, once?")
		m.typed("/new")
		m.shows("New session: the next message begins it.", "> Say something")
	}

	// The same for a screen reader.
	plain := terminal(t, ctl(t, home, "", "chat a1 --plain"))
	plain.shows("model: openai/scripted (", "you:")
	plain.typed("use a tool")
	plain.shows("a1 asks whether it may run this, once (", "y or n:")
	plain.typed("y")
	t.Log(plain.shows("approved, once: ", "exec: ok\nfrom-the-tool", "a1: The tool has said it.", "you:"))
	if e := plain.do("capture-pane", "-p", "-e"); strings.Contains(e, "\x1b") {
		t.Errorf("an escape sequence: %q", e)
	}
	// The commands are those of the screen, also in the middle of a run.
	plain.typed("/he")
	plain.shows("there is no command /he; did you mean /help?")
	plain.typed("/abort")
	plain.shows("nothing is under way")
	plain.typed("hang")
	plain.typed("/status")
	plain.shows("you: hang", "a1 is started, 1 waiting in its inbox", "model: openai/scripted (")
	plain.typed("one more")
	plain.shows("sent after this run: one more")
	plain.typed("/new plans")
	plain.shows("a run is under way; wait for it, or /stop it first")
	plain.typed("/stop")
	plain.shows("a1 (not finished): this never ends", "aborted; what was done until then stands in 'agentctl explain a1", "you: one more", "a1: heard: one more", "you:")
	plain.typed("/explain")
	plain.shows("pushed by external:console:cli:dm:cli:cli", "you:")
	plain.typed("//etc")
	plain.shows("a1: heard: /etc", "you:")
	plain.typed("/new what now")
	plain.shows("New session: the next message begins it.", "you: what now", "a1: heard: what now", "you:")
	plain.typed("/think off")
	plain.shows("thinking: off, from the next message on, in this conversation", "you:")
	plain.typed("/usage")
	plain.shows("this session: 1 answer, ", "the conversation: ", "you:")
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
	c.Stdin = strings.NewReader("hello\n\nuse a tool\na list\n/memory\n/abort\n")
	var notes strings.Builder
	c.Stderr = &notes
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, notes.String())
	}
	want := "you: hello\na1: heard: hello\nyou: use a tool\na1 runs exec: echo from-the-tool\nexec: ok\nfrom-the-tool\n" +
		"a1: The tool has said it.\nyou: a list\na1: " + answers["a list"] + "\nyou: /memory\nyou: /abort\n"
	if string(out) != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
	if s := notes.String(); !strings.HasPrefix(s, "model: openai/scripted (") || !strings.HasSuffix(s, "\nthe memory is empty\nnothing is under way\n") {
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
