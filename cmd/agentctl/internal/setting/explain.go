package setting

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/fault"
)

// explained is a key of the table of settings, for programs.
type explained struct {
	Key     string   `json:"key"`
	Meaning string   `json:"meaning"`
	Type    string   `json:"type"`
	Values  []string `json:"values,omitempty"`
	Limits  string   `json:"limits,omitempty"`
	Unit    string   `json:"unit,omitempty"`
	Default string   `json:"default"`
	Effect  string   `json:"effect"`
	Files   []string `json:"files"`
	Example string   `json:"example,omitempty"`
}

func explainCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "explain [KEY]",
		Short: "Explain what a setting means and may hold",
		Long: `Explain a key of config.yaml or theclaw.yaml: its meaning, type, limits and default, and
when a change is in force. A group such as sandbox explains its keys; without KEY all keys
are listed. No service is needed.`,
		Example: `  agentctl config explain run.concurrency
  agentctl config explain sandbox
  agentctl config explain --json | jq -r '.[] | select(.effect != "at once") | .key'`,
		ValidArgsFunction: func(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return completeKey(typed, config.Settings()), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			list := config.Settings()
			if len(args) > 0 {
				if list = config.Explain(args[0]); len(list) == 0 {
					return noSetting(args[0], allKeys(), "'agentctl config explain' lists all of them")
				}
			}
			out, keys := []explained{}, []string{}
			for _, s := range list {
				out, keys = append(out, explained{s.Key, s.Meaning, s.Type, s.Values, s.Limits, s.Unit, s.Default, string(s.Effect), files(s), s.Example}), append(keys, s.Key)
			}
			if len(args) == 0 {
				t := screen.NewTable(e, "key", "default", "type", "effect", "meaning").Wide("type", "effect")
				return screen.List(t.Data(out), list, func(s config.Setting) []any {
					return []any{s.Key, cmp.Or(s.Default, "-"), s.Type, s.Effect, brief(s.Meaning)}
				})
			}
			return e.Print(out, keys, func() error {
				for i, s := range list {
					if i > 0 {
						fmt.Fprintln(e.Out)
					}
					printSetting(e, s)
				}
				return nil
			})
		},
	}
}

// printSetting shows one key to a person.
func printSetting(e *command.Env, s config.Setting) {
	fmt.Fprintf(e.Out, "%s\n", screen.Paint(e, text.Bold, s.Key))
	fmt.Fprintf(e.Out, "%s\n", indent(s.Meaning))
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(e.Out, "  %-9s %s\n", name, value)
		}
	}
	kind := s.Type
	if s.Unit != "" {
		kind += " of " + s.Unit
	}
	row("type", kind)
	row("values", strings.Join(s.Values, ", "))
	row("limits", s.Limits)
	row("default", s.Default)
	row("changes", changes(s.Effect))
	row("files", strings.Join(files(s), ", "))
	row("example", example(s))
}

// changes is when a change is in force, in words.
func changes(effect config.Effect) string {
	switch effect {
	case config.EffectNow:
		return "take effect at once"
	case config.EffectMessage:
		return "take effect with the next message"
	case config.EffectIdle:
		return "take effect when the agent is idle: at the latest after ten seconds without work"
	case config.EffectRestart:
		return "take effect after a restart of agentd"
	default:
		return string(effect)
	}
}

// files are where a key may be written.
func files(s config.Setting) []string {
	switch {
	case s.Agent && s.Home:
		return []string{"config.yaml", "theclaw.yaml"}
	case s.Agent:
		return []string{"config.yaml"}
	default:
		return []string{"theclaw.yaml"}
	}
}

// example is the command, or the line of a file, that gives a key its example.
func example(s config.Setting) string {
	switch {
	case s.Example == "" || strings.Contains(s.Key, "[]"):
		return ""
	case !s.Agent:
		return homeExample(s)
	}
	if strings.HasPrefix(s.Key, "model") || s.Key == "memory_search" || s.Key == "hooks" || strings.HasPrefix(s.Key, config.ByProvider) { // config set does not change it
		return ""
	}
	value := s.Example
	if strings.ContainsAny(value, " *[]{}\"$") {
		value = "'" + value + "'"
	}
	return "agentctl config set alice " + strings.ReplaceAll(s.Key, config.ChannelName, "hook") + " " + value
}

