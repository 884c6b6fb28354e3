package setting

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/layer"
)

// run runs `config explain` and returns what it prints and its exit code.
func run(t *testing.T, args ...string) (out, errs string, code int) {
	t.Helper()
	var o, e bytes.Buffer
	env := command.New(strings.NewReader(""), &o, &e, func(string) string { return "" }, "v")
	root := &cobra.Command{Use: "agentctl"}
	command.Prepare(root, env)
	root.PersistentFlags().BoolVar(&env.Flags.JSON, "json", false, "")
	root.AddCommand(configCommand(env))
	code = command.Run(env, root, append([]string{"config", "explain"}, args...))
	return o.String(), e.String(), code
}

// Every key is listed and explained, without a service and without a home.
func TestExplain(t *testing.T) {
	list, _, code := run(t)
	if code != 0 {
		t.Fatalf("exit %d", code)
	}
	for _, s := range config.Settings() {
		if !strings.Contains(list, "\n"+s.Key+" ") {
			t.Errorf("%s is not listed", s.Key)
		}
		out, errs, code := run(t, s.Key)
		if code != 0 || errs != "" || !strings.HasPrefix(out, s.Key+"\n  ") || s.Limits != "" && !strings.Contains(out, s.Limits) {
			t.Errorf("%s: exit %d, %s\n%s", s.Key, code, errs, out)
		}
		for line := range strings.Lines(out) {
			if strings.TrimRight(line, " \n") != strings.TrimSuffix(line, "\n") {
				t.Errorf("%s: blanks at the end of %q", s.Key, line)
			}
		}
		out, _, _ = run(t, s.Key, "--json")
		var got []explained
		if err := json.Unmarshal([]byte(out), &got); err != nil || len(got) == 0 || got[0].Key != s.Key || got[0].Meaning != s.Meaning || got[0].Effect != string(s.Effect) {
			t.Errorf("%s --json: %v\n%s", s.Key, err, out)
		}
	}
}

func TestExplainNothing(t *testing.T) {
	for key, want := range map[string]string{
		"run.concurency": "did you mean run.concurrency?",
		"sandbx":         "did you mean sandbox?",
		"nothing.such":   "'agentctl config explain' lists all of them",
		"":               "the argument KEY is empty",
	} {
		out, errs, code := run(t, key)
		if code != 2 || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%q: exit %d, %q, %q; want %s", key, code, out, errs, want)
		}
	}
}

// What is shown as a line of theclaw.yaml can be pasted into it.
func TestExamplesOfHome(t *testing.T) {
	n := 0
	for _, s := range config.Settings() {
		if s.Agent {
			continue
		}
		n++
		if err := layer.CheckHome(layer.File{Name: "theclaw.yaml", Data: []byte(example(s) + "\n")}); err != nil {
			t.Errorf("%s: %v", s.Key, err)
		}
	}
	if n < 20 {
		t.Errorf("only %d keys of theclaw.yaml", n)
	}
}

// What is shown as a command works: after the channel it names was made.
func TestExamplesOfAgent(t *testing.T) {
	const file = "agent_id: alice\nchannels:\n  hook: {type: webhook, url: 'https://example.org/'}\n"
	for _, s := range config.Settings() {
		key := strings.ReplaceAll(s.Key, config.ChannelName, "hook")
		if line := example(s); !s.Agent || !strings.HasPrefix(line, "agentctl config set alice "+key+" ") {
			if s.Agent && line != "" {
				t.Errorf("%s: %s", s.Key, line)
			}
			continue
		}
		in := layer.Layers{AgentID: "alice", Agent: layer.File{Name: "config.yaml", Data: []byte(file)}}
		if _, err := layer.Set(in, key, s.Example); err != nil {
			t.Errorf("%s: %v", s.Key, err)
		}
	}
}

func TestCompletion(t *testing.T) {
	env := command.New(strings.NewReader(""), nil, nil, func(string) string { return "" }, "v")
	for _, c := range []struct {
		command, typed, want string
		args                 []string
	}{
		{"get", "sandbox.docker.p", "sandbox.docker.prune.idle sandbox.docker.prune.max_age", []string{"alice"}},
		{"set", "agent", "", []string{"alice"}},
		{"get", "agent", "agent_id", []string{"alice"}},
		{"set", "cha", "", []string{"alice"}},
		{"set", "", "true false auto", []string{"alice", "on_error.notify_peer"}},
		{"set", "re", "required reduced", []string{"alice", "sandbox.mode"}},
		{"set", "", "", []string{"alice", "run.concurrency"}},
		{"set", "", "webhook", []string{"alice", "channels.hook.type"}},
		{"get", "", "", []string{"alice", "sandbox.mode"}},
	} {
		got, directive := completeSetting(env)(&cobra.Command{Use: c.command}, c.args, c.typed)
		for i, g := range got {
			got[i], _, _ = strings.Cut(g, "\t")
		}
		if strings.Join(got, " ") != c.want || directive != cobra.ShellCompDirectiveNoFileComp {
			t.Errorf("%s %v %q: %q, %d; want %s", c.command, c.args, c.typed, got, directive, c.want)
		}
	}
}
