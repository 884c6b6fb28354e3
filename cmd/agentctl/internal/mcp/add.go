package mcp

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

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

// preset is a server that is known by a name, without its command.
type preset struct {
	command, paths   []string
	network, timeout string
	// needs says what the server needs that may be missing.
	needs string
}

var presets = map[string]preset{
	// A version, so that the tools stay as they were approved. Chromium cannot start a sandbox of its own within that of the
	// runner, which is the one around it.
	"playwright": {
		command: []string{"npx", "--yes", "@playwright/mcp@0.0.83", "--headless", "--isolated", "--no-sandbox", "--executable-path", "/usr/bin/chromium"},
		paths:   []string{"/etc/chromium.d", "/etc/fonts"}, network: "open", timeout: "2m",
		needs: "it needs npm and Chromium where the runner is, on Debian from 'apt install npm chromium', and the registry of npm at its first start",
	},
}

// addition is one call of the command.
type addition struct {
	agents, env, headers, paths []string
	network, cwd, url, preset   string
	noSandbox, yes              bool
}

// added is the result for programs.
type added struct {
	Server   string   `json:"server"`
	Agents   []string `json:"agents"`
	Protocol string   `json:"protocol"`
	Tools    []tool   `json:"tools"`
}

func addCommand(e *command.Env) *cobra.Command {
	var a addition
	c := &cobra.Command{
		Use:   "add NAME [WORD...]",
		Short: "Add a server, and approve its tools",
		Long: `Add a server to the settings of the home, start it once for the first agent, show its tools
and ask for approval. The server is a program with its arguments, behind --, or an address
(--url). The program runs in the sandbox, without a network unless --network says
otherwise. The agents get the server in mcp.use. --env and --header take references, so that
no secret is in the settings: env:NAME is a variable of the runner, file:PATH a file of its
machine; a header may hold {{secret:NAME}} instead.`,
		Example: `  agentctl mcp add github --agent alice --env GITHUB_PERSONAL_ACCESS_TOKEN=env:GH_TOKEN --network api.github.com -- github-mcp-server stdio
  agentctl mcp add shop --url https://mcp.shop.example/mcp --header "Authorization=Bearer {{secret:SHOP}}"
  agentctl mcp add browser --preset playwright`,
		Annotations: map[string]string{"NAME": "NEW SERVER"},
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 1 && c.ArgsLenAtDash() != 1 {
				return command.Usage(c, "the command of the server stands behind --, and the name of the server before it")
			}
			one, flow, err := a.server(args[0], args[1:])
			if err != nil {
				return command.Usage(c, "%s", err.Error())
			}
			return a.run(c, e, one, flow)
		},
	}
	f := c.Flags()
	command.AgentsFlag(c, &a.agents, "agent that uses the server (default: the default agent)")
	command.TextsFlag(f, &a.env, "env", command.Assignment, "variable of the program: NAME=VALUE, NAME=env:NAME or NAME=file:PATH; may be repeated")
	command.TextsFlag(f, &a.headers, "header", command.Header, "header of each request: NAME=env:NAME, NAME=file:PATH or NAME=TEXT with {{secret:NAME}}; may be repeated")
	command.TextFlag(f, &a.network, "network", command.NetworkOf, "what the program reaches: off, open, or hosts with commas between")
	command.TextFlag(f, &a.cwd, "cwd", command.Cwd, "where the program works: scratch or workdir")
	command.TextsFlag(f, &a.paths, "path", command.Path, "path that the program may read; may be repeated")
	command.TextFlag(f, &a.url, "url", command.URL, "address of a server that is reached by HTTP")
	command.TextFlag(f, &a.preset, "preset", command.Preset, "a server that is known by name: playwright")
	f.BoolVar(&a.noSandbox, "no-sandbox", false, "start the program with all rights of the runner")
	f.BoolVar(&a.yes, "yes", false, "approve all tools without asking")
	return c
}

// server is what the flags describe, and the same in YAML. An error is a sentence without a period.
func (a *addition) server(name string, words []string) (one layer.Server, flow string, err error) {
	if flow, err = a.flow(words); err != nil {
		return one, "", err
	}
	s, err := layer.ReadHome(layer.File{Name: "theclaw.yaml", Data: []byte("mcp:\n  servers:\n    " + config.Quote(name) + ": " + flow + "\n")})
	if err != nil {
		return one, "", fmt.Errorf("%s", strings.TrimPrefix(problem(err), "mcp.servers."+name+": "))
	}
	return s.Servers[0], flow, nil
}

