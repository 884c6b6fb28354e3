package runner_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/toolpolicy"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// S3-58, S4-66: programs of the home are tools, called without a shell, under the lists of the settings; one with the
// network of the host is decided on by the policy for commands.
func TestProgramTools(t *testing.T) {
	w := newWorld(t)
	const settings = `tools:
  programs:
    print_words: {argv: [/usr/bin/printf, '%s|', '{word}', end], description: Prints words., schema: {properties: {word: {type: array, items: {type: string}}}}}
    read_input: {argv: [/bin/cat], description: Prints its input., input: stdin, schema: {properties: {a: {type: integer}}, required: [a]}, class: read}
    open_network: {argv: [/bin/echo, ran], description: Has the network., network: open}
    with_hosts: {argv: [/bin/echo], description: Reaches a host., network: [example.org]}
`
	if err := os.WriteFile(filepath.Join(w.home.Path(), "theclaw.yaml"), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	w.agent("a1", "tools: {profile: coding, deny: [with_hosts], exec: {security: deny}}\noutbound: []")
	c := &coder{world: w, shop: w.runner(nil)}
	for call, want := range map[string]string{
		`print_words {"word":["a b","$(id)","'; exit 1"]}`: "answered:\na b|$(id)|'; exit 1|end|",
		`print_words {}`:              "answered:\nend|",
		`print_words {"word":["-x"]}`: "word must not begin with -",
		`print_words {"other":1}`:     "other is not an argument of this tool",
		`read_input {"a":1}`:          "answered:\n{\"a\":1}",
		`read_input {"a":"1"}`:        "a must be of type integer",
		`open_network {}`:             "commands that leave the sandbox are refused (security deny)",
		`with_hosts {}`:               "the tool with_hosts is not offered",
	} {
		if text := c.call(call); !strings.Contains(text, want) {
			t.Errorf("%s: %s, want %s", call, text, want)
		}
	}
	r, err := c.shop.ListTools(t.Context(), &runnerpb.ListToolsRequest{AgentId: "a1"})
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]string{}
	for _, tool := range r.GetTools() {
		shown[tool.GetName()] = tool.GetClass() + " " + tool.GetSends()
		if program := strings.Contains(settings, " "+tool.GetName()+":"); !program && !toolpolicy.Builtin(tool.GetName()) {
			t.Errorf("%s is built in, and a program of the home may have its name", tool.GetName())
		}
	}
	for name, want := range map[string]string{"print_words": "effect ", "read_input": "read ", "open_network": "effect network", "with_hosts": "effect network"} {
		if shown[name] != want {
			t.Errorf("%s is shown as %q, want %q", name, shown[name], want)
		}
	}
}
