package command

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/fault"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Args checks the number of arguments: exactly those named, where a name in
// [brackets] may be missing and a last one that ends in ... may be repeated.
// Arguments named ID are checked to be agent ids.
func Args(names ...string) cobra.PositionalArgs {
	least, most := 0, len(names)
	for _, n := range names {
		if !strings.HasPrefix(n, "[") {
			least++
		}
		if strings.Contains(n, "...") {
			most = 1 << 20
		}
	}
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return fault.Usage("the argument "+names[len(args)]+" is missing", tryHelp(c))
		case len(args) > most:
			return fault.Usage(fmt.Sprintf("there are %d arguments, %q is too many", len(args), args[most]),
				"quote text that has blanks; "+tryHelp(c))
		}
		for i, arg := range args {
			if n := names[min(i, len(names)-1)]; strings.TrimSuffix(strings.Trim(n, "[]"), "...") != "ID" {
				continue
			}
			if err := ID(arg); err != nil {
				return err
			}
		}
		return nil
	}
}

// ID checks an agent id; the error is one of usage.
func ID(id string) error {
	if err := layout.ValidID(id); err != nil {
		e := fault.From(err)
		return fault.Usage(e.What, e.Fix)
	}
	return nil
}

// Usage is the error of a wrong command line of c.
func Usage(c *cobra.Command, format string, args ...any) error {
	return fault.Usage(fmt.Sprintf(format, args...), tryHelp(c))
}

func tryHelp(c *cobra.Command) string { return "see '" + c.CommandPath() + " --help'" }

// Group makes c a command that only has subcommands: alone it shows its help on
// standard error, with a verb it does not know it names near ones.
func Group(e *Env, c *cobra.Command, subs ...*cobra.Command) *cobra.Command {
	c.AddCommand(subs...)
	c.Args = cobra.ArbitraryArgs
	c.SuggestionsMinimumDistance = 2
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			if !e.Flags.JSON {
				c.SetOut(e.Err)
				_ = c.Help()
			}
			return fault.Usage("no command given to '"+c.CommandPath()+"'", tryHelp(c))
		}
		return Unknown(c, args[0])
	}
	return c
}

// Unknown is the error for a verb that c does not have.
func Unknown(c *cobra.Command, verb string) error {
	fix := tryHelp(c)
	if near := c.SuggestionsFor(verb); len(near) > 0 {
		slices.Sort(near)
		fix = "did you mean '" + strings.Join(near, "' or '") + "'?"
	}
	return fault.Usage(fmt.Sprintf("'%s' has no command %q", c.CommandPath(), verb), fix)
}

// Choice is a flag with a fixed set of values.
type Choice struct {
	Value  string
	Values []string
}

// String, Set and Type make a Choice a flag.
func (c *Choice) String() string { return c.Value }

// Set refuses what is not one of the values.
func (c *Choice) Set(s string) error {
	if !slices.Contains(c.Values, s) {
		return fmt.Errorf("use %s", strings.Join(c.Values, " or "))
	}
	c.Value = s
	return nil
}

// Type is what help shows for the value.
func (c *Choice) Type() string { return strings.Join(c.Values, "|") }

// CompleteID completes the first argument with the agents there are; when the
// registry does not answer there is nothing to offer.
func (e *Env) CompleteID(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	e.Impatient = true
	list, err := e.Agents().ListAgents(c.Context(), &registry.ListAgentsRequest{})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var ids []string
	for _, a := range list.GetAgents() {
		if strings.HasPrefix(a.GetAgentId(), typed) {
			ids = append(ids, a.GetAgentId())
		}
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}

// Thread checks a thread id; the error is one of usage.
func Thread(id string) error {
	if err := layout.ValidThread(id); err != nil {
		e := fault.From(err)
		return fault.Usage(e.What, e.Fix)
	}
	return nil
}

// Past reads a time in the past: a length of time before now (24h, 7d), a day of UTC
// (2006-01-02) or an instant (2006-01-02T15:04:05Z). Empty is the zero time.
func Past(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, form := range []string{time.DateOnly, time.RFC3339} {
		if at, err := time.Parse(form, text); err == nil {
			return at, nil
		}
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n > 0 && n <= 36_500 {
			return now.AddDate(0, 0, -n), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, fmt.Errorf("%.40q is no time such as 24h, 7d or %s", text, now.UTC().Format(time.DateOnly))
}