// flow is the server in YAML.
func (a *addition) flow(words []string) (string, error) {
	network, sandbox := a.network, ""
	p := presets[a.preset]
	if a.preset != "" {
		switch {
		case len(words) > 0 || a.url != "":
			return "", fmt.Errorf("--preset is the command of the server; leave the other one out")
		case a.noSandbox:
			return "", fmt.Errorf("the server of --preset needs the sandbox; leave --no-sandbox out")
		}
		if words = p.command; network == "" {
			network = p.network
		}
	}
	if a.noSandbox {
		sandbox = "off"
	}
	var parts []string
	text := func(key, value string) {
		if value != "" {
			parts = append(parts, key+": "+config.Quote(value))
		}
	}
	list := func(key string, values []string) {
		if len(values) > 0 {
			parts = append(parts, key+": "+config.FlowList(values))
		}
	}
	pairs := func(key string, values []string) error {
		by := map[string]string{}
		for _, v := range values {
			name, value, _ := strings.Cut(v, "=")
			if _, again := by[name]; again {
				return fmt.Errorf("--%s %s is there twice", strings.TrimSuffix(key, "s"), name)
			}
			by[name] = value
		}
		var out []string
		for _, name := range slices.Sorted(maps.Keys(by)) {
			out = append(out, config.Quote(name)+": "+config.Quote(by[name]))
		}
		if len(out) > 0 {
			parts = append(parts, key+": {"+strings.Join(out, ", ")+"}")
		}
		return nil
	}
	list("command", words)
	text("url", a.url)
	if err := pairs("env", a.env); err != nil {
		return "", err
	}
	if err := pairs("headers", a.headers); err != nil {
		return "", err
	}
	text("cwd", a.cwd)
	if network == "off" || network == "open" {
		text("network", network)
	} else if network != "" {
		list("network", strings.Split(network, ","))
	}
	text("sandbox", sandbox)
	list("paths", slices.Concat(p.paths, a.paths))
	text("timeout", p.timeout)
	return "{" + strings.Join(parts, ", ") + "}", nil
}

func (a *addition) run(c *cobra.Command, e *command.Env, one layer.Server, flow string) error {
	ctx := c.Context()
	s, err := e.HomeSettings(ctx)
	if err != nil {
		return err
	}
	// The same again continues what was interrupted; another one is not to get the approvals of the first.
	if there, err := server(s, one.Name); err == nil && !reflect.DeepEqual(there, one) {
		return fault.New(codes.AlreadyExists, fault.InvalidArgument, fmt.Sprintf("the settings have another MCP server %s", one.Name),
			fmt.Sprintf("choose another name, or remove it with 'agentctl mcp remove %s'", one.Name))
	}
	agents := slices.Clone(a.agents)
	if len(agents) == 0 {
		id, err := e.DefaultAgent(ctx)
		if err != nil {
			return err
		}
		agents = []string{id}
	}
	for _, id := range agents {
		if err := e.MustExist(ctx, id); err != nil {
			return err
		}
	}
	if _, err := e.Homes().SetHomeValue(ctx, &registry.SetHomeValueRequest{Path: []string{"mcp", "servers", one.Name}, Value: flow}); err != nil {
		return err
	}
	for _, id := range agents {
		use, _, err := used(ctx, e, id)
		if err == nil && !slices.Contains(use, one.Name) {
			err = setUse(ctx, e, id, append(use, one.Name))
		}
		if err != nil {
			return err
		}
	}
	// Again: what runs may be of a server that had the name before, whose tools are forgotten.
	running, err := start(c, e, agents[0], one.Name, true)
	if err != nil {
		e.Note("%s is in the settings", one.Name)
		return a.explain(err, one.Name, agents[0])
	}
	return a.approve(c, e, one, running, agents)
}

// explain is the error of a start with what the preset needs.
func (a *addition) explain(err error, name, agent string) error {
	f := fault.From(err)
	if a.preset == "" || f.Reason != fault.McpUnavailable {
		return err
	}
	return fault.New(f.Code, f.Reason, f.What, fmt.Sprintf("%s; then run 'agentctl mcp test %s --agent %s'", presets[a.preset].needs, name, agent))
}

// approve shows the tools of a server that was added, and asks for approval.
func (a *addition) approve(c *cobra.Command, e *command.Env, one layer.Server, running *runner.Server, agents []string) error {
	ctx := c.Context()
	tools, digest, err := pins(ctx, e, one.Name)
	if err != nil {
		return err
	}
	n := 0
	for _, t := range tools {
		if t.waits() {
			n++
		}
	}
	yes := a.yes
	if !e.Data() {
		fmt.Fprintln(e.Out, headline(one, running, len(tools)))
		if err := toolTable(e, tools); err != nil {
			return err
		}
		if in, _ := e.Terminal(); !yes && n > 0 && in != nil {
			for _, t := range tools {
				if t.waits() {
					fmt.Fprint(e.Out, shown(t))
				}
			}
			question := fmt.Sprintf("Approve these %s for %s?", command.Count(n, "schema"), ofAgents(agents))
			if yes, err = screen.Confirm(ctx, e, question); err != nil {
				return err
			}
		}
	}
	if n > 0 && !yes {
		e.Note("nothing is approved; 'agentctl mcp approve %s' shows the tools completely and asks again", one.Name)
	}
	if n > 0 && yes {
		if tools, err = resolve(ctx, e, one.Name, nil, true, digest); err != nil {
			return err
		}
	}
	if e.Data() {
		return e.Print(added{one.Name, agents, running.GetProtocol(), tools}, []string{one.Name}, func() error { return nil })
	}
	if n > 0 && yes {
		fmt.Fprintf(e.Out, "%s: %s approved\n", one.Name, command.Count(n, "tool"))
	}
	return nil
}

func ofAgents(ids []string) string {
	if len(ids) == 1 {
		return "agent " + ids[0]
	}
	return "agents " + strings.Join(ids, ", ")
}

func resolve(ctx context.Context, e *command.Env, name string, tools []string, approve bool, digest string) ([]tool, error) {
	r, err := e.Pins().ResolvePins(ctx, &registry.ResolvePinsRequest{Server: name, Tools: tools, Approve: approve, Digest: digest})
	return toolsOf(r.GetPins()), err
}
