package main

import (
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/agentctl/internal/agent"
	"github.com/theclaw/agents/cmd/agentctl/internal/approvals"
	"github.com/theclaw/agents/cmd/agentctl/internal/archive"
	"github.com/theclaw/agents/cmd/agentctl/internal/audit"
	"github.com/theclaw/agents/cmd/agentctl/internal/bindings"
	"github.com/theclaw/agents/cmd/agentctl/internal/channels"
	"github.com/theclaw/agents/cmd/agentctl/internal/chat"
	"github.com/theclaw/agents/cmd/agentctl/internal/cmds"
	"github.com/theclaw/agents/cmd/agentctl/internal/deadletter"
	"github.com/theclaw/agents/cmd/agentctl/internal/doctor"
	"github.com/theclaw/agents/cmd/agentctl/internal/drill"
	"github.com/theclaw/agents/cmd/agentctl/internal/event"
	"github.com/theclaw/agents/cmd/agentctl/internal/fsck"
	"github.com/theclaw/agents/cmd/agentctl/internal/hooks"
	"github.com/theclaw/agents/cmd/agentctl/internal/identity"
	"github.com/theclaw/agents/cmd/agentctl/internal/manual"
	"github.com/theclaw/agents/cmd/agentctl/internal/mcp"
	"github.com/theclaw/agents/cmd/agentctl/internal/memory"
	"github.com/theclaw/agents/cmd/agentctl/internal/message"
	"github.com/theclaw/agents/cmd/agentctl/internal/migrate"
	"github.com/theclaw/agents/cmd/agentctl/internal/migratestore"
	"github.com/theclaw/agents/cmd/agentctl/internal/pair"
	"github.com/theclaw/agents/cmd/agentctl/internal/peer"
	"github.com/theclaw/agents/cmd/agentctl/internal/process"
	"github.com/theclaw/agents/cmd/agentctl/internal/provider"
	"github.com/theclaw/agents/cmd/agentctl/internal/prune"
	"github.com/theclaw/agents/cmd/agentctl/internal/questions"
	"github.com/theclaw/agents/cmd/agentctl/internal/run"
	"github.com/theclaw/agents/cmd/agentctl/internal/service"
	"github.com/theclaw/agents/cmd/agentctl/internal/sessions"
	"github.com/theclaw/agents/cmd/agentctl/internal/setting"
	"github.com/theclaw/agents/cmd/agentctl/internal/setup"
	"github.com/theclaw/agents/cmd/agentctl/internal/support"
	"github.com/theclaw/agents/cmd/agentctl/internal/tools"
	"github.com/theclaw/agents/cmd/agentctl/internal/top"
	"github.com/theclaw/agents/cmd/agentctl/internal/turn"
	"github.com/theclaw/agents/cmd/agentctl/internal/up"
	"github.com/theclaw/agents/cmd/agentctl/internal/usage"
	"github.com/theclaw/agents/cmd/internal/command"
)

