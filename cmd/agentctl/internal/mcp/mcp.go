// Package mcp implements the command `agentctl mcp`: it adds MCP servers to the settings of the home, shows their tools
// and what of them is approved, and approves or denies tools.
//
// The registry keeps settings and approvals, and the runner starts servers. What is approved is what was shown: an
// approval names the list that was read before, and the registry refuses it when the server has reported other tools
// since.
package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/fault"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// startTimeout bounds the start of a server, which may download a program, unless --timeout says otherwise.
const startTimeout = 2 * time.Minute

// Command answers the command mcp.
func Command(e *command.Env) *cobra.Command {
	return command.Group(e, &cobra.Command{
		Use:   "mcp",
		Short: "Add MCP servers, and approve their tools",
		Long: `Add MCP servers, and approve their tools. A model has a tool of a server when the owner has
approved it, as it was shown: a server that changes the description or the schema of a tool
loses that tool until it is approved again.`,
		Example: `  agentctl mcp add github --agent alice --env TOKEN=env:GH_TOKEN --network api.github.com -- github-mcp-server stdio
  agentctl mcp list
  agentctl mcp approve github`,
	}, addCommand(e), listCommand(e), resolveCommand(e, true), resolveCommand(e, false), diffCommand(e), startCommand(e, "test"), startCommand(e, "restart"), removeCommand(e))
}

// tool is a tool of a server for programs.
type tool struct {
	Server   string          `json:"server"`
	Tool     string          `json:"tool"`
	Class    string          `json:"class"`
	State    string          `json:"state"`
	By       string          `json:"by,omitempty"`
	At       *time.Time      `json:"at,omitempty"`
	Reported json.RawMessage `json:"reported,omitempty"`
	Approved json.RawMessage `json:"approved,omitempty"`
}

// The states of a tool.
const (
	stateNew      = "new"
	stateChanged  = "changed"
	stateApproved = "approved"
	stateGone     = "gone"
)

func toolOf(p *registry.Pin) tool {
	t := tool{
		Server: p.GetServer(), Tool: p.GetTool(), Class: p.GetClass(), State: command.Word(p.GetState(), "PIN_STATE_", "unspecified"), By: p.GetBy(),
		Reported: json.RawMessage(p.GetReported()), Approved: json.RawMessage(p.GetApproved()),
	}
	if p.GetAt() != nil {
		at := p.GetAt().AsTime()
		t.At = &at
	}
	return t
}

// waits reports whether the owner has not decided on the tool as it is.
func (t tool) waits() bool { return t.State == stateNew || t.State == stateChanged }

// name is the name by which policies know the tool, where it has no other characters than these.
func (t tool) name() string { return t.Server + "__" + t.Tool }

// what is the first line of the description.
func (t tool) what() string {
	var d struct{ Description string }
	_ = json.Unmarshal(t.Reported, &d) // empty: the server gave none
	line, _, _ := strings.Cut(strings.TrimSpace(d.Description), "\n")
	return line
}

func toolsOf(pins []*registry.Pin) []tool {
	out := []tool{}
	for _, p := range pins {
		out = append(out, toolOf(p))
	}
	return out
}

func toolTable(e *command.Env, tools []tool) error {
	t := screen.NewTable(e, "class", "tool", "state", "what").Names(1).Drop("class").None("no tools")
	return screen.List(t, tools, func(t tool) []any { return []any{t.Class, t.name(), t.State, t.what()} })
}

// pins lists the tools of a server with the digest by which they are approved.
func pins(ctx context.Context, e *command.Env, server string) ([]tool, string, error) {
	r, err := e.Pins().ListPins(ctx, &registry.ListPinsRequest{Server: server})
	return toolsOf(r.GetPins()), r.GetDigest(), err
}

// problem is the first problem of settings, without its place.
func problem(err error) string {
	if e, ok := errors.AsType[*layer.Error](err); ok && len(e.Problems) > 0 {
		return e.Problems[0].Text
	}
	return err.Error()
}

// server finds a server in the settings.
func server(s layer.HomeSettings, name string) (layer.Server, error) {
	var names []string
	for _, one := range s.Servers {
		if one.Name == name {
			return one, nil
		}
		names = append(names, one.Name)
	}
	fix := "'agentctl mcp list' shows the servers"
	if near := config.Nearest(name, names); near != "" {
		fix = fmt.Sprintf("did you mean %q? %s", near, fix)
	}
	return layer.Server{}, fault.New(codes.NotFound, fault.McpServerNotFound, fmt.Sprintf("the settings have no MCP server %s", name), fix)
}

// start starts a server for an agent; the error is why it does not run.
func start(c *cobra.Command, e *command.Env, agent, name string, again bool) (*runner.Server, error) {
	ctx, cancel := c.Context(), context.CancelFunc(func() {})
	if !c.Flags().Changed("timeout") {
		ctx, cancel = context.WithTimeout(ctx, startTimeout)
	}
	defer cancel()
	r, err := runner.NewToolServiceClient(e.Conn(command.Runner)).StartServer(ctx, &runner.StartServerRequest{AgentId: agent, Server: name, Restart: again})
	if err != nil {
		return nil, err
	}
	s := r.GetServer()
	what := screen.Line(s.GetWhat())
	switch s.GetState() {
	case runner.ServerState_SERVER_STATE_UP:
		return s, nil
	case runner.ServerState_SERVER_STATE_AUTH:
		return nil, fault.New(codes.FailedPrecondition, fault.McpAuth, fmt.Sprintf("the MCP server %s refuses its credentials: %s", name, what),
			fmt.Sprintf("correct the reference in its env or headers, then run 'agentctl mcp restart %s --agent %s'", name, agent))
	}
	return nil, fault.New(codes.Unavailable, fault.McpUnavailable, fmt.Sprintf("the MCP server %s does not run: %s", name, what),
		fmt.Sprintf("correct its command or its settings, then run 'agentctl mcp test %s --agent %s'", name, agent))
}

