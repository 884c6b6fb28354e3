package setting

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/fault"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// homeStatus is which settings of the home are in force.
type homeStatus struct {
	Name     string   `json:"name"`
	Version  string   `json:"version"`
	LoadedAt *string  `json:"loaded_at"` // null: not read by a registry
	Problem  string   `json:"problem"`
	Restart  []string `json:"restart_needed_keys"`

	running bool // a registry answered
}

func statusCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show which settings of the home are in force",
		Long: `Show the file of the home that is in force, theclaw.yaml or theclaw.json5, its version and
when it was read; what is wrong with the present file while older settings are in force;
and the keys that were changed and are in force after a restart of agentd. Where no
registry runs, the file itself is checked.`,
		Example: `  agentctl config status
  agentctl config status --json | jq -r .problem`,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := statusOf(c.Context(), e)
			if err != nil {
				return err
			}
			return e.Print(s, []string{s.Name}, func() error {
				row := func(name, value string) {
					if value != "" {
						fmt.Fprintf(e.Out, "%-8s %s\n", name, screen.Line(value))
					}
				}
				row("file", cmp.Or(s.Name, "none: every key has its default"))
				row("version", s.Version)
				if s.LoadedAt != nil {
					row("read", *s.LoadedAt)
				}
				row("restart", strings.Join(s.Restart, ", "))
				switch {
				case s.Problem == "":
				case s.running:
					row("problem", s.Problem+" - older settings are in force; correct that place")
				default:
					row("problem", s.Problem+" - correct that place; no registry starts with it")
				}
				if !s.running {
					e.Note("no registry runs; this is what the file says")
				}
				return nil
			})
		},
	}
}

// statusOf asks the registry, and reads the file where none runs.
func statusOf(ctx context.Context, e *command.Env) (homeStatus, error) {
	r, err := e.Homes().GetHomeConfig(ctx, &registry.GetHomeConfigRequest{})
	switch {
	case err == nil:
		s := homeStatus{Name: r.GetName(), Version: r.GetVersion(), Problem: r.GetProblem(), Restart: append([]string{}, r.GetRestartNeededKeys()...)}
		s.LoadedAt, s.running = command.Stamp(r.GetLoadedAt()), true
		return s, nil
	case fault.From(err).Code != codes.Unavailable || e.Flags.Registry != "":
		return homeStatus{}, err
	}
	home, err := e.Home()
	if err != nil {
		return homeStatus{}, err
	}
	s := homeStatus{Restart: []string{}}
	file, err := agentdir.ReadSettings(home)
	if err == nil {
		var in layer.HomeSettings
		in, err = layer.ReadHome(file)
		s.Name, s.Version = file.Name, in.Version
	}
	if err != nil {
		s.Problem, _, _ = strings.Cut(err.Error(), "\n")
	}
	return s, nil
}
