package command

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/thread"
)

// Args checks the number of arguments: exactly those named, where a name in
// [brackets] may be missing and a last one that ends in ... may be repeated. What is
// named as in [operands] is checked as a text of that [Kind].
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
			return fault.Usage("the argument "+plainName(names[len(args)])+" is missing", tryHelp(c))
		case len(args) > most:
			return fault.Usage(fmt.Sprintf("there are %d arguments, %.80q is too many", len(args), args[most]),
				"quote text that has blanks; "+tryHelp(c))
		}
		kinds := Operands(c)
		for i, arg := range args {
			name := plainName(names[min(i, len(names)-1)])
			if k, ok := kinds[name]; ok {
				if err := k.verify("the argument "+name, arg, tryHelp(c)); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// plainName is the name of an argument as Args takes it, without brackets and dots.
func plainName(n string) string { return strings.TrimSuffix(strings.Trim(n, "[]"), "...") }

// prepare gives every command below c the check and the completion of the arguments that
// its first line of help names, and, for a line that is completed, the completion of its
// flags, unless it has its own. Cobra keeps the completions of flags, and with them their
// commands, as long as the process runs.
func prepare(e *Env, c *cobra.Command, completes bool) {
	for _, sub := range c.Commands() {
		prepare(e, sub, completes)
	}
	names := strings.Fields(c.Use)[1:]
	if c.Args == nil && c.Runnable() && !slices.Contains(names, "...") {
		c.Args = Args(names...)
		if c.ValidArgsFunction == nil && len(c.ValidArgs) == 0 {
			c.ValidArgsFunction = e.completeArgs(names)
		}
	}
	if completes {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) { e.completeFlag(c, f) })
	}
}

// ID checks an agent id; the error is one of usage.
func ID(id string) error { return usage(layout.ValidID(id)) }

// Thread checks a thread id; the error is one of usage.
func Thread(id string) error { return usage(layout.ValidThread(id)) }

// RunID checks the id of a run; the error is one of usage.
func RunID(id string) error {
	if _, ok := thread.KeyID(id); !ok {
		return fault.Usage(fmt.Sprintf("%.80q is not the id of a run", id), "'agentctl agent' prints it, and 'agentctl turns ID -o wide' lists them")
	}
	return nil
}

// MessageID reads what names a message: the id in the inbox that send prints, or a run id.
func MessageID(text string) (inbox int64, run string, err error) {
	if id, bad := strconv.ParseInt(text, 10, 64); bad == nil && id > 0 {
		return id, "", nil
	}
	if RunID(text) != nil {
		return 0, "", fault.Usage(fmt.Sprintf("%.80q is neither the id of a message nor a run id", text), "'agentctl send' prints the id, a number from 1; 'agentctl turns ID' lists them")
	}
	return 0, text, nil
}

// usage makes err one of usage.
func usage(err error) error {
	if err == nil {
		return nil
	}
	e := fault.From(err)
	return fault.Usage(e.What, e.Fix)
}

// Usage is the error of a wrong command line of c.
func Usage(c *cobra.Command, format string, args ...any) error {
	return fault.Usage(fmt.Sprintf(format, args...), tryHelp(c))
}

// Unasked is the error of a command that has to ask, where there is no terminal.
func Unasked(c *cobra.Command) error {
	return Usage(c, "--yes is missing: there is no terminal at which to ask")
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
	return fault.Usage(fmt.Sprintf("'%s' has no command %.80q", c.CommandPath(), verb), fix)
}

// Past reads a time in the past: a length of time before now (24h, 7d, 2h ago), a day of
// UTC (2006-01-02) or an instant (2006-01-02T15:04:05Z). Empty is the zero time.
func Past(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, form := range []string{time.DateOnly, time.RFC3339} {
		if at, err := time.Parse(form, text); err == nil {
			return at, nil
		}
	}
	if d, err := Duration(strings.TrimSuffix(text, " ago")); err == nil && d > 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, fmt.Errorf("%.40q is not a time: use a form such as 24h, 7d or %s", text, now.UTC().Format(time.DateOnly))
}

// Duration reads a length of time: 90s, 24h or days (7d), up to a hundred years.
func Duration(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n >= 0 && n <= 36_500 {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil {
		return d, nil
	}
	return 0, fmt.Errorf("%.40q is not a duration: use a form such as 90s, 24h or 7d", text)
}

// Count is a number of things in words: 1 agent, 2 agents; plural is for words that do
// not take an s.
func Count[N ~int | ~int32 | ~int64](n N, one string, plural ...string) string {
	many := one + "s"
	if len(plural) > 0 {
		many = plural[0]
	}
	if n == 1 {
		many = one
	}
	return fmt.Sprintf("%d %s", n, many)
}
