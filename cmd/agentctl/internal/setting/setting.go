// Package setting implements the commands that show and change what an agent consists
// of: its configuration (`agentctl config`), its text files (`file`), and the prompt
// that a model would get for it now (`context`).
package setting

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/cmd/agentctl/internal/provider"
	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/fault"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Commands answers the commands of this package.
func Commands(e *command.Env) []*cobra.Command {
	return []*cobra.Command{configCommand(e), fileCommand(e), contextCommand(e)}
}

// value is one setting and where it was decided.
type value struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
}

func configCommand(e *command.Env) *cobra.Command {
	return command.Group(e, &cobra.Command{
		Use:   "config",
		Short: "Show and change the settings of an agent",
		Example: `  agentctl config effective alice
  agentctl config explain pai.model
  agentctl config set alice pai.model gpt-5`,
	}, effectiveCommand(e), explainCommand(e), getCommand(e), importCommand(e), setCommand(e), statusCommand(e), unsetCommand(e))
}

func settings(c *cobra.Command, e *command.Env, id string) ([]value, error) {
	r, err := e.Agents().GetAgentConfig(c.Context(), &registry.GetAgentConfigRequest{AgentId: id})
	if err != nil {
		return nil, err
	}
	all := []value{}
	for _, v := range r.GetValues() {
		all = append(all, value{v.GetKey(), strings.TrimRight(v.GetValue(), "\n"), v.GetOrigin()})
	}
	return all, nil
}

func effectiveCommand(e *command.Env) *cobra.Command {
	var wide bool
	c := &cobra.Command{
		Use:   "effective ID",
		Short: "Show all effective settings and their origin",
		Example: `  agentctl config effective alice
  agentctl config effective alice -o wide
  agentctl config effective alice --json | jq -r '.[] | select(.origin != "default") | .key'`,
		RunE: func(c *cobra.Command, args []string) error {
			all, err := settings(c, e, args[0])
			if err != nil {
				return err
			}
			t := screen.NewTable(e, "key", "value", "origin", "meaning").Cut("value")
			if !wide { // the older word for -o wide
				t.Wide("meaning")
			}
			return screen.List(t, all, func(v value) []any {
				meaning := ""
				if of := config.Explain(v.Key); len(of) > 0 { // of a channel its first attribute
					meaning = brief(of[0].Meaning)
				}
				return []any{v.Key, v.Value, v.Origin, meaning}
			})
		},
	}
	c.Flags().BoolVar(&wide, "wide", false, "the same as -o wide")
	_ = c.Flags().MarkHidden("wide")
	return c
}

func getCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "get ID KEY",
		Short: "Print one effective setting",
		Example: `  agentctl config get alice retry.max_attempts
  agentctl config get alice routing.default --json`,
		ValidArgsFunction: completeSetting(e),
		RunE: func(c *cobra.Command, args []string) error {
			all, err := settings(c, e, args[0])
			if err != nil {
				return err
			}
			for _, v := range all {
				if v.Key == args[1] {
					return e.Show(v, v.Key, "%s", screen.Text(e, v.Value))
				}
			}
			keys := make([]string, 0, len(all))
			for _, v := range all {
				keys = append(keys, v.Key)
			}
			return noSetting(args[1], keys, fmt.Sprintf("'agentctl config effective %s' lists all of them", args[0]))
		},
	}
}

func setCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "set ID KEY VALUE",
		Short: "Change one setting of an agent",
		Long: `Change one setting in the config.yaml of an agent; comments and order are kept. VALUE
is YAML; a list replaces the list before. An invalid key or value changes nothing. If a runner is running, it must know
pai.provider, and pai.model where providers.yaml lists the models of the provider.`,
		Example: `  agentctl config set alice pai.provider openai
  agentctl config set alice retry.max_attempts 5
  agentctl config set alice outbound '[{thread_pattern: "**", via: xgw}]'`,
		ValidArgsFunction: completeSetting(e),
		RunE: func(c *cobra.Command, args []string) error {
			if err := provider.CheckSetting(c.Context(), e, args[0], args[1], args[2]); err != nil {
				return err
			}
			before := written(c, e, args[0], args[1])
			r, err := e.Agents().SetAgentConfig(c.Context(), &registry.SetAgentConfigRequest{AgentId: args[0], Key: args[1], Value: args[2]})
			if err != nil {
				return err
			}
			return e.Show(struct {
				AgentID string `json:"agent_id"`
				Key     string `json:"key"`
				Version string `json:"version"`
				Before  string `json:"before"`
			}{args[0], args[1], r.GetVersion(), before}, args[1], "Agent '%s': %s is set%s", args[0], screen.Line(args[1]), was(before, args[2]))
		},
	}
}

func unsetCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "unset [ID] KEY",
		Short: "Remove one setting of an agent or the home",
		Long: `Remove one setting from the config.yaml of an agent, so that the value of the home
or the default is in force again; without ID, from theclaw.yaml of the home. All other
lines are kept. A setting that is not there changes nothing.`,
		Example: `  agentctl config unset alice retry.max_attempts
  agentctl config unset run.timeout`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) < 2 {
				return command.Args("KEY")(c, args)
			}
			return command.Args("[ID]", "KEY")(c, args)
		},
		ValidArgsFunction: completeSetting(e),
		RunE: func(c *cobra.Command, args []string) error {
			id, key := "", args[len(args)-1]
			if len(args) > 1 {
				id = args[0]
			}
			existed, version, err := unset(c, e, id, key)
			if err != nil {
				return err
			}
			if len(config.Explain(key)) == 0 && !existed {
				fix := "'agentctl config explain' lists all of them"
				if id == "" {
					fix = "name an agent and a KEY, or a KEY of the home; " + fix
				}
				return noSetting(key, allKeys(), fix)
			}
			of, result := "Home", "is removed"
			if id != "" {
				of = "Agent '" + id + "'"
			}
			if !existed {
				result = "was not set"
			}
			if now := inForce(c, e, id, key); now != "" {
				result += "; in force: " + now
			}
			return e.Show(struct {
				AgentID string `json:"agent_id"`
				Key     string `json:"key"`
				Version string `json:"version"`
				Existed bool   `json:"existed"`
			}{id, key, version, existed}, key, "%s: %s %s", of, screen.Line(key), result)
		},
	}
}

// unset removes a key of an agent, or of the home where id is empty.
func unset(c *cobra.Command, e *command.Env, id, key string) (existed bool, version string, err error) {
	if id == "" {
		r, err := e.Homes().SetHomeValue(c.Context(), &registry.SetHomeValueRequest{Path: strings.Split(key, ".")})
		return r.GetExisted(), r.GetVersion(), err
	}
	const name = "config.yaml"
	file, err := e.Agents().ReadAgentFile(c.Context(), &registry.ReadAgentFileRequest{AgentId: id, Name: name})
	if err != nil {
		return false, "", err
	}
	data, existed, err := layer.Unset(layer.File{Name: name, Data: file.GetContent()}, key)
	if err != nil {
		return false, "", fault.New(codes.FailedPrecondition, fault.ConfigInvalid, err.Error(), "'agentctl file get "+id+" config.yaml' and 'agentctl file put' edit it")
	}
	if !existed {
		return false, file.GetVersion(), nil
	}
	r, err := e.Agents().WriteAgentFile(c.Context(), &registry.WriteAgentFileRequest{AgentId: id, Name: name, Content: data, IfVersion: file.GetVersion()})
	return true, r.GetVersion(), err
}

// inForce is the value of an agent's key and where it was decided; empty: it is not known.
func inForce(c *cobra.Command, e *command.Env, id, key string) string {
	if v := valueOf(c, e, id, key); v.Value != "" {
		return fmt.Sprintf("%s (%s)", screen.Line(v.Value), v.Origin)
	}
	return ""
}

// written is the value of a key that a file gives an agent; empty: none does, or it is not known.
func written(c *cobra.Command, e *command.Env, id, key string) string {
	if v := valueOf(c, e, id, key); v.Origin != "default" {
		return v.Value
	}
	return ""
}

// valueOf is what an agent has of a key; the zero value: there is no agent or key of the name, or the settings cannot be
// read, which a change may correct.
func valueOf(c *cobra.Command, e *command.Env, id, key string) value {
	if id == "" {
		return value{}
	}
	all, _ := settings(c, e, id)
	for _, v := range all {
		if v.Key == key {
			return v
		}
	}
	return value{}
}

// was names the value before, which a person may have thought to add to: a list replaces the list before.
func was(before, now string) string {
	if before == "" || before == now {
		return ""
	}
	return "; it was " + screen.Line(before)
}
