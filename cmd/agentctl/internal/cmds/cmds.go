// Package cmds implements the command `agentctl cmds`: it finds the program for a task
// described in words. It behaves like the external cmds tool (CONTRACTS 5) over a table
// of its own, so that there is an answer where that tool is not installed.
//
// It promises to name only programs that are on the PATH now, the best match first.
// There is no index and nothing to rescan: each query reads the PATH.
//
// It runs no program, and does not know what is not in its table.
package cmds

import (
	"cmp"
	_ "embed"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/fault"
)

//go:embed commands.tsv
var table string

// program is a command as it is told.
type program struct {
	Name        string `json:"name"`
	Category    string `json:"category"`
	Description string `json:"description"`
	Path        string `json:"path"`
}

// Command answers the command cmds.
func Command(e *command.Env) *cobra.Command {
	return command.Group(e, &cobra.Command{
		Use:   "cmds",
		Short: "Find the program for a task",
		Example: `  agentctl cmds find "large files"
  agentctl cmds list --category text`,
	}, findCommand(e), infoCommand(e), listCommand(e))
}

func findCommand(e *command.Env) *cobra.Command {
	limit := 5
	c := &cobra.Command{
		Use:   "find WORDS",
		Short: "Find programs by a description of the task",
		Long: `Print the programs on this machine that match the description, the best match first.
The exit code is 1 when there is none.`,
		Example: `  agentctl cmds find "large files"
  agentctl cmds find "replace text" --limit 3 --json`,
		RunE: func(c *cobra.Command, args []string) error {
			found := find(installed(e.Getenv("PATH")), args[0])
			if len(found) == 0 {
				return none("no program here is known to do that", "say it in other words, or see 'agentctl cmds list'")
			}
			found = found[:min(limit, len(found))]
			return show(e, found, found)
		},
	}
	command.NumberFlag(c, &limit, "limit", 1, 1000, "maximum number of programs")
	return c
}

func infoCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:     "info NAME",
		Short:   "Describe what a program does",
		Example: `  agentctl cmds info du`,
		RunE: func(_ *cobra.Command, args []string) error {
			for _, p := range installed(e.Getenv("PATH")) {
				if p.Name != args[0] {
					continue
				}
				return show(e, p, []program{p})
			}
			return none("nothing is known of "+args[0]+" here", "see 'agentctl cmds list'")
		},
	}
}

func listCommand(e *command.Env) *cobra.Command {
	var category string
	c := &cobra.Command{
		Use:   "list",
		Short: "List the known programs that are installed",
		Example: `  agentctl cmds list
  agentctl cmds list --category file --json`,
		RunE: func(*cobra.Command, []string) error {
			all := slices.DeleteFunc(installed(e.Getenv("PATH")), func(p program) bool { return category != "" && p.Category != category })
			if len(all) == 0 {
				return none("no such program is installed", "leave out --category, or look at PATH")
			}
			return show(e, all, all)
		},
	}
	command.TextFlag(c.Flags(), &category, "category", command.Name, "only this category, such as file or text")
	return c
}

func none(what, fix string) error { return fault.New(codes.NotFound, fault.InvalidArgument, what, fix) }

func show(e *command.Env, data any, programs []program) error {
	t := screen.NewTable(e, "name", "category", "path", "does").Wide("path").Data(data)
	return screen.List(t, programs, func(p program) []any { return []any{p.Name, p.Category, p.Path, p.Description} })
}

// installed are the programs of the table that are on a PATH, by name.
func installed(path string) (all []program) {
	for line := range strings.Lines(table) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		for _, dir := range filepath.SplitList(path) {
			file := filepath.Join(dir, f[0])
			if st, err := os.Stat(file); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
				all = append(all, program{f[0], f[1], f[2], file})
				break
			}
		}
	}
	return all
}

// find are the programs of which words of a query are told, the best first. A word
// that is told of few programs says more than one that is told of many.
func find(all []program, query string) []program {
	known, told := make(map[string][]string, len(all)), map[string]int{}
	for _, p := range all {
		k := append(words(p.Description), words(p.Name+" "+p.Category)...)
		slices.Sort(k)
		known[p.Name] = slices.Compact(k)
		for _, w := range known[p.Name] {
			told[w]++
		}
	}
	score := func(p program) (sum float64) {
		for _, w := range words(query) {
			if slices.Contains(known[p.Name], w) {
				sum += 1 / float64(told[w])
			}
		}
		return sum
	}
	found := slices.DeleteFunc(slices.Clone(all), func(p program) bool { return score(p) == 0 })
	slices.SortStableFunc(found, func(a, b program) int { return cmp.Compare(score(b), score(a)) })
	for i, p := range found {
		if score(p) < score(found[0])/4 {
			return found[:i] // the rest only shares a common word
		}
	}
	return found
}

// idle words say nothing about a task.
var idle = strings.Fields("a an and the of to in on by for from with my me i how do does all is are what which or it its as")

// words are those of a text that mean something, without the s of many.
func words(text string) (out []string) {
	for _, w := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r < 0x80 }) {
		if slices.Contains(idle, w) {
			continue
		}
		if len(w) > 3 && !strings.HasSuffix(w, "ss") {
			w = strings.TrimSuffix(w, "s")
		}
		out = append(out, w)
	}
	return out
}
