package setting

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/internal/command"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

func importCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "import FILE",
		Short: "Put settings of the home into the database that registries share",
		Long: `Registries that share a database have the sections agents, bindings, session, owners and
channels there, once for all of them. import replaces these sections by those of FILE, in
YAML; - reads standard input. It is checked first: a file that cannot be used changes
nothing. storage and inbox_paths stay in the theclaw.yaml of each registry. On a home with
a registry of its own, edit theclaw.yaml instead.`,
		Example: `  agentctl config import shared.yaml
  agentctl config status`,
		RunE: func(c *cobra.Command, args []string) error {
			text, err := readFile(e, args[0])
			if err != nil {
				return err
			}
			now, err := e.Homes().GetHomeConfig(c.Context(), &registry.GetHomeConfigRequest{})
			if err != nil {
				return err
			}
			set, err := e.Homes().SetHomeConfig(c.Context(), &registry.SetHomeConfigRequest{Text: string(text), Version: now.GetVersion()})
			if err != nil {
				return err
			}
			return e.Print(map[string]string{"version": set.GetVersion()}, []string{set.GetVersion()}, func() error {
				fmt.Fprintf(e.Out, "Imported %s - all registries use it within seconds\n", args[0])
				return nil
			})
		},
	}
}
