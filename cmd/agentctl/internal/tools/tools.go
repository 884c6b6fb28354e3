// Package tools implements the commands `agentctl tools` and `agentctl sandbox`: which tools the model
// of an agent has in a conversation, why another one is not offered, and where the programs run.
//
// The runner decides, by the code that decides for a turn. The commands show its answer and
// change nothing.
package tools

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/toolpolicy"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// entry is a tool for programs.
type entry struct {
	Name        string          `json:"name"`
	PolicyName  string          `json:"policy_name"`
	Class       string          `json:"class"`
	Sends       string          `json:"sends"`
	Offered     bool            `json:"offered"`
	Denied      string          `json:"denied"`
	AllowedBy   []string        `json:"allowed_by"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"`
}

// Commands answers the commands tools and sandbox.
func Commands(e *command.Env) []*cobra.Command {
	return []*cobra.Command{toolsCommand(e), sandboxCommand(e)}
}

func toolsCommand(e *command.Env) *cobra.Command {
	return command.Group(e, &cobra.Command{
		Use:   "tools",
		Short: "Show which tools an agent has, and why",
		Example: `  agentctl tools list alice
  agentctl tools explain alice web_fetch`,
	}, listCommand(e), explainCommand(e))
}

// session adds the flag that names a conversation.
func session(c *cobra.Command, to *string) *cobra.Command {
	command.TextFlag(c.Flags(), to, "session", command.AnySession, "key of the conversation, as 'agentctl sessions list' shows it; without it, the main one of the agent")
	return c
}

func listCommand(e *command.Env) *cobra.Command {
	var all bool
	var key string
	c := &cobra.Command{
		Use:   "list ID",
		Short: "List the tools that the model of an agent has",
		Long: `List the tools that the model of an agent has in the next turn of a conversation. CLASS decides what happens
to a call that a crash interrupts: read and idempotent calls are made again, an effect is
not; a tool that has several is listed with that of a call without arguments. SENDS is how
a tool can send data out: to the peer of the conversation, over the network, or as a
program that has the network.`,
		Example: `  agentctl tools list alice
  agentctl tools list alice --session agent:alice:telegram:group:-100
  agentctl tools list alice --all --json`,
		RunE: func(c *cobra.Command, args []string) error {
			r, err := list(c, e, args[0], key)
			if err != nil {
				return err
			}
			entries := []entry{}
			for _, t := range r.GetTools() {
				if all || t.GetDenied() == "" {
					entries = append(entries, entryOf(t))
				}
			}
			t := screen.NewTable(e, "name", "class", "sends", "what").Wide("what")
			if all {
				t = screen.NewTable(e, "name", "class", "sends", "denied")
			}
			t.Then(func() {
				containerNote(e, r.GetSandbox())
				if hidden := len(r.GetTools()) - len(entries); hidden > 0 {
					e.Note("%d more are denied; 'agentctl tools list %s --all' shows them", hidden, args[0])
				}
			})
			return screen.List(t, entries, func(t entry) []any {
				last := t.Description
				if all {
					last = cmp.Or(t.Denied, "-")
				}
				return []any{t.Name, t.Class, cmp.Or(t.Sends, "-"), screen.Line(last)}
			})
		},
	}
	c.Flags().BoolVar(&all, "all", false, "also the tools that are denied, with the layer that denies them")
	return session(c, &key)
}

func explainCommand(e *command.Env) *cobra.Command {
	var key string
	c := &cobra.Command{
		Use:   "explain ID TOOL",
		Short: "Show why an agent has a tool or not",
		Long: `Show why an agent has a tool or not: every layer that exists must allow it. The layers are

  1 profile         tools.profile and tools.also_allow
  2 by provider     the profile of tools.by_provider, for the model
  3 home            tools.allow and tools.deny of theclaw.yaml
  4 by provider     tools.by_provider of theclaw.yaml
  5 agent           tools.allow and tools.deny of the agent
  6 by provider     tools.by_provider of the agent
  7 conversation    channels.ACCOUNT.tools, by the kind of conversation
  8 sandbox         tools.sandbox.tools, for conversations in the sandbox`,
		Example: `  agentctl tools explain alice bash_exec
  agentctl tools explain alice web_fetch --session agent:alice:telegram:group:-100`,
		RunE: func(c *cobra.Command, args []string) error {
			r, err := list(c, e, args[0], key)
			if err != nil {
				return err
			}
			name := toolpolicy.Canonical(args[1])
			i := slices.IndexFunc(r.GetTools(), func(t *runner.Tool) bool { return t.GetPolicyName() == name })
			if i < 0 {
				return unknown(r, args)
			}
			t := entryOf(r.GetTools()[i])
			what := "allowed by all layers: " + strings.Join(r.GetLayers(), ", ")
			if !t.Offered {
				what = t.Denied
				if len(t.AllowedBy) > 0 {
					what += "; allowed by " + strings.Join(t.AllowedBy, ", ")
				}
			}
			containerNote(e, r.GetSandbox())
			return e.Show(t, t.Name, "%s   %s", screen.Line(t.Name), screen.Line(what))
		},
	}
	return session(c, &key)
}

// containerNote notes that programs run in a container of docker.
func containerNote(e *command.Env, s *runner.SandboxInfo) {
	if s.GetLevel() == "docker" {
		e.Note("programs run in a container (driver docker); see 'agentctl sandbox explain'")
	}
}

// list asks the runner for the tools of an agent in a conversation, and for the sandbox in which they work.
func list(c *cobra.Command, e *command.Env, id, key string) (*runner.ListToolsResponse, error) {
	return runner.NewToolServiceClient(e.Conn(command.Runner)).ListTools(c.Context(), &runner.ListToolsRequest{AgentId: id, SessionKey: key})
}

func entryOf(t *runner.Tool) entry {
	return entry{
		Name: t.GetName(), PolicyName: t.GetPolicyName(), Class: t.GetClass(), Sends: t.GetSends(),
		Offered: t.GetDenied() == "", Denied: t.GetDenied(), AllowedBy: append([]string{}, t.GetAllowedBy()...), Description: t.GetDescription(), Schema: json.RawMessage(t.GetSchema()),
	}
}

// unknown is the error for a tool that the runner does not have.
func unknown(r *runner.ListToolsResponse, args []string) error {
	var names []string
	for _, t := range r.GetTools() {
		names = append(names, t.GetName())
	}
	fix := fmt.Sprintf("'agentctl tools list %s --all' shows all", args[0])
	if add := toolpolicy.ServerCommand(args[1]); add != "" && !slices.ContainsFunc(r.GetTools(), func(t *runner.Tool) bool { return t.GetServer() == toolpolicy.BrowserServer }) {
		return fault.New(codes.NotFound, fault.ToolNotFound, fmt.Sprintf("the tool %.80q is not available", args[1]), fmt.Sprintf("'%s' adds a browser", add))
	}
	if near := config.Nearest(args[1], names); near != "" {
		fix = fmt.Sprintf("did you mean %q? %s", near, fix)
	}
	return fault.New(codes.NotFound, fault.ToolNotFound, fmt.Sprintf("there is no tool %.80q", args[1]), fix)
}
