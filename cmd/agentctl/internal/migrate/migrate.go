// Package migrate implements the command `agentctl migrate`: it converts directories that
// the earlier agent wrote.
//
// Without --apply it reports what it would do, and may do so while the services run.
// With --apply it takes the home's lock, so that no registry has the agent open or opens
// it meanwhile: the services must be stopped. It does not touch the directory of an
// earlier agent that is still running. With --undo it gives directories back to that
// agent.
//
// What is changed, and how, is defined by package legacy.
package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
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
	before := ""
	c := &cobra.Command{
		Use:   "migrate [ID]",
		Short: "Convert the data of an earlier agent version",
		Long: `Show what an earlier version of the agent wrote in another format and, with --apply,
convert it: settings, names of conversations and of memory files, an invalid filter, locks
of processes that no longer exist, file modes.

Messages that wait in an inbox, and replies that the earlier agent did not send, are shown:
they are answered and sent when the agent is started. --skip-before skips those that are
older than a time, or all of them, and records that.

Nothing is deleted: what is replaced is kept next to it under a name that ends in
.migrated-<time>. A second run finds nothing to do. Stop the services before --apply. What
needs your decision is listed and not changed. The exit code is 1 while something is left
to do, by this command or by you.

--undo gives a directory back to the earlier version: names, config.yaml and databases are
as that version knows them, with the events since. Settings changed since are kept next to
config.yaml. The account that 'agentctl explain' shows is removed.`,
		Example: `  agentctl migrate alice
  agentctl migrate --all --apply
  agentctl migrate alice --skip-before 24h --apply
  agentctl migrate --all --undo --apply
  agentctl migrate --all --json | jq '.changes[] | select(.do == "")'`,
		RunE: func(c *cobra.Command, args []string) error {
			if m.all == (len(args) == 1) {
				return command.Usage(c, "name one agent, or give --all")
			}
			if len(args) == 1 {
				m.agent = args[0]
			}
			m.now = time.Now()
			if err := m.skips(c, before); err != nil {
				return err
			}
			return m.run(c.Context())
		},
	}
	c.Flags().BoolVar(&m.all, "all", false, "all agents of the home")
	c.Flags().BoolVar(&m.apply, "apply", false, "make the changes; the services must be stopped")
	c.Flags().BoolVar(&m.undo, "undo", false, "give the directory back to the earlier version")
	command.TextFlag(c.Flags(), &before, "skip-before", command.Instant, "do not answer or send what is older than 24h, 7d, 2006-01-02 (UTC) or an instant; 'all': nothing that waits")
	return c
}

type migration struct {
	env              *command.Env
	home             layout.Home
	agent            string
	all, apply, undo bool
	live             bool
	now              time.Time
	skip             bool
	before           time.Time // zero with skip: all
}

// skips reads --skip-before.
func (m *migration) skips(c *cobra.Command, before string) error {
	if m.skip = c.Flags().Changed("skip-before"); !m.skip {
		return nil
	}
	if m.undo {
		return command.Usage(c, "--skip-before does not go with --undo")
	}
	if before == "all" {
		return nil
	}
	if before == "" {
		return command.Usage(c, "--skip-before is empty: give a time or 'all'")
	}
	var err error
	if m.before, err = command.Past(before, m.now); err != nil {
		return command.Usage(c, "--skip-before: %v", err)
	}
	return nil
}

func (m *migration) run(ctx context.Context) (err error) {
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
	left, waiting, did := found.changes, found.waiting, 0
	if m.apply {
		if did, err = legacy.Apply(ctx, found.changes, m.now); err != nil {
			return fmt.Errorf("%w (%d changes before it are done; the next run goes on)", agentdir.Fault(err), did)
		}
		skipped, err := m.skipWaiting(ctx, waiting)
		if err != nil {
			return err
		}
		if m.undo {
			left = open(found.changes)
		} else {
			// What could not be seen before, and that nothing is left to do.
			after, err := m.look(ctx, ids)
			if err != nil {
				return err
			}
			left, waiting = after.changes, after.waiting
		}
		for i, w := range waiting {
			waiting[i].SkipMessages, waiting[i].SkipReplies = skipped[w.Agent].SkipMessages, skipped[w.Agent].SkipReplies
			delete(skipped, w.Agent)
		}
		for _, id := range slices.Sorted(maps.Keys(skipped)) {
			waiting = append(waiting, skipped[id])
		}
	}
	return m.report(found.changes, left, waiting, did)
}

