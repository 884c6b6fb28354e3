// Package migrate implements the command `agentctl migrate`: it converts directories that
// the earlier agent wrote.
//
// Without --apply it reports what it would do, and may do so while the services run.
// With --apply it takes the home's lock, so that no registry has the agent open or opens
// it meanwhile: the services must be stopped. It does not touch the directory of an
// earlier agent that is still running.
//
// What is changed, and how, is defined by package legacy.
package migrate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/cmd/agentctl/internal/homelock"
	"github.com/theclaw/agents/cmd/agentctl/internal/legacy"
	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/fault"
)

// Command answers the command.
func Command(e *command.Env) *cobra.Command {
	m := &migration{env: e}
	c := &cobra.Command{
		Use:   "migrate [ID]",
		Short: "Convert the data of an earlier agent version",
		Long: `Show what an earlier version of the agent wrote in another format and, with --apply,
convert it: settings, names of conversations and of memory files, an invalid filter, locks
of processes that no longer exist, file modes.

Nothing is deleted: what is replaced is kept next to it under a name that ends in
.migrated-<time>. A second run finds nothing to do. Stop the services before --apply. What
needs your decision is listed and not changed. The exit code is 1 while something is left
to do, by this command or by you.`,
		Example: `  agentctl migrate alice
  agentctl migrate --all --apply
  agentctl migrate --all --json | jq '.changes[] | select(.do == "")'`,
		Args: command.Args("[ID]"),
		RunE: func(c *cobra.Command, args []string) error {
			if m.all == (len(args) == 1) {
				return command.Usage(c, "name one agent, or give --all")
			}
			if len(args) == 1 {
				m.agent = args[0]
			}
			return m.run(c.Context())
		},
	}
	c.Flags().BoolVar(&m.all, "all", false, "all agents of the home")
	c.Flags().BoolVar(&m.apply, "apply", false, "make the changes; the services must be stopped")
	return c
}

type migration struct {
	env        *command.Env
	home       layout.Home
	agent      string
	all, apply bool
	live       bool
	now        time.Time
}

func (m *migration) run(ctx context.Context) (err error) {
	m.now = time.Now()
	if m.home, err = m.env.Home(); err != nil {
		return err
	}
	unlock, pid, err := homelock.Take(m.home)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if m.live = pid != ""; m.live && m.apply {
		return fault.New(codes.FailedPrecondition, fault.HomeLocked, fmt.Sprintf("a registry serves %s (pid %s)", m.home.Path(), pid),
			"stop it before --apply; without --apply it may run")
	}
	ids, err := m.ids()
	if err != nil {
		return err
	}
	found, err := m.look(ctx, ids)
	if err != nil {
		return err
	}
	left, did := found, 0
	if m.apply {
		if did, err = legacy.Apply(ctx, found, m.now); err != nil {
			return fmt.Errorf("%w (%d changes before it are done; the next run goes on)", agentdir.Fault(err), did)
		}
		// What could not be seen before, and that nothing is left to do.
		if left, err = m.look(ctx, ids); err != nil {
			return err
		}
	}
	return m.report(found, left, did)
}

// ids are the agents that are meant.
func (m *migration) ids() ([]string, error) {
	if !m.all {
		if _, err := os.Stat(m.home.AgentDir(m.agent)); errors.Is(err, fs.ErrNotExist) {
			return nil, fault.New(codes.NotFound, fault.AgentNotFound, "agent '"+m.agent+"' not found", "see 'agentctl list'")
		}
		return []string{m.agent}, nil
	}
	entries, err := os.ReadDir(m.home.AgentsDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, agentdir.Fault(err)
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() && layout.ValidID(e.Name()) == nil {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}

// look scans the agents. An earlier agent at work is not disturbed, and nothing of
// the others is done either: they may share a dispatcher.
func (m *migration) look(ctx context.Context, ids []string) ([]legacy.Change, error) {
	var all []legacy.Change
	for _, id := range ids {
		if pid := legacy.Busy(m.home, id); pid > 0 && m.apply {
			return nil, fault.New(codes.FailedPrecondition, fault.LeaseHeld, fmt.Sprintf("process %d works for agent '%s'", pid, id), "stop it, then try again")
		}
		changes, err := legacy.Scan(ctx, m.home, id, legacy.Options{Live: m.live, Now: m.now})
		if err != nil {
			return nil, agentdir.Fault(err)
		}
		all = append(all, changes...)
	}
	return all, nil
}

func (m *migration) report(found, left []legacy.Change, did int) error {
	if m.env.Flags.JSON {
		err := m.env.PrintJSON(struct {
			OK      bool            `json:"ok"`
			Applied bool            `json:"applied"`
			Done    int             `json:"done"`
			Changes []legacy.Change `json:"changes"`
			Left    []legacy.Change `json:"left"`
		}{len(left) == 0, m.apply, did, append([]legacy.Change{}, found...), append([]legacy.Change{}, left...)})
		if err != nil {
			return err
		}
	} else {
		m.print(found, left, did)
	}
	if len(left) > 0 {
		return &command.ReportedError{}
	}
	return nil
}

func (m *migration) print(found, left []legacy.Change, did int) {
	will := "would do"
	if m.apply {
		will = "done"
	}
	for _, c := range found {
		if c.Do != "" {
			fmt.Fprintf(m.env.Out, "%-8s  %s: %s\n%s-> %s\n", will, c.Agent, screen.Line(c.What), "          ", screen.Line(c.Do))
		}
	}
	open := 0
	for _, c := range left {
		if c.Do == "" {
			open++
			fmt.Fprintf(m.env.Out, "left      %s: %s\n%s-> %s\n", c.Agent, screen.Line(c.What), "          ", screen.Line(c.Fix))
		}
	}
	switch n := len(left) - open; {
	case m.apply:
		fmt.Fprintf(m.env.Out, "%d changes done, %d left to you\n", did, open)
	case n > 0:
		fmt.Fprintf(m.env.Out, "%d changes to do with --apply and the services stopped, %d left to you\n", n, open)
	default:
		fmt.Fprintf(m.env.Out, "nothing to do, %d left to you\n", open)
	}
}
