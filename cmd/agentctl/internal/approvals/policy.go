package approvals

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/execpolicy"
	"github.com/theclaw/agents/internal/fault"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

func policyCommand(e *command.Env) *cobra.Command {
	return command.Group(e, &cobra.Command{
		Use:   "policy",
		Short: "Show and change which commands need no approval",
		Long: `Show and change the policy of the installation for commands outside the sandbox, or with
network access. It bounds the settings tools.exec.security, ask and ask_fallback of the
agents, and holds the allow list of each. Without a policy the settings alone count.`,
		Example: `  agentctl approvals policy show alice
  agentctl approvals policy set alice --allow "/usr/bin/git push"
  agentctl approvals policy import exec-approvals.json`,
	}, showCommand(e), importCommand(e), setCommand(e))
}

// row is an entry of an allow list.
type row struct {
	agent string
	execpolicy.Allowed
}

func showCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "show [ID]",
		Short: "Show the policy and the allow lists, of all agents or one",
		Long: `Show the policy and the allow lists, of all agents or one, with the last use of each entry.
With --json it is in the form of exec-approvals.json, as 'agentctl approvals policy import'
reads it.`,
		Example: `  agentctl approvals policy show alice
  agentctl approvals policy show --json`,
		RunE: func(c *cobra.Command, args []string) error {
			d, version, err := read(c.Context(), e)
			if err != nil {
				return err
			}
			agents := slices.Sorted(maps.Keys(d.Agents))
			if len(args) > 0 {
				if err := e.MustExist(c.Context(), args[0]); err != nil {
					return err
				}
				agents = args
				d.Agents = map[string]execpolicy.Agent{args[0]: d.Agents[args[0]]}
			}
			rows := []row{}
			for _, id := range agents {
				for _, a := range d.Agents[id].Allowlist {
					rows = append(rows, row{id, a})
				}
			}
			t := screen.NewTable(e, "agent", "entry", "pattern", "args", "used", "command").Names(1).Drop("command").Data(d).None("no entries").Then(func() {
				if version == 0 {
					e.Note("no policy: the settings of the agents alone count")
					return
				}
				for _, id := range agents {
					r := d.Rules(id)
					e.Note("%s: security %s, ask %s, ask_fallback %s at most, whatever its settings are", id, r.Security, r.Ask, r.AskFallback)
				}
				if len(args) == 0 {
					r := d.Rules("")
					e.Note("other agents: security %s, ask %s, ask_fallback %s at most", r.Security, r.Ask, r.AskFallback)
				}
			})
			return screen.List(t, rows, func(r row) []any {
				var used time.Time
				if r.LastUsedAt > 0 {
					used = time.UnixMilli(int64(r.LastUsedAt))
				}
				return []any{r.agent, r.ID, r.Pattern, cmp.Or(strings.Join(r.Args, " "), "(any)"), screen.Age(time.Now(), used), cmp.Or(r.LastUsedCommand, "-")}
			})
		},
	}
}

func importCommand(e *command.Env) *cobra.Command {
	var replace bool
	c := &cobra.Command{
		Use:   "import SRC",
		Short: "Read the policy from a file exec-approvals.json",
		Long: `Read the policy from a file exec-approvals.json, version 1. Its agent "default" becomes
"main"; what belongs to another program, such as a socket and its token, is left out. A
policy that is there already is only replaced with --replace.`,
		Example: `  agentctl approvals policy import exec-approvals.json
  agentctl approvals policy import policy.json --replace`,
		RunE: func(c *cobra.Command, args []string) error {
			_, version, err := read(c.Context(), e)
			if err != nil {
				return err
			}
			b, err := os.ReadFile(args[0])
			if errors.Is(err, fs.ErrNotExist) {
				return fault.Usage(fmt.Sprintf("there is no file %.200q", args[0]), "give the path of a file that exists")
			} else if err != nil {
				return err
			}
			d, err := execpolicy.Parse(b)
			if err != nil {
				return fault.New(codes.InvalidArgument, fault.InvalidArgument, err.Error(), "write the file in the form of exec-approvals.json, version 1")
			}
			if version > 0 && !replace {
				return fault.New(codes.AlreadyExists, fault.InvalidArgument, "there is a policy already", "replace it with --replace; 'agentctl approvals policy show --json' prints it")
			}
			if err := write(c.Context(), e, d, version); err != nil {
				return err
			}
			return e.Show(d, args[0], "the policy has %d agents", len(d.Agents))
		},
	}
	c.Flags().BoolVar(&replace, "replace", false, "replace the policy that is there")
	return c
}