// skipWaiting skips what waits, and returns by agent what that was.
func (m *migration) skipWaiting(ctx context.Context, waiting []legacy.Waiting) (map[string]legacy.Waiting, error) {
	out := map[string]legacy.Waiting{}
	for _, w := range waiting {
		if w.SkipMessages+w.SkipReplies == 0 {
			continue
		}
		did, err := legacy.SkipWaiting(ctx, m.home, w.Agent, m.options())
		if err != nil {
			return nil, fmt.Errorf("%w (the next run goes on)", agentdir.Fault(err))
		}
		out[w.Agent] = did
	}
	return out, nil
}

func (m *migration) options() legacy.Options {
	return legacy.Options{Live: m.live, Now: m.now, Skips: m.skip, SkipBefore: m.before}
}

// open are the changes that only a person can make.
func open(changes []legacy.Change) (out []legacy.Change) {
	for _, c := range changes {
		if c.Do == "" {
			out = append(out, c)
		}
	}
	return out
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

// scanned is what was found of several agents.
type scanned struct {
	changes []legacy.Change
	waiting []legacy.Waiting
}

// look scans the agents. An earlier agent at work is not disturbed, and nothing of
// the others is done either: they may share a dispatcher.
func (m *migration) look(ctx context.Context, ids []string) (all scanned, err error) {
	scan := legacy.Scan
	if m.undo {
		scan = legacy.Undo // the modes of the home stay as they are
	} else if all.changes, err = legacy.ScanHome(m.home); err != nil {
		return all, agentdir.Fault(err)
	}
	for _, id := range ids {
		if pid := legacy.Busy(m.home, id); pid > 0 && m.apply {
			return all, fault.New(codes.FailedPrecondition, fault.LeaseHeld, fmt.Sprintf("process %d works for agent '%s'", pid, id), "stop it, then try again")
		}
		found, err := scan(ctx, m.home, id, m.options())
		if err != nil {
			return all, agentdir.Fault(err)
		}
		all.changes = append(all.changes, found.Changes...)
		if found.Waiting.Any() {
			all.waiting = append(all.waiting, found.Waiting)
		}
	}
	return all, nil
}

func (m *migration) report(found, left []legacy.Change, waiting []legacy.Waiting, did int) error {
	names := []string{}
	for _, c := range found {
		names = append(names, cmp.Or(c.Agent, "home"))
	}
	err := m.env.Print(struct {
		OK      bool             `json:"ok"`
		Applied bool             `json:"applied"`
		Done    int              `json:"done"`
		Changes []legacy.Change  `json:"changes"`
		Left    []legacy.Change  `json:"left"`
		Waiting []legacy.Waiting `json:"waiting"`
	}{len(left) == 0, m.apply, did, append([]legacy.Change{}, found...), append([]legacy.Change{}, left...), append([]legacy.Waiting{}, waiting...)},
		slices.Compact(names), func() error {
			m.print(found, left, waiting, did)
			return nil
		})
	if err == nil && len(left) > 0 {
		return &command.ReportedError{}
	}
	return err
}

// line prints one thing of an agent, or of the home for an empty one, and what is or can be done about it.
func (m *migration) line(mark, agent, what, then string) {
	fmt.Fprintf(m.env.Out, "%-8s  %s: %s\n%10s-> %s\n", mark, cmp.Or(agent, "the home"), screen.Line(what), "", screen.Line(then))
}

func (m *migration) print(found, left []legacy.Change, waiting []legacy.Waiting, did int) {
	will := "would do"
	if m.apply {
		will = "done"
	}
	for _, c := range found {
		if c.Do != "" {
			m.line(will, c.Agent, c.What, c.Do)
		}
	}
	for _, w := range waiting {
		if w.SkipMessages+w.SkipReplies > 0 {
			m.line(will, w.Agent, fmt.Sprintf("leaves %s unanswered and %s unsent", command.Count(w.SkipMessages, "message"), command.Count(w.SkipReplies, "reply", "replies")),
				"records them as "+legacy.Skipped)
		}
		for _, what := range w.Lines() {
			if m.skip && !m.apply {
				what += ", unless --apply skips it"
			}
			m.line("waits", w.Agent, what+"; the oldest is of "+w.Oldest, "to skip it: agentctl migrate "+w.Agent+" --skip-before TIME|all --apply")
		}
	}
	undecided := open(left)
	for _, c := range undecided {
		m.line("left", c.Agent, c.What, c.Fix)
	}
	switch n := len(left) - len(undecided); {
	case m.apply:
		fmt.Fprintf(m.env.Out, "%s done, %d left to you\n", command.Count(did, "change"), len(undecided))
	case n > 0:
		fmt.Fprintf(m.env.Out, "%s to do with --apply and the services stopped, %d left to you\n", command.Count(n, "change"), len(undecided))
	default:
		fmt.Fprintf(m.env.Out, "nothing to do, %d left to you\n", len(undecided))
	}
}
