// Package transfer moves an agent from one storage engine to another: from a
// home on one machine (SQLite and files) to a database that registries share
// (PostgreSQL), and back.
//
//	source --rows--> target, not visible yet --rows read back--> compared
//	                                                                |
//	         confirmed: target visible, then the source is put away +
//	         not confirmed, killed, or not the same: target gone, source as it was
//
// What moves is all that decides what becomes of a message: the rows of every thread
// with their ids, times, keys, hashes and uuids, the tokens of the leases, and the text
// files (settings, identity, memory) and the media. The working directory goes as a snapshot, within
// the agent's workdir.max_mib; sessions, which are made again, and logs stay where they are.
//
// An agent is moved completely or not at all. The package promises that the chain of every thread
// is checked event by event on both sides; that all rows read back from the target have
// the digest of those of the source; and that a source is not touched before that, and
// not before the caller has said so. A directory is then renamed and kept; rows of a
// database are removed. A move that was killed between the two steps is finished by the
// next one, which finds both sides the same; when they are not, nothing is done.
//
// It opens databases of a home whose lock the caller holds, and rows of an agent that is
// stopped and has no live lease.
package transfer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/transfer/rows"
	"github.com/theclaw/agents/internal/workdir"
)

// Move is one agent on its way.
type Move struct {
	Home  *agentdir.Home
	Pool  *pgxpool.Pool // the database of the agent
	Agent string
	// Confirm is asked once both sides are the same; false leaves everything as it was.
	Confirm func(Report) bool

	live bool // it is copied, and may work
}

// Report is what a move has found.
type Report struct {
	Agent   string `json:"agent"`
	Threads int64  `json:"threads"`
	Events  int64  `json:"events"`
	Rows    int64  `json:"rows"`
	Bytes   int64  `json:"bytes"`
	Digest  string `json:"digest"` // of all rows, the same on both sides
	Moved   bool   `json:"moved"`
	Kept    string `json:"kept,omitempty"`         // where the source lies now
	Workdir int64  `json:"workdir_bytes"`          // of the working directory that were moved
	Left    string `json:"workdir_left,omitempty"` // why it was not, and is in Kept alone
}

var errNotConfirmed = errors.New("not confirmed")

// ToDatabase moves an agent from the home into the database. Errors: AGENT_NOT_FOUND,
// LEASE_HELD, AGENT_EXISTS (with other rows), DATABASE_CORRUPT.
func (m Move) ToDatabase(ctx context.Context) (r Report, err error) {
	a, err := m.Home.Load(m.Agent)
	if err != nil {
		return r, err
	}
	scratch, err := m.room()
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	from := &directory{home: m.Home, agent: m.Agent, path: a.Path, inbox: a.Inbox(), scratch: scratch}
	err = pgx.BeginFunc(ctx, m.Pool, func(tx pgx.Tx) error {
		to := &database{tx: tx, agent: m.Agent}
		there, err := to.claim(ctx)
		if err != nil {
			return err
		}
		var write func(rows.Row) error
		if !there {
			write = func(row rows.Row) error { return to.put(ctx, row) }
		}
		if r, err = m.same(ctx, from.read, write, to.read); err != nil {
			return err
		}
		if err := m.confirm(r); err != nil {
			return err
		}
		if r.Workdir, r.Left, err = importWorkdir(ctx, tx, m.Agent, a.Workdir(), workdir.Limits{MaxBytes: int64(a.Config.Workdir.MaxMiB) << 20, Ignore: strings.Fields(a.Config.Workdir.Ignore)}); err != nil {
			return err
		}
		if err := importMedia(ctx, tx, m.Agent, a.Path); err != nil {
			return err
		}
		return importHomeRows(ctx, tx, m.Agent, m.Home)
	})
	if err != nil {
		return r, m.unless(err)
	}
	r.Moved = true
	r.Kept, err = m.putAway()
	return r, err
}

// ToHome moves an agent from the database into the home; its rows in the database are
// removed. Errors: those of ToDatabase.
func (m Move) ToHome(ctx context.Context) (r Report, err error) {
	dir, err := m.Home.Agent(m.Agent)
	if err != nil {
		return r, err
	}
	scratch, err := m.room()
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	err = pgx.BeginFunc(ctx, m.Pool, func(tx pgx.Tx) error {
		from := &database{tx: tx, agent: m.Agent}
		if err := from.hold(ctx); err != nil {
			return err
		}
		if err := m.arrive(ctx, dir, from, scratch, &r); err != nil {
			return err
		}
		if r.Workdir, err = exportWorkdir(ctx, tx, m.Agent, dir.Path); err != nil {
			return err
		}
		if err := exportMedia(ctx, tx, m.Agent, dir.Path); err != nil {
			return err
		}
		if err := exportHomeRows(ctx, tx, m.Agent, m.Home); err != nil {
			return err
		}
		fault.Point("transfer:before-remove")
		return from.remove(ctx)
	})
	if err != nil {
		return r, m.unless(err)
	}
	r.Moved = true
	return r, nil
}