// homeExample is the line of theclaw.yaml that gives a key of the home its example.
func homeExample(s config.Setting) string {
	group, _, nested := strings.Cut(s.Key, ".")
	if group == "storage" {
		var together []string // one is not valid without the other
		for _, in := range config.Explain(group) {
			together = append(together, strings.TrimPrefix(in.Key, group+".")+": "+in.Example)
		}
		return group + ": {" + strings.Join(together, ", ") + "}"
	}
	if !nested {
		return s.Key + ": " + s.Example
	}
	path := strings.Split(strings.NewReplacer(config.AccountName, "tg", config.ChannelName, sample(group)).Replace(s.Key), ".")
	line := path[len(path)-1] + ": " + s.Example
	if group == "channels" && len(path) == 3 && path[2] != "type" {
		of := "telegram"
		switch path[2] { // of one type alone
		case "url", "allow_private", "secret":
			of = "webhook"
		case "app_token":
			of = "slack"
		case "plugin":
			of = "plugin"
		}
		line = "type: " + of + ", " + line // it is required
	}
	if group == "mcp" && len(path) == 4 {
		switch path[3] { // a server has a command or a URL, and headers are for a URL
		case "command", "url":
		case "headers":
			line = "url: https://mcp.example.org/, " + line
		default:
			line = "command: [github-mcp-server, stdio], " + line
		}
	}
	if group == "tools" && len(path) == 4 && path[1] == "programs" {
		for _, required := range []string{"description: Makes a small copy of a picture.", `argv: [convert, "{file}", small.png]`} {
			if name, _, _ := strings.Cut(required, ":"); name != path[3] {
				line = required + ", " + line
			}
		}
		if path[3] != "schema" && path[3] != "input" { // a word with {file} needs the argument
			line += ", schema: {properties: {file: {type: string}}}"
		}
	}
	for i := len(path) - 2; i >= 0; i-- {
		line = path[i] + ": {" + line + "}"
	}
	return line
}

// sample is the name of an entry of the home in an example.
func sample(group string) string {
	if group == "tools" {
		return "resize"
	}
	return "github"
}

// brief is the first sentence of a text.
func brief(meaning string) string {
	if first, _, more := strings.Cut(meaning, ". "); more {
		return first + "."
	}
	return meaning
}

// indent breaks a text into lines below a title.
func indent(s string) string {
	lines := strings.Split(text.WrapSoft(s, command.Columns-4), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight("  "+line, " ")
	}
	return strings.Join(lines, "\n")
}

// allKeys are the keys and groups that can be explained.
func allKeys() (keys []string) {
	for _, s := range config.Settings() {
		keys = append(keys, s.Key)
	}
	return append(keys, config.Groups()...)
}

// noSetting is the error for a key that does not exist, with the nearest of those that do.
func noSetting(key string, among []string, fix string) error {
	if near := config.Nearest(key, among); near != "" {
		fix = "did you mean " + near + "? " + fix
	}
	return fault.New(codes.InvalidArgument, fault.InvalidArgument, fmt.Sprintf("there is no setting %q", config.Clip(key)), fix)
}

// completeKey offers the keys of settings, each with what it means.
func completeKey(typed string, list []config.Setting) (out []string) {
	for _, s := range list {
		if strings.HasPrefix(s.Key, typed) {
			out = append(out, s.Key+"\t"+brief(s.Meaning))
		}
	}
	return out
}

// completeSetting completes an agent, then a key of its settings, then a value where there
// is a fixed set.
func completeSetting(e *command.Env) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		switch len(args) {
		case 0:
			return e.CompleteID(c, args, typed)
		case 1:
			list := slices.DeleteFunc(config.Settings(), func(s config.Setting) bool {
				return !s.Agent || c.Name() == "set" && (s.Effect == config.EffectNever || strings.HasPrefix(s.Key, "model") || s.Key == "memory_search") || strings.ContainsAny(s.Key, "[N") // of a list, or of a channel without a name
			})
			return completeKey(typed, list), cobra.ShellCompDirectiveNoFileComp
		case 2:
			list := slices.DeleteFunc(config.Explain(args[1]), func(s config.Setting) bool { return !s.Agent })
			if len(list) == 1 && c.Name() == "set" {
				return slices.DeleteFunc(slices.Clone(list[0].Values), func(v string) bool { return !strings.HasPrefix(v, typed) }), cobra.ShellCompDirectiveNoFileComp
			}
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}