func newRoot(e *command.Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "agentctl",
		Short: "Manage agents, talk to them, and see what happened to every message",
		Long: `agentctl manages agents: it creates and starts them, talks to them, and shows what
happened to every message. The services do the work ('agentd all').

Exit codes: 0 success, 1 failure, 2 invalid command line.`,
		Example: `  agentctl up                          start the services here and talk to admin
  agentctl init alice                  create an agent
  agentctl start alice                 let it process messages
  agentctl chat alice                  talk to it
  agentctl explain alice 1             what happened to message 1`,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	command.Prepare(root, e)
	f := root.PersistentFlags()
	command.TextFlag(f, &e.Flags.Home, "home", command.Path, "home directory (else $THECLAW_HOME, ~/.theclaw)")
	command.TextFlag(f, &e.Flags.Profile, "profile", command.Profile, "use the home of this profile: the home directory with -NAME added (else $THECLAW_PROFILE)")
	command.TextFlag(f, &e.Flags.Registry, "registry", command.Address, "address of the registry (unix:/// or dns:///)")
	command.TextFlag(f, &e.Flags.Runner, "runner", command.Address, "address of the runner")
	command.TextFlag(f, &e.Flags.Deliverer, "deliverer", command.Address, "address of the deliverer")
	command.TextFlag(f, &e.Flags.Gateway, "gateway", command.Address, "address of the gateway")
	command.TextFlag(f, &e.Flags.TLS, "tls", command.Path, "certificates for dns:/// (default tls/ in the home)")
	command.DurationFlag(f, &e.Flags.Timeout, "timeout", "maximum wait for one response")
	f.VarP(&e.Flags.Output, "output", "o", "print a list or an object as "+strings.Join(command.Outputs, ", "))
	f.BoolVar(&e.Flags.JSON, "json", e.Flags.JSON, "print JSON, also for errors: {\"error\",\"suggestion\"}")
	f.BoolVar(&e.Flags.NoColor, "no-color", false, "no colors (also NO_COLOR in the environment)")
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error { return checkFlags(c, e) }

	var subs []*cobra.Command
	subs = append(subs, agent.Commands(e)...)
	subs = append(subs, message.Command(e), chat.Command(e), top.Command(e))
	subs = append(subs, run.Commands(e)...)
	subs = append(subs, event.Commands(e)...)
	subs = append(subs, threadCommand(), sessions.Command(e), bindings.Command(e), channels.Command(e), pair.Command(e))
	subs = append(subs, turn.Commands(e)...)
	subs = append(subs, deadletter.Command(e))
	subs = append(subs, setting.Commands(e)...)
	subs = append(subs, mcp.Command(e), hooks.Command(e))
	subs = append(subs, tools.Commands(e)...)
	subs = append(subs, provider.Command(e), usage.Command(e), memory.Command(e))
	subs = append(subs, cmds.Command(e))
	subs = append(subs, doctor.Commands(e)...)
	subs = append(subs, fsck.Command(e), migrate.Command(e), migratestore.Command(e), prune.Command(e))
	subs = append(subs, process.Commands(e)...)
	subs = append(subs, archive.Commands(e)...)
	subs = append(subs, peer.Commands(e)...)
	subs = append(subs, identity.Certs(e), identity.Token(e), audit.Command(e), approvals.Command(e), questions.Command(e))
	subs = append(subs, drill.Command(e))
	subs = append(subs, setup.Command(e), service.Command(e), support.Command(e))
	subs = append(subs, up.Command(e), up.Gateway(e), versionCommand(e), completionCommand(e), manual.Command(e))
	command.Group(e, root, subs...)
	overview(e, root)
	sortIn(root)
	command.Help(root, "send")
	return root
}

// plain are the commands that print text and no data.
var plain = []string{"chat", "completion", "help", "up"}

func checkFlags(c *cobra.Command, e *command.Env) error {
	if e.Flags.Timeout <= 0 {
		return command.Usage(c, "--timeout must be more than 0")
	}
	form := e.Flags.Output.Value
	switch set := c.Flags().Changed("output"); {
	case set && form != command.OutputJSON && e.Flags.JSON:
		return command.Usage(c, "--json and --output %s exclude each other", form)
	case set && form != command.OutputJSON && slices.Contains(plain, c.Name()):
		return command.Usage(c, "'%s' has no --output %s", c.CommandPath(), form)
	}
	e.Flags.JSON = e.Flags.JSON || form == command.OutputJSON
	return nil
}

func versionCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Example: `  agentctl version`,
		RunE:    func(*cobra.Command, []string) error { return printVersion(e) },
	}
}

func printVersion(e *command.Env) error {
	return e.Show(struct {
		Version string `json:"version"`
	}{e.Version}, e.Version, "%s", e.Version)
}

// otherNames adds the names for 'agentctl chat' to the completion script of a shell.
func otherNames(shell, script string) string {
	switch shell {
	case "bash":
		return script + "complete -o default -F __start_agentctl ac agentclaw\n"
	case "zsh":
		return strings.NewReplacer("compdef agentctl\n", "compdef agentctl ac agentclaw\n", "compdef _agentctl agentctl\n", "compdef _agentctl agentctl ac agentclaw\n").Replace(script)
	case "fish":
		return script + "complete -c ac -w agentctl\ncomplete -c agentclaw -w agentctl\n"
	}
	return script
}

func completionCommand(e *command.Env) *cobra.Command {
	shells := map[string]func(*cobra.Command, io.Writer) error{
		"bash":       func(c *cobra.Command, w io.Writer) error { return c.GenBashCompletionV2(w, true) },
		"zsh":        (*cobra.Command).GenZshCompletion,
		"fish":       func(c *cobra.Command, w io.Writer) error { return c.GenFishCompletion(w, true) },
		"powershell": (*cobra.Command).GenPowerShellCompletionWithDesc,
	}
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print the completion script for a shell",
		Long: `Print the script that lets a shell complete commands, flags, agent ids and settings, also
for the names ac and agentclaw.`,
		Example: `  source <(agentctl completion bash)
  agentctl completion zsh > "${fpath[1]}/_agentctl"
  agentctl completion fish | source`,
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		RunE: func(c *cobra.Command, args []string) error {
			print, ok := shells[args[0]]
			if !ok {
				return command.Usage(c, "there is no completion for %.40q: use bash, zsh, fish or powershell", args[0])
			}
			var script strings.Builder
			if err := print(c.Root(), &script); err != nil {
				return err
			}
			_, err := io.WriteString(e.Out, otherNames(args[0], script.String()))
			return err
		},
	}
}
