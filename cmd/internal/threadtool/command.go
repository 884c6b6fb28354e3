package threadtool

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/cmd/internal/threadtool/access"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/filter"
)

// Version is what `thread --version` says: the release of the tool whose
// contract this keeps. Others decide by it what they can ask for.
const Version = "1.0.9"

// New makes the root command.
func New(e *command.Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "thread",
		Short: "Read and write thread directories",
		Long: `Read and write thread directories: an append-only log of events and its consumers.

Exit codes: 0 success, 1 failure, 2 invalid command line, filter or database.`,
		Example: `  thread init ./t
  thread push --thread ./t --source self --type message --content hello
  thread peek --thread ./t --last-event-id 0`,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	command.Prepare(c, e)
	version := c.Flags().BoolP("version", "V", false, "print the version of the implemented contract")
	command.Group(e, c,
		initCommand(e), pushCommand(e), peekCommand(e), popCommand(e), subscribeCommand(e), unsubscribeCommand(e), infoCommand(e), dispatchCommand(e))
	group := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if *version {
			_, err := fmt.Fprintln(e.Out, Version)
			return err
		}
		return group(c, args)
	}
	command.Help(c, "push")
	return c
}

// target is the flag --thread.
type target struct{ path string }

func (t *target) flag(c *cobra.Command) {
	command.TextFlag(c.Flags(), &t.path, "thread", command.Path, "directory of the thread")
	_ = c.MarkFlagDirname("thread") // fails only for a flag that is not there
}

// with opens the thread and gives it to do.
func (t *target) with(c *cobra.Command, e *command.Env, do func(access.Conn, access.Place) error) (err error) {
	p, err := place(c, e, t.path)
	if err != nil {
		return err
	}
	d, err := access.Open(c.Context(), e, p)
	if err != nil {
		return exit(err)
	}
	defer func() { err = exit(errors.Join(err, d.Close())) }()
	return do(d, p)
}

func place(c *cobra.Command, e *command.Env, path string) (access.Place, error) {
	if path == "" {
		return access.Place{}, command.Usage(c, "--thread is missing")
	}
	return access.At(e, path)
}

// databases are the reasons for which the tool's exit code is 2: what it gets
// from SQLite, and what it cannot parse. Its callers decide by the code.
var databases = map[string]bool{
	fault.FilterInvalid: true, fault.InvalidArgument: true, fault.EventTooLarge: true, fault.DiskFull: true, fault.ReadOnly: true,
	fault.DatabaseCorrupt: true, fault.FormatMismatch: true, fault.AgentFailed: true, fault.Internal: true,
}

// exit gives err the exit code that the tool has for it.
func exit(err error) error {
	if err == nil {
		return nil
	}
	if f := fault.From(err); databases[f.Reason] && !isContext(err) {
		return fault.Wrap(fault.Usage(f.What, f.Fix), err)
	}
	return err
}

func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// number is a flag for a whole number in decimal digits.
type number struct {
	value, least int64
	given        bool
}

// String, Set and Type make a number a flag.
func (n *number) String() string { return strconv.FormatInt(n.value, 10) }

func (n *number) Set(s string) error {
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil || v < n.least || strings.HasPrefix(s, "+") {
		return fmt.Errorf("it must be a whole number, %d or more", n.least)
	}
	n.value, n.given = v, true
	return nil
}

func (n *number) Type() string { return "N" }

func parseFilter(c *cobra.Command, text string) (*filter.Filter, error) {
	if text == "" {
		return nil, nil
	}
	f, err := filter.Parse(text)
	if err != nil {
		e := fault.From(err)
		fix := e.Fix
		if fix == "" {
			fix = "see '" + c.CommandPath() + " --help'"
		}
		return nil, fault.Usage(e.What, fix)
	}
	return f, nil
}
