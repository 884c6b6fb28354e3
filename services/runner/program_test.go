package runner_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/toolpolicy"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/model/modeltest"
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

// Two calls of class read of one answer that are both asked for wait one after the other: each runs with its approval.
func TestProgramToolsAsk(t *testing.T) {
	w := newWorld(t)
	const settings = `tools:
  programs:
    look_up: {argv: [/bin/echo, found, '{word}'], description: Looks a word up., schema: {properties: {word: {type: string}}}, network: open, class: read}
`
	if err := os.WriteFile(filepath.Join(w.home.Path(), "theclaw.yaml"), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	w.agent("a1", "tools: {profile: coding, exec: {security: full, ask: always}}\nrun: {timeout: 20s}\noutbound: []")
	approvals := registrypb.NewApprovalServiceClient(w.conn)
	watch, err := approvals.WatchApprovals(t.Context(), &registrypb.WatchApprovalsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	script := modeltest.New(t, modeltest.Step{ToolCalls: []modeltest.ToolCall{
		{ID: "c1", Name: "look_up", Arguments: []string{`{"word":"one"}`}}, {ID: "c2", Name: "look_up", Arguments: []string{`{"word":"two"}`}},
	}}, modeltest.Say("both"))
	r := w.runner(script)
	run := w.say(r, "a1", "look them up")
	for n := 0; n < 2; {
		m, err := watch.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if m.GetApproval().GetState() != registrypb.ApprovalState_APPROVAL_STATE_PENDING {
			continue
		}
		if _, err := approvals.ResolveApproval(t.Context(), &registrypb.ResolveApprovalRequest{ApprovalId: m.GetApproval().GetApprovalId(), Approve: true}); err != nil {
			t.Fatal(err)
		}
		n++
	}
	if end := w.wait(r, "a1", run); end.GetText() != "both" {
		t.Fatalf("ended %v", end)
	}
	asked := script.Requests()
	said := ""
	for _, m := range asked[len(asked)-1].Chat.Messages {
		said += m.Content + "\n"
	}
	if !strings.Contains(said, "found one") || !strings.Contains(said, "found two") {
		t.Errorf("the model read %s", said)
	}
}