func startCommand(e *command.Env, verb string) *cobra.Command {
	short, long := "Start a server and show its tools", `Start a server for an agent, unless it runs, and show the tools that it offers. What it
offers is reported to the registry; nothing is approved.`
	if verb == "restart" {
		short, long = "End a server and start it again", `End a server of an agent and start it again, also one that has refused its credentials.
A call that it works on fails.`
	}
	var agent string
	c := &cobra.Command{
		Use: verb + " SERVER", Short: short, Long: long,
		Example: "  agentctl mcp " + verb + " github --agent alice",
		RunE: func(c *cobra.Command, args []string) error {
			s, err := e.HomeSettings(c.Context())
			if err != nil {
				return err
			}
			one, err := server(s, args[0])
			if err != nil {
				return err
			}
			if agent == "" {
				agent, err = e.DefaultAgent(c.Context())
			} else {
				err = e.MustExist(c.Context(), agent)
			}
			if err != nil {
				return err
			}
			running, err := start(c, e, agent, args[0], verb == "restart")
			if err != nil {
				return err
			}
			tools, _, err := pins(c.Context(), e, args[0])
			if err != nil {
				return err
			}
			tools = slices.DeleteFunc(tools, func(t tool) bool { return t.State == stateGone })
			e.Note("%s", headline(one, running, len(tools)))
			return toolTable(e, tools)
		},
	}
	command.AgentFlag(c, &agent, "agent for which it is started (default: the default agent)")
	return c
}

// headline describes a server that runs.
func headline(s layer.Server, running *runner.Server, tools int) string {
	out := fmt.Sprintf("%s: %s, protocol %s", s.Name, command.Count(tools, "tool"), screen.Line(running.GetProtocol()))
	switch {
	case s.URL != "":
		return out + ", at " + screen.Line(s.URL)
	case s.Unconfined:
		return out + ", sandbox off"
	}
	network := strings.Trim(s.Network.String(), "[]")
	return out + ", sandbox on, network " + network
}

func removeCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "remove SERVER",
		Short: "Remove a server and its approvals",
		Long: `Remove a server from the settings of the home and from mcp.use of the agents. Its approvals
are forgotten; what runs of it ends with the next turn of its agent.`,
		Example: "  agentctl mcp remove github",
		RunE: func(c *cobra.Command, args []string) error {
			ctx, name := c.Context(), args[0]
			s, err := e.HomeSettings(ctx)
			if err == nil {
				_, err = server(s, name)
			}
			if err != nil {
				return err
			}
			agents, err := e.AllAgents(ctx)
			if err != nil {
				return err
			}
			for _, a := range agents { // before the server: a repeat after a failure continues
				use, own, err := used(ctx, e, a.GetAgentId())
				if i := slices.Index(use, name); err == nil && own && i >= 0 {
					err = setUse(ctx, e, a.GetAgentId(), slices.Delete(use, i, i+1))
				}
				if err != nil && a.GetHealth() != registry.AgentHealth_AGENT_HEALTH_FAILED {
					return err
				}
			}
			r, err := e.Homes().SetHomeValue(ctx, &registry.SetHomeValueRequest{Path: []string{"mcp", "servers", name}})
			if err != nil {
				return err
			}
			return e.Show(struct {
				Server  string `json:"server"`
				Removed bool   `json:"removed"`
				Version string `json:"version"`
			}{name, r.GetExisted(), r.GetVersion()}, name, "%s is removed, and its approvals are forgotten", name)
		},
	}
}

// used are the servers that an agent uses; own: its config.yaml says so.
func used(ctx context.Context, e *command.Env, agent string) (use []string, own bool, err error) {
	r, err := e.Agents().GetAgentConfig(ctx, &registry.GetAgentConfigRequest{AgentId: agent})
	for _, v := range r.GetValues() {
		if v.GetKey() == "mcp.use" {
			c := config.FromValues(map[string]string{v.GetKey(): strings.TrimSpace(v.GetValue())})
			return c.MCP.Use, strings.HasPrefix(v.GetOrigin(), "config.yaml"), err
		}
	}
	return nil, false, err
}

func setUse(ctx context.Context, e *command.Env, agent string, use []string) error {
	_, err := e.Agents().SetAgentConfig(ctx, &registry.SetAgentConfigRequest{AgentId: agent, Key: "mcp.use", Value: config.FlowList(use)})
	return err
}

// pretty is a description with one line for each value.
func pretty(description json.RawMessage) string {
	var b bytes.Buffer
	if len(description) == 0 {
		return ""
	}
	if json.Indent(&b, description, "", "  ") != nil {
		return string(description) + "\n"
	}
	return b.String() + "\n"
}
