package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/theclaw/agents/internal/fault"
)

// Columns is the width that help fits into; examples stay as they are pasted.
const Columns = 80

// Prepare gives a root command its streams and its errors.
func Prepare(root *cobra.Command, e *Env) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetIn(e.In)
	root.SetOut(e.Out)
	root.SetErr(e.Err)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if f := new(fault.Error); errors.As(err, &f) { // it has advice of its own
			return fault.Usage(flagText(err), cmp.Or(f.Fix, tryHelp(c)))
		}
		fix := tryHelp(c)
		if unknown := new(pflag.NotExistError); errors.As(err, &unknown) {
			fix += "; before an argument that begins with a dash write --"
		}
		return fault.Usage(flagText(err), fix)
	})
}

// flagText says "the value of --kind ..." instead of pflag's longer words.
func flagText(err error) string {
	var bad *pflag.InvalidValueError
	if errors.As(err, &bad) {
		why, value := errors.Unwrap(bad).Error(), fmt.Sprintf(" %.40q", bad.GetValue())
		if number := new(strconv.NumError); errors.As(err, &number) { // it has the words of a library
			if why = "it is not a whole number in range"; bad.GetFlag().Value.Type() == "bool" {
				why = "use true or false"
			}
		}
		if f := new(fault.Error); errors.As(err, &f) || strings.HasPrefix(" "+why, value) { // it names the value itself
			value = ""
		}
		return "--" + bad.GetFlag().Name + value + ": " + why
	}
	if missing := new(pflag.ValueRequiredError); errors.As(err, &missing) {
		return "--" + missing.GetFlag().Name + " has no value"
	}
	if unknown := new(pflag.NotExistError); errors.As(err, &unknown) {
		name := "--" + unknown.GetSpecifiedName()
		if letters := unknown.GetSpecifiedShortnames(); letters != "" {
			name = "-" + letters
		}
		return fmt.Sprintf("unknown flag %.40q", name)
	}
	return fmt.Sprintf("%.200q", err.Error())
}

// Help gives a root command that has all its commands its help: the command help,
// whose example is about topic, and texts that fit into [Columns].
func Help(root *cobra.Command, topic string) {
	root.SetHelpCommand(helpCommand(root, topic))
	root.SetUsageFunc(wrapUsage(root.UsageFunc()))
	own := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		c.Long = fit(c.Long)
		own(c, args)
	})
}

// wrapUsage is cobra's own, with flags that fit into [Columns]. Cobra's way is another
// template: it links text/template, which calls methods by name, and with it every
// exported method of every type that is linked stays in the program.
func wrapUsage(own func(*cobra.Command) error) func(*cobra.Command) error {
	return func(c *cobra.Command) error {
		out := c.OutOrStderr()
		var b strings.Builder
		c.SetOut(&b)
		err := own(c)
		c.SetOut(out)
		if err != nil {
			return err
		}
		text := b.String()
		for _, flags := range []*pflag.FlagSet{c.LocalFlags(), c.InheritedFlags()} {
			if wide := strings.TrimRight(flags.FlagUsages(), " \n"); wide != "" {
				text = strings.Replace(text, wide, strings.TrimRight(flags.FlagUsagesWrapped(Columns), " \n"), 1)
			}
		}
		const more = " for more information about a command."
		if last := text[strings.LastIndexByte(strings.TrimRight(text, "\n"), '\n')+1:]; len(strings.TrimSpace(last)) > Columns {
			text = strings.Replace(text, more, " for more.", 1)
		}
		_, err = io.WriteString(out, text)
		return err
	}
}

// Run runs one command line and answers its exit code: 0, 1 for a failure, 2 for a
// wrong command line. SIGINT and SIGTERM cancel what it waits for.
func Run(e *Env, root *cobra.Command, args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	code := e.Report(Execute(ctx, e, root, args))
	if err := e.Close(); err != nil && code == 0 {
		e.Flags.JSON = false // standard output is what failed
		code = e.Report(err)
	}
	return code
}

// Execute runs one command line after every command of it has got the checks and the
// completion of its arguments; whatever cobra itself refuses is an error of usage.
func Execute(ctx context.Context, e *Env, root *cobra.Command, args []string) error {
	prepare(e, root, len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd))
	root.SetArgs(negative(args))
	err := root.ExecuteContext(ctx)
	var f *fault.Error
	if err != nil && !ran(root, args) && !errors.As(err, &f) {
		return fault.Usage(err.Error(), "see '"+root.Name()+" --help'")
	}
	return err
}

var negativeNumber = regexp.MustCompile(`^-[0-9][0-9.a-zµ]*$`)

// negative lets a last argument be a negative number or duration, which reads like a flag
// of one letter: no flag is a digit.
func negative(args []string) []string {
	n := slices.IndexFunc(args, negativeNumber.MatchString)
	if n < 1 || slices.Contains(args[:n], "--") || strings.HasPrefix(args[n-1], "-") { // the value of a flag
		return args
	}
	if slices.ContainsFunc(args[n+1:], func(a string) bool { return !strings.HasPrefix(a, "-") }) {
		return args // moved behind another argument it would be another one: 'send -1 hello' is no message to hello
	}
	return append(slices.Delete(slices.Clone(args), n, n+1), "--", args[n])
}

// ran tells whether an error came out of a command and not out of cobra's own
// reading of the line; cobra only fails that way for required flags and groups,
// which are not used here.
func ran(root *cobra.Command, args []string) bool {
	_, _, err := root.Find(args)
	return err == nil
}

// helpCommand is cobra's, except that a topic it does not know is an error.
func helpCommand(root *cobra.Command, topic string) *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND...]",
		Short:   "Show the help of a command",
		Example: "  " + root.Name() + " help " + topic,
		RunE: func(_ *cobra.Command, args []string) error {
			c, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				if c == nil {
					c = root
				}
				return Unknown(c, append(rest, args...)[0])
			}
			c.InitDefaultHelpFlag()
			return c.Help()
		},
	}
}

// fit breaks a text where the columns end.
func fit(text string) string {
	parts := strings.Split(text, "\n\n")
	for i, p := range parts {
		if !strings.Contains("\n"+p, "\n ") { // lines that are indented stand as they are
			parts[i] = fill(p)
		}
	}
	return strings.Join(parts, "\n\n")
}

// fill is a paragraph in lines of at most Columns-1, so that no terminal adds an
// empty one.
func fill(text string) string {
	var b strings.Builder
	wide := 0
	for _, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case wide == 0:
		case wide+1+n < Columns:
			b.WriteByte(' ')
			wide++
		default:
			b.WriteByte('\n')
			wide = 0
		}
		b.WriteString(word)
		wide += n
	}
	return b.String()
}