// room makes a directory for copies, and removes what a killed move has left of its own:
// the caller holds the home's lock, so nobody is at it.
func (m Move) room() (string, error) {
	const name = "transfer-"
	left, err := filepath.Glob(filepath.Join(m.Home.RunDir(), name+"*"))
	for _, dir := range left {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	dir, made := os.MkdirTemp(m.Home.RunDir(), name)
	if err := errors.Join(err, made); err != nil {
		return "", agentdir.Fault(fmt.Errorf("make room for copies: %w", err))
	}
	return dir, nil
}

// arrive makes the agent's directory, or finds the one that a killed move has made.
func (m Move) arrive(ctx context.Context, dir agentdir.Dir, from *database, scratch string, r *Report) error {
	if dir.Check() == nil {
		a, err := m.Home.Load(m.Agent)
		if err != nil {
			return err
		}
		to := &directory{home: m.Home, agent: m.Agent, path: a.Path, inbox: a.Inbox(), scratch: scratch, live: m.live}
		if *r, err = m.same(ctx, from.read, nil, to.read); err != nil {
			return err
		}
		return m.confirm(*r)
	}
	_, err := m.Home.Create(m.Agent, agentdir.Spec{Prepare: func(path string) (err error) {
		to := &directory{home: m.Home, agent: m.Agent, path: path, inbox: filepath.Join(path, "inbox"), scratch: scratch, live: m.live}
		if *r, err = m.same(ctx, from.read, func(row rows.Row) error { return to.put(ctx, row) }, to.finished); err != nil {
			return errors.Join(err, to.close())
		}
		return m.confirm(*r)
	}})
	if err != nil {
		return err
	}
	a, err := m.Home.Load(m.Agent)
	if err == nil && a.Inbox() != dir.Inbox() {
		err = fault.New(codes.FailedPrecondition, fault.ConfigInvalid, "agent '"+m.Agent+"' has its inbox elsewhere on one machine: inbox.path in its config.yaml",
			"take inbox.path out of its config.yaml, then move it")
	}
	if err != nil { // the rows are still where they were
		return errors.Join(err, os.RemoveAll(dir.Path))
	}
	return nil
}

// same reads the source, writes its rows where write is given, and compares what the
// target answers.
func (m Move) same(ctx context.Context, from func(context.Context, func(rows.Row) error) error, write func(rows.Row) error, to func(context.Context, func(rows.Row) error) error) (Report, error) {
	source, target := rows.NewSum(), rows.NewSum()
	err := from(ctx, func(row rows.Row) error {
		if err := source.Add(row); err != nil || write == nil {
			return err
		}
		return write(row)
	})
	if err != nil {
		return Report{}, fmt.Errorf("copy agent %s: %w", m.Agent, err)
	}
	fault.Point("transfer:copied")
	if err := to(ctx, target.Add); err != nil {
		return Report{}, fmt.Errorf("read agent %s back: %w", m.Agent, err)
	}
	r := Report{Agent: m.Agent, Threads: source.Threads, Events: source.Events, Rows: source.Rows, Bytes: source.Bytes, Digest: source.Digest()}
	switch {
	case r.Digest == target.Digest():
		return r, nil
	case write == nil:
		return r, fault.New(codes.AlreadyExists, fault.AgentExists, fmt.Sprintf("agent '%s' is on both sides, and they are not the same", m.Agent),
			"remove the one that is older, then try again")
	}
	return r, fault.New(codes.DataLoss, fault.DatabaseCorrupt, fmt.Sprintf("the copy of agent '%s' is not the same: %s", m.Agent, target.Differs(source)),
		"nothing was changed; run 'agentctl fsck --agent "+m.Agent+"'")
}

func (m Move) confirm(r Report) error {
	if m.Confirm == nil || !m.Confirm(r) {
		return errNotConfirmed
	}
	return nil
}

// unless takes a move that was not confirmed for one that is done with, and gives what
// went wrong its name.
func (m Move) unless(err error) error {
	switch {
	case errors.Is(err, errNotConfirmed):
		return nil
	case errors.Is(err, store.ErrCorrupt):
		return fault.Wrap(fault.New(codes.DataLoss, fault.DatabaseCorrupt, "agent '"+m.Agent+"' has a damaged database",
			"run 'agentctl fsck --agent "+m.Agent+"' where it is; nothing was changed"), err)
	}
	return agentdir.Fault(err)
}

// putAway renames the directory of an agent that lives elsewhere now.
func (m Move) putAway() (string, error) {
	fault.Point("transfer:before-put-away")
	from := m.Home.AgentDir(m.Agent)
	to := filepath.Join(m.Home.AgentsDir(), "."+m.Agent+".moved-"+time.Now().UTC().Format("20060102T150405.000000000Z"))
	err := os.Rename(from, to)
	if err == nil {
		err = syncDir(m.Home.AgentsDir())
	}
	if err != nil {
		return "", fmt.Errorf("put %s away: %w", from, agentdir.Fault(err))
	}
	return to, nil
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func started(agent string) error {
	return fault.New(codes.FailedPrecondition, fault.LeaseHeld, "agent '"+agent+"' is started", "run 'agentctl stop "+agent+"' first; start it where it is then")
}
