//go:build proof

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// providerNames are the names that --provider takes on every machine.
var providerNames = []string{"claude", "anthropic", "openai", "gemini", "google", "deepseek", "kimi", "moonshot", "minimax", "qwen", "dashscope", "ollama"}

// named runs agentctl under other names, in a home.
func named(t *testing.T, home string) func(in, name string, args ...string) outcome {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"ac", "agentclaw"} {
		must(t, os.Symlink(filepath.Join(built(t), "agentctl"), filepath.Join(dir, name)))
	}
	return func(in, name string, args ...string) outcome {
		t.Helper()
		c := exec.Command(filepath.Join(dir, name), args...)
		c.Env = []string{"THECLAW_HOME=" + home, "HOME=" + home, "PATH=" + os.Getenv("PATH")}
		c.Stdin = strings.NewReader(in)
		var out, errs bytes.Buffer
		c.Stdout, c.Stderr = &out, &errs
		_ = c.Run()
		return outcome{c.ProcessState.ExitCode(), out.String(), errs.String()}
	}
}

// S3-71, S3-76: ac and agentclaw are 'agentctl chat': replies alone are on standard output; exit
// and quit end the conversation; help and version are there; the shell completes agents.
func TestOtherNames(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h")
	services(t, home)
	agentOf(t, home)
	run := named(t, home)
	for _, c := range []struct {
		in, out string
		name    string
		args    []string
	}{
		{"hello\nquit\nmore\n", "offline: hello\n", "ac", []string{"a1"}},
		{"hello\n\n exit \nmore\n", "offline: hello\n", "agentclaw", []string{"a1"}},
		{"hello\nquit\nmore\n", "offline: hello\n", "ac", nil}, // the default agent
		{"", version + "\n", "ac", []string{"--version"}},
		{"", version + "\n", "agentclaw", []string{"-v"}},
		{"", "a1\n:4\n", "ac", []string{cobra.ShellCompRequestCmd, "a"}},
	} {
		if o := run(c.in, c.name, c.args...); o.code != 0 || o.out != c.out || strings.Contains(o.err, "offline:") {
			t.Errorf("%s %q: %+v", c.name, c.args, o)
		}
	}
	if o := run("", "ac", "--help"); o.code != 0 || o.out != run("", "agentclaw", "-h").out || !strings.Contains(o.out, "agentctl chat [ID]") {
		t.Errorf("help: %+v", o)
	}
	if o := run("hello\nquit\n", "ac", "a1", "--plain"); o.code != 0 || o.out != "you: hello\na1: offline: hello\nyou: quit\n" {
		t.Errorf("--plain: %+v", o)
	}
	// With --json programs write the lines.
	if o := run("quit\n", "ac", "a1", "--json"); o.code != 0 || !strings.Contains(o.out, `"reply":"offline: quit"`) {
		t.Errorf("--json: %+v", o)
	}
	if o := run("", "ac", "a1", "a2"); o.code != 2 || o.out != "" {
		t.Errorf("two agents: %+v", o)
	}
	if o := run("", "ac", "nosuch"); o.code != 1 || o.out != "" {
		t.Errorf("an agent that is not there: %+v", o)
	}
}

// S3-71: at a terminal whose output goes elsewhere, what asks for input is on standard error.
func TestPromptIsOnStandardError(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h")
	services(t, home)
	agentOf(t, home)
	for flag, want := range map[string]string{"": "offline: hello\n", "--plain": "you: hello\na1: offline: hello\nyou: exit\n"} {
		out := filepath.Join(t.TempDir(), "out")
		m := terminal(t, ctl(t, home, "", "chat a1 "+flag+" >"+out))
		m.shows("you:")
		m.do("send-keys", "hello", "Enter")
		m.shows("you: hello", "you:")
		m.do("send-keys", "exit", "Enter")
		m.shows("you: hello", "you: exit", "exit=0")
		if b, err := os.ReadFile(out); err != nil || string(b) != want {
			t.Errorf("chat %s: %q, %v", flag, b, err)
		}
	}
}

// S3-75: --provider changes the model of the conversation, and of nothing else. A name that is
// not known is an error of usage with the names that are; one without a key names the variable.
func TestChatProvider(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h")
	m := newModel(t, "sk-good-0123456789abcdef")
	must(t, os.Mkdir(home, 0o700))
	must(t, os.WriteFile(filepath.Join(home, "providers.yaml"), []byte("default: offline\nproviders: {claude: {api: openai, base_url: '"+m.url+"', api_key: 'env:MY_KEY', models: [m1, m2]}, bare: {base_url: '"+m.url+"'}}\n"), 0o600))
	services(t, home, "MY_KEY="+m.key)
	agentOf(t, home)
	run := named(t, home)
	o := run("hello\n", "ac", "a1", "--provider", "nope")
	if o.code != 2 || o.out != "" || !strings.Contains(o.err, `"nope"`) {
		t.Errorf("%+v", o)
	}
	for _, name := range providerNames {
		if !strings.Contains(o.err, name) {
			t.Errorf("%s is not offered: %s", name, o.err)
		}
	}
	for name, want := range map[string]string{"google": "GEMINI_API_KEY", "kimi": "MOONSHOT_API_KEY", "bare": "no default model"} {
		if o := run("hello\n", "ac", "a1", "--provider", name); o.code != 1 || o.out != "" || !strings.Contains(o.err, want) {
			t.Errorf("%s: %+v", name, o)
		}
	}
	settings := []string{filepath.Join(home, "providers.yaml"), filepath.Join(home, "agents", "a1", "config.yaml")}
	var before []string
	for _, path := range settings {
		b, err := os.ReadFile(path)
		must(t, err)
		before = append(before, string(b))
	}
	if o := run("hello\n", "ac", "a1", "--provider", "anthropic"); o.code != 0 || o.out != "hello from m1\n" || !strings.Contains(o.err, "model: claude/m1, from the next message on, in this conversation") {
		t.Errorf("%+v", o)
	}
	if o := run("again\n", "ac", "a1"); o.out != "hello from m1\n" {
		t.Errorf("the next time: %+v", o)
	}
	if o := run("hello\n", "ac", "a1", "--thread", "other"); o.out != "offline: hello\n" {
		t.Errorf("another conversation: %+v", o)
	}
	e := owner(t, home)
	s, err := e.Sessions().GetSession(t.Context(), &registry.GetSessionRequest{AgentId: "a1", Key: aKey})
	if err != nil || s.GetSession().GetOverrides().GetModel() != "claude/m1" {
		t.Errorf("%v, %v", s, err)
	}
	for i, path := range settings {
		if b, err := os.ReadFile(path); err != nil || string(b) != before[i] {
			t.Errorf("%s has changed: %v", path, err)
		}
	}
	if o := run("/model default\nhello\n", "ac", "a1", "--plain"); !strings.Contains(o.out, "a1: offline: hello\n") {
		t.Errorf("back: %+v", o)
	}
}
