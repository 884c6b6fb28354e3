package cluster

import (
	"context"
	"errors"
	"io"
	"maps"
	"os"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/backup"
	"github.com/theclaw/agents/internal/fault"
)

// Agents of a database leave it and come into it by way of a home of their own below
// run/, where nobody works: an archive is the same, wherever it was made.

// within lets fn use such a home. What a registry that is killed leaves of it is removed
// at its next start, as of any backup.
func (r *Registry) within(fn func(*agentdir.Home) error) (err error) {
	dir, err := os.MkdirTemp(r.home.RunDir(), backup.Scratch)
	if err != nil {
		return agentdir.Fault(err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	home, err := agentdir.OpenHome(dir)
	if err != nil {
		return err
	}
	home.UserHome = r.home.UserHome
	return errors.Join(fn(home), home.Close())
}

// Backup writes a backup of agents of the database, each at one instant.
func (r *Registry) Backup(ctx context.Context, out io.Writer, what backup.Selection) error {
	if len(what.Agents) == 0 {
		var err error
		if what.Agents, err = r.all(ctx); err != nil {
			return err
		}
	} else {
		for _, id := range what.Agents { // before much is written
			if _, err := r.Agent(ctx, id); err != nil {
				return err
			}
		}
	}
	return r.within(func(home *agentdir.Home) error {
		granted := map[string]uint64{}
		return backup.Write(ctx, out, backup.Source{
			Home: home,
			Bring: func(ctx context.Context, id string) error {
				tokens, err := r.copies.Lay(ctx, home, id, what.Workdir)
				maps.Copy(granted, tokens)
				return err
			},
			Tokens: func(context.Context) (map[string]uint64, error) { return granted, nil },
		}, what)
	})
}

func (r *Registry) all(ctx context.Context) (ids []string, err error) {
	const page = 1000
	for after := ""; ; after = ids[len(ids)-1] {
		some, err := r.Files.list(ctx, after, page)
		if err != nil {
			return nil, err
		}
		for _, a := range some {
			ids = append(ids, a.ID)
		}
		if len(some) < page {
			return ids, nil
		}
	}
}

// Restore brings the agents of a backup into the database, and sets those to work that
// worked. It replaces none: of rows nothing could be kept.
func (r *Registry) Restore(ctx context.Context, in io.Reader, what backup.Choice) (done []backup.Restored, err error) {
	if what.Replace {
		return nil, fault.New(codes.FailedPrecondition, fault.AgentExists, "agents in a database are not replaced, because the previous ones could not be kept",
			"back the old one up, remove it with 'agentctl rm', then restore without --replace")
	}
	what.Absent = r.copies.Absent
	err = r.within(func(home *agentdir.Home) error {
		if done, err = backup.Restore(ctx, in, home, what); err != nil {
			return err
		}
		return r.put(ctx, home, done)
	})
	if err != nil {
		return done, err
	}
	for _, d := range done {
		if a, err := r.Get(d.Agent); err == nil {
			_, _ = r.Agent(ctx, d.Agent) // a problem is in its status
			r.MarkDue(a)
		}
	}
	return done, nil
}

func (r *Registry) put(ctx context.Context, home *agentdir.Home, done []backup.Restored) error {
	ids := make([]string, len(done))
	for i, d := range done {
		ids[i] = d.Agent
	}
	r.making.RLock() // nobody is removed of a name that comes
	defer r.making.RUnlock()
	left, err := r.copies.Put(ctx, home, ids)
	for i, d := range done {
		done[i].Left = left[d.Agent]
		r.Files.forget(d.Agent)
	}
	return err
}
