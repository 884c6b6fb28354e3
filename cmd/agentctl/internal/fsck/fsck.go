// Package fsck implements the command `agentctl fsck`: it checks the promises about
// messages in the files themselves, and repairs what can be repaired.
//
// It needs no running service: it takes the home's lock, so that none starts meanwhile.
// Where a registry runs it reports that, reads each database at one state and changes
// nothing. It exits with 1 when it finds a violation or a warning, and after a repair when
// one remains or a part of the repair failed; notes do not count.
//
// The promises are defined by package invariant, the repairs by package repair.
package fsck

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/cmd/agentctl/internal/homelock"
	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/invariant/repair"
)

// Command answers the command.
func Command(e *command.Env) *cobra.Command {
	x := &examination{env: e}
	c := &cobra.Command{
		Use:   "fsck",
		Short: "Check the databases and files of the home, and repair them",
		Long: `Check that no message is lost or answered twice, that every event is unchanged, and that
nobody else can read the files; show for each finding what to do. It needs no running
services; while a registry runs, nothing is repaired.

With --repair file modes, missing tables and indexes, fences and events.jsonl are
repaired, leftovers of interrupted writes are removed, and a damaged database is replaced
by a new one with everything that can still be read and verified. The damaged file is
kept as events.db.corrupt-<time>. The exit code is 1 when there is a violation or a warning
(with --repair: when one remains, or something could not be repaired); notes do not count.
What cannot be read is reported, and the rest is still checked.

Where several registries store the agents in PostgreSQL the database is checked at one
instant, while they run; of the home only the files are checked. A PostgreSQL database is
never repaired.`,
		Example: `  agentctl fsck
  agentctl fsck --agent alice --repair
  agentctl fsck --dsn postgres://claw@db/claw
  agentctl fsck --json | jq '.findings[]'`,
		RunE: func(c *cobra.Command, _ []string) error { return x.run(c.Context()) },
	}
	command.AgentFlag(c, &x.agent, "only this agent")
	command.TextsFlag(c.Flags(), &x.dsns, "dsn", command.Database, "database to check, by URL, env:NAME or file:PATH (default storage.dsns of theclaw.yaml)")
	c.Flags().BoolVar(&x.repair, "repair", false, "repair what can be repaired")
	return c
}

// examination is one run of the command; what it found is what --json prints.
type examination struct {
	env    *command.Env
	home   layout.Home
	agent  string
	dsns   []string
	repair bool

	live     bool
	stats    invariant.Stats
	findings []invariant.Finding
	actions  []repair.Action
}

func (x *examination) run(ctx context.Context) (err error) {
	if x.home, err = x.env.Home(); err != nil {
		return err
	}
	url, err := x.database()
	if err != nil {
		return err
	}
	if url != "" {
		return x.shared(ctx, url)
	}
	if _, err := os.Stat(x.home.Path()); errors.Is(err, fs.ErrNotExist) {
		return fault.New(codes.FailedPrecondition, fault.InvalidArgument, "there is no home at "+x.home.Path(), "set THECLAW_HOME or --home to the directory that 'agentd all' serves")
	} else if err != nil {
		return agentdir.Fault(fmt.Errorf("open home: %w", err))
	}
	unlock, pid, err := homelock.Take(x.home)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if x.live = pid != ""; x.live {
		running := fmt.Sprintf("a registry serves %s (pid %s)", x.home.Path(), pid)
		if x.repair {
			return fault.New(codes.FailedPrecondition, fault.HomeLocked, running, "stop it before a repair; without --repair it is checked as it runs")
		}
		x.env.Note("%s: what it is just writing may not be checked, nothing is changed", running)
	}
	if x.repair {
		x.actions, err = repair.Home(ctx, x.home, repair.Options{Agent: x.agent, UserHome: x.env.Getenv("HOME")})
		if err != nil {
			return x.known(err)
		}
	}
	x.findings, x.stats, err = invariant.Check(ctx, x.home, invariant.Options{Agent: x.agent, Live: x.live, UserHome: x.env.Getenv("HOME")})
	if err != nil {
		return x.known(err)
	}
	return x.report()
}

// shared checks a database; who else works in it cannot be told from here.
func (x *examination) shared(ctx context.Context, url string) (err error) {
	if x.repair {
		return fault.New(codes.FailedPrecondition, fault.InvalidArgument, "a PostgreSQL database is not repaired", "check it without --repair, and restore what is damaged from the database's own backup")
	}
	x.live = true
	x.env.Note("checking the database as registries work in it")
	x.findings, x.stats, err = invariant.Check(ctx, x.home, invariant.Options{Agent: x.agent, Live: true, UserHome: x.env.Getenv("HOME"), DSN: url})
	if errors.Is(err, fs.ErrNotExist) {
		return x.known(err)
	}
	if err != nil {
		return away(err)
	}
	return x.report()
}

func (x *examination) known(err error) error {
	if x.agent != "" && errors.Is(err, fs.ErrNotExist) {
		return fault.New(codes.NotFound, fault.AgentNotFound, "agent '"+x.agent+"' not found", "see 'agentctl list'")
	}
	return agentdir.Fault(err)
}

func (x *examination) report() error {
	if err := x.print(); err != nil {
		return err
	}
	if !x.ok() {
		return &command.ReportedError{}
	}
	return nil
}

// ok reports whether nothing has to be done.
func (x *examination) ok() bool {
	return !slices.ContainsFunc(x.findings, func(f invariant.Finding) bool { return f.Severity != invariant.Note }) &&
		!slices.ContainsFunc(x.actions, func(a repair.Action) bool { return a.Error != "" })
}

func (x *examination) print() error {
	for _, a := range x.actions {
		if x.env.Data() {
			break
		}
		what := strings.TrimSpace(strings.Trim(a.Agent+"/"+a.Thread, "/") + " " + a.What)
		if a.Error != "" {
			fmt.Fprintf(x.env.Out, "failed    %s: %s\n", screen.Line(what), screen.Line(a.Error))
			continue
		}
		fmt.Fprintf(x.env.Out, "repaired  %s\n", screen.Line(what))
	}
	s := x.stats
	t := screen.NewTable(x.env, "invariant", "severity", "agent", "thread", "what", "fix").Drop("severity", "thread", "fix").Cut("what").Data(struct {
		OK         bool                `json:"ok"`
		Live       bool                `json:"live"`
		Findings   []invariant.Finding `json:"findings"`
		Actions    []repair.Action     `json:"actions"`
		Agents     int                 `json:"agents"`
		Databases  int                 `json:"databases"`
		Events     int                 `json:"events"`
		Turns      int                 `json:"turns"`
		Deliveries int                 `json:"deliveries"`
		Files      int                 `json:"files"`
	}{
		x.ok(), x.live, append([]invariant.Finding{}, x.findings...), append([]repair.Action{}, x.actions...),
		s.Agents, s.Databases, s.Events, s.Turns, s.Deliveries, s.Files,
	}).Then(func() {
		fmt.Fprintf(x.env.Out, "%s: %s, %s, %s, %s, %s, %s\n", command.Count(len(x.findings), "finding"), command.Count(s.Agents, "agent"),
			command.Count(s.Databases, "database"), command.Count(s.Events, "event"), command.Count(s.Turns, "turn"),
			command.Count(s.Deliveries, "delivery", "deliveries"), command.Count(s.Files, "file"))
	})
	return screen.List(t, x.findings, func(f invariant.Finding) []any {
		return []any{f.Invariant, f.Severity, f.Agent, f.Thread, f.What, f.Fix}
	})
}
