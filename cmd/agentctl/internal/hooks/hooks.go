// Package hooks implements the command `agentctl hooks`: it lists the programs that are called at
// events, and runs one with an event that has not happened.
//
// A test runs the program as an event would, in the sandbox of a runner; what it answers changes
// nothing.
package hooks

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/hook"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// shown is a hook for programs.
type shown struct {
	Name      string   `json:"name"`
	Events    []string `json:"events"`
	Match     string   `json:"match"`
	Transport string   `json:"transport"`
	State     string   `json:"state"`
	Priority  int      `json:"priority"`
	Timeout   string   `json:"timeout"`
	OnFailure string   `json:"on_failure,omitempty"`
	SetIn     string   `json:"set_in"`
}

func of(h hook.Hook) shown {
	var match []string
	for _, m := range []struct {
		of    string
		globs []string
	}{{"agents", h.Match.Agents}, {"sessions", h.Match.Sessions}, {"channels", h.Match.Channels}} {
		if len(m.globs) > 0 {
			match = append(match, m.of+" "+strings.Join(m.globs, ","))
		}
	}
	out := shown{
		Name: h.Name, Events: h.Events, Match: cmp.Or(strings.Join(match, "; "), "all"), Transport: "command " + strings.Join(h.Command, " "),
		State: "enabled", Priority: h.Priority, Timeout: h.Timeout.String(), OnFailure: h.OnFailure, SetIn: "config.yaml",
	}
	if h.OfHome {
		out.SetIn = "theclaw.yaml"
	}
	return out
}

// Command returns the command hooks.
func Command(e *command.Env) *cobra.Command {
	return command.Group(e, &cobra.Command{
		Use:   "hooks",
		Short: "Show and test the programs that are called at events",
		Long: `Show and test the programs that are called at events, such as before a message is sent. They
are set by hooks in theclaw.yaml and config.yaml: 'agentctl config explain hooks'.`,
		Example: `  agentctl hooks list
  agentctl hooks test no-links --text "see https://example.org"`,
	}, listCommand(e), testCommand(e))
}

func listCommand(e *command.Env) *cobra.Command {
	var agent string
	c := &cobra.Command{
		Use:   "list",
		Short: "List the hooks of the home, or of an agent",
		Example: `  agentctl hooks list
  agentctl hooks list --agent alice`,
		RunE: func(c *cobra.Command, _ []string) error {
			r, err := e.Homes().ListHooks(c.Context(), &registry.ListHooksRequest{AgentId: agent})
			if err != nil {
				return err
			}
			out := []shown{}
			for _, h := range hook.FromProto(r.GetHooks()) {
				out = append(out, of(h))
			}
			t := screen.NewTable(e, "name", "events", "match", "transport", "state").Drop("match")
			return screen.List(t.None("no hooks"), out, func(h shown) []any {
				return []any{h.Name, strings.Join(h.Events, " "), h.Match, h.Transport, h.State}
			})
		},
	}
	command.AgentFlag(c, &agent, "the hooks that are in force for this agent")
	return c
}

// result is the outcome of a test.
type result struct {
	Hook     string  `json:"hook"`
	Event    string  `json:"event"`
	Decision string  `json:"decision"` // pass, cancel or change
	Reason   string  `json:"reason,omitempty"`
	Text     *string `json:"text,omitempty"`
	Millis   int64   `json:"ms"`
}

func testCommand(e *command.Env) *cobra.Command {
	var agent, event, text string
	c := &cobra.Command{
		Use:   "test HOOK",
		Short: "Run a hook with a sample event and print what it decides",
		Example: `  agentctl hooks test no-links --text "see https://example.org"
  agentctl hooks test no-links --agent alice --event message_sent`,
		Args: command.Args("HOOK"),
		RunE: func(c *cobra.Command, args []string) error {
			r, err := e.Homes().ListHooks(c.Context(), &registry.ListHooksRequest{AgentId: agent})
			if err != nil {
				return err
			}
			list := hook.FromProto(r.GetHooks())
			n := slices.IndexFunc(list, func(h hook.Hook) bool { return h.Name == args[0] })
			if n < 0 {
				return fault.New(codes.InvalidArgument, fault.HookInvalid, fmt.Sprintf("there is no hook %.64q", args[0]), "'agentctl hooks list' shows the hooks; --agent names the agent whose config.yaml has it")
			}
			name := cmp.Or(event, list[n].Events[0])
			if !list[n].IsFor(name) {
				return fault.New(codes.InvalidArgument, fault.HookInvalid, fmt.Sprintf("the hook %s is not called at %.64q", args[0], name), "it is called at "+strings.Join(list[n].Events, ", "))
			}
			input, err := json.Marshal(sample(name, agent, text))
			if err != nil {
				return err
			}
			began := time.Now()
			got, err := e.RunnerService().RunHook(c.Context(), &runner.RunHookRequest{AgentId: agent, Hook: args[0], Event: name, Input: string(input)})
			if err != nil {
				return err
			}
			a, err := hook.Read(name, got)
			if err != nil {
				return fault.New(codes.Unavailable, fault.HookFailed, fmt.Sprintf("hook %s failed: %s", args[0], screen.Line(err.Error())), "correct the program, and test it again")
			}
			out := result{Hook: args[0], Event: name, Decision: "pass", Reason: a.Reason, Text: a.Text, Millis: time.Since(began).Milliseconds()}
			switch {
			case a.Cancel:
				out.Decision = "cancel"
			case a.Text != nil:
				out.Decision = "change"
			}
			return e.Show(out, args[0], "%s at %s: %s (%d ms)", args[0], name, words(out), out.Millis)
		},
	}
	command.AgentFlag(c, &agent, "the agent of the event")
	command.TextFlag(c.Flags(), &event, "event", command.Name, "the event; by default the first one of the hook")
	command.TextFlag(c.Flags(), &text, "text", command.Content, "the text of the message")
	return c
}

// words are a decision for people.
func words(r result) string {
	switch {
	case r.Decision == "cancel":
		return strings.TrimSuffix("cancels: "+screen.Line(r.Reason), ": ")
	case r.Text != nil:
		return "changes the text to " + screen.Line(*r.Text)
	}
	return "lets it pass"
}

// sample is an event that has not happened.
func sample(name, agent, text string) map[string]any {
	payload := map[string]any{}
	switch {
	case strings.HasPrefix(name, "message_"):
		payload = map[string]any{"account": "test", "peer": "test", "text": text}
	case strings.HasPrefix(name, hook.Command):
		payload = map[string]any{"name": cmp.Or(strings.TrimPrefix(strings.TrimPrefix(name, hook.Command), ":"), "model"), "args": text}
	case strings.HasPrefix(name, "session_"):
		payload = map[string]any{"session_id": "test", "reason": "new"}
	}
	return map[string]any{
		"event": name, "id": "test:" + name, "agent": agent, "session_key": "", "run_id": "", "source": "test", "at": time.Now().UTC().Format(time.RFC3339), "payload": payload,
	}
}
