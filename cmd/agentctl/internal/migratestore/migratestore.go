// Package migratestore implements the command `agentctl migrate-store`: it moves agents
// between a home on one machine and a database that registries share.
//
// Without --apply it does everything except the last step and leaves both sides as they
// were, except that an empty database gets its tables: what it reports was checked with
// the agent's own rows. In both modes it takes the home's lock, so that no registry has
// the agents open meanwhile.
//
// What is moved, and what is promised about it, is defined by package transfer.
package migratestore

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/cmd/agentctl/internal/homelock"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/reference"
	"github.com/theclaw/agents/internal/store/postgres/agents"
	"github.com/theclaw/agents/internal/store/postgres/pool"
	"github.com/theclaw/agents/internal/store/transfer"
)

const (
	toDatabase = "database"
	toHome     = "home"
)

// Command answers the command.
func Command(e *command.Env) *cobra.Command {
	m := &migration{env: e, to: command.Choice{Values: []string{toDatabase, toHome}}}
	var dsns []string
	c := &cobra.Command{
		Use:   "migrate-store [ID...]",
		Short: "Move agents between this home and shared databases",
		Long: `Move agents from this home into a PostgreSQL database that registries share, or
back. Without --apply everything except the last step is done: the agent is copied,
its hash chains are checked event by event, all rows are read back and compared,
and then the copy is rolled back; an empty database keeps the new, empty tables. With
--apply the copy is committed and the source is retired: a directory is renamed and
kept, rows of a database are deleted.

An agent moves completely or not at all. It must be stopped, and so must the services
of this home. Run the same command again to finish an interrupted move. The working
directory moves too, within workdir.max_mib; sessions and logs are not moved.

Put a URL with a password into the environment (--dsn env:NAME) or into a file
(--dsn file:PATH), as in storage.dsns; or put the password into PGPASSWORD or ~/.pgpass.
The exit code is 1 when an agent could not be moved; the others are still moved.`,
		Example: `  agentctl migrate-store alice --to database --dsn postgres://claw@db/claw
  agentctl migrate-store --all --to database --dsn postgres://claw@db/claw --apply
  agentctl migrate-store alice --to home --dsn postgres://claw@db/claw --apply
  agentctl migrate-store --all --to home --dsn env:THECLAW_DSN --json | jq '.agents[].digest'`,
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case m.all == (len(args) > 0):
				return command.Usage(c, "name agents, or give --all")
			case m.to.Value == "":
				return command.Usage(c, "say where to with --to database or --to home")
			case len(dsns) == 0:
				return command.Usage(c, "name the database with --dsn")
			}
			m.agents = args
			getenv, err := e.Secrets()
			if err != nil {
				return err
			}
			if m.dsn, err = reference.Database("", getenv, dsns); err != nil {
				return err
			}
			return m.run(c.Context())
		},
	}
	c.Flags().Var(&m.to, "to", "destination of the agents")
	command.TextsFlag(c.Flags(), &dsns, "dsn", command.Database, "the database, by URL, env:NAME or file:PATH")
	c.Flags().BoolVar(&m.all, "all", false, "all agents of the source")
	c.Flags().BoolVar(&m.apply, "apply", false, "make the change; without it, all but the last step is done")
	return c
}

type migration struct {
	env        *command.Env
	to         command.Choice
	dsn        string
	agents     []string
	all, apply bool
}

// outcome is what became of one agent.
type outcome struct {
	transfer.Report
	Error string `json:"error,omitempty"`
}

func (m *migration) run(ctx context.Context) (err error) {
	at, err := m.env.Home()
	if err != nil {
		return err
	}
	home, err := agentdir.OpenHome(at.Path())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, home.Close()) }()
	home.UserHome = m.env.Getenv("HOME")
	unlock, pid, err := homelock.Take(at)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if pid != "" {
		return fault.New(codes.FailedPrecondition, fault.HomeLocked, fmt.Sprintf("a registry serves %s (pid %s)", at.Path(), pid), "stop the services, then try again")
	}
	open := pool.Open
	if !m.apply { // a rehearsal brings it to no format that the registries may not know
		open = pool.Rehearse
	}
	db, err := open(ctx, m.dsn)
	if err != nil {
		return away(err)
	}
	defer db.Close()
	if m.all {
		if m.agents, err = m.list(ctx, home, agents.New(db)); err != nil {
			return err
		}
	}
	done := make([]outcome, 0, len(m.agents))
	failed := false
	for i, id := range m.agents {
		m.env.Note("%d of %d: %s ...", i+1, len(m.agents), id)
		move := transfer.Move{Home: home, Pool: db, Agent: id, Confirm: func(transfer.Report) bool { return m.apply }}
		one := move.ToDatabase
		if m.to.Value == toHome {
			one = move.ToHome
		}
		r, err := one(ctx)
		if err != nil && len(m.agents) == 1 {
			return err
		}
		r.Agent = id
		o := outcome{Report: r}
		if err != nil {
			failed, o.Error = true, fault.Line(err)
		}
		done = append(done, o)
		m.print(o)
		if ctx.Err() != nil {
			break // the rest is for the next run
		}
	}
	err = m.env.Print(struct {
		To     string    `json:"to"`
		Agents []outcome `json:"agents"`
	}{m.to.Value, done}, m.agents[:len(done)], func() error { return nil }) // each was printed when it was done
	if err == nil && failed {
		return &command.ReportedError{}
	}
	return err
}

func (m *migration) list(ctx context.Context, home *agentdir.Home, db *agents.DB) ([]string, error) {
	if m.to.Value == toDatabase {
		return home.IDs()
	}
	const page = 1000
	var out []string
	for after := ""; ; after = out[len(out)-1] {
		list, err := db.List(ctx, after, page)
		if err != nil {
			return nil, away(err)
		}
		for _, a := range list {
			out = append(out, a.ID)
		}
		if len(list) < page {
			break
		}
	}
	return out, nil
}

// away gives the error of a database that cannot be reached its name.
func away(err error) error {
	var f *fault.Error
	if errors.As(err, &f) || errors.Is(err, context.Canceled) {
		return err
	}
	return fault.Wrap(fault.New(codes.Unavailable, fault.ServiceUnavailable, "the database cannot be used", "check the URL, and that PostgreSQL runs and lets this user in"), err)
}

func (m *migration) print(o outcome) {
	if m.env.Data() {
		return
	}
	what := fmt.Sprintf("%d threads, %d events, %d rows, %d bytes, digest %.16s", o.Threads, o.Events, o.Rows, o.Bytes, o.Digest)
	if o.Left != "" {
		m.env.Note("%s: the working directory was not moved: %s", o.Agent, o.Left)
	}
	switch {
	case o.Error != "":
		fmt.Fprintln(m.env.Err, o.Agent+": "+o.Error)
	case !o.Moved:
		fmt.Fprintf(m.env.Out, "%s: %s: the same on both sides; nothing was changed, --apply moves it\n", o.Agent, what)
	case o.Kept != "":
		fmt.Fprintf(m.env.Out, "%s: %s: moved, the directory is kept in %s\n", o.Agent, what, o.Kept)
	default:
		fmt.Fprintf(m.env.Out, "%s: %s: moved\n", o.Agent, what)
	}
}