func setCommand(e *command.Env) *cobra.Command {
	var security, ask, fallback string
	var allow, remove []string
	c := &cobra.Command{
		Use:   "set [ID]",
		Short: "Change the policy of one agent, or that of agents it does not name",
		Long: `Change the policy of one agent, or that of agents it does not name. Of the policy and the
settings of the agent the stricter counts. An entry of the allow list is the path of a program,
with * for characters without / and ** for any, and then the words that must follow.`,
		Example: `  agentctl approvals policy set alice --allow "/usr/bin/git push"
  agentctl approvals policy set alice --security allowlist --ask on-miss`,
		RunE: func(c *cobra.Command, args []string) error {
			if security+ask+fallback == "" && len(allow)+len(remove) == 0 || len(args) == 0 && len(allow)+len(remove) > 0 {
				return command.Usage(c, "nothing to change, or an entry without an agent")
			}
			rules := execpolicy.Rules{Security: execpolicy.Security(security), Ask: execpolicy.Ask(ask), AskFallback: execpolicy.Security(fallback)}
			if len(args) > 0 {
				if err := e.MustExist(c.Context(), args[0]); err != nil {
					return err
				}
			}
			var d execpolicy.Document
			err := change(c.Context(), e, func(now *execpolicy.Document) error {
				defer func() { d = *now }()
				if len(args) == 0 {
					now.SetDefaults(rules)
					return nil
				}
				now.Set(args[0], rules)
				for _, text := range allow {
					words := strings.Fields(text)
					now.Add(args[0], []execpolicy.Entry{{Pattern: words[0], Args: words[1:]}})
				}
				for _, id := range remove {
					if !now.Remove(args[0], id) {
						return fault.New(codes.NotFound, fault.InvalidArgument, fmt.Sprintf("agent '%s' has no entry %.80q", args[0], id), "'agentctl approvals policy show "+args[0]+"' lists them")
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			who, r := "agents without rules", d.Rules("")
			if len(args) > 0 {
				who, r = args[0], d.Rules(args[0])
			}
			return e.Show(d, who, "%s: security %s, ask %s, ask_fallback %s at most", who, r.Security, r.Ask, r.AskFallback)
		},
	}
	f := c.Flags()
	command.TextFlag(f, &security, "security", command.Security, "which commands may run without approval: deny, allowlist or full")
	command.TextFlag(f, &ask, "ask", command.AskMode, "when approval is requested: off, on-miss or always")
	command.TextFlag(f, &fallback, "ask-fallback", command.Security, "what decides when a request has no answer: deny, allowlist or full")
	command.TextsFlag(f, &allow, "allow", command.Entry, "entry to add; may be repeated")
	command.TextsFlag(f, &remove, "remove", command.EntryID, "entry to remove; may be repeated")
	return c
}

// read returns the policy and its version; one that bounds no agent and 0 when there is none.
func read(ctx context.Context, e *command.Env) (execpolicy.Document, int64, error) {
	r, err := e.Approvals().GetExecPolicy(ctx, &registry.GetExecPolicyRequest{})
	if err != nil {
		return execpolicy.Document{}, 0, err
	}
	if r.GetVersion() == 0 {
		return execpolicy.NewDocument(), 0, nil
	}
	d, err := execpolicy.Parse([]byte(r.GetJson()))
	return d, r.GetVersion(), err
}

func write(ctx context.Context, e *command.Env, d execpolicy.Document, version int64) error {
	b, err := d.JSON()
	if err != nil {
		return fault.New(codes.InvalidArgument, fault.InvalidArgument, err.Error(), "remove entries")
	}
	_, err = e.Approvals().SetExecPolicy(ctx, &registry.SetExecPolicyRequest{Json: string(b), Version: version})
	return err
}

// change makes a change of the policy, again when it was changed meanwhile.
func change(ctx context.Context, e *command.Env, f func(*execpolicy.Document) error) error {
	const tries = 5
	for n := 1; ; n++ {
		d, version, err := read(ctx, e)
		if err == nil {
			err = f(&d)
		}
		if err == nil {
			err = write(ctx, e, d, version)
		}
		if n == tries || !fault.Is(err, fault.VersionConflict) {
			return err
		}
	}
}
