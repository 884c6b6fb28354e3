package agentapi

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
	"github.com/theclaw/agents/internal/store/transfer"
)

// Agents of a database leave it and come into it by way of a home of their own below
// run/, where nobody works: an archive is the same, wherever it was made.

// within lets fn use such a home. What a registry that is killed leaves of it is removed
// at its next start, as of any backup.
func (s *Service) within(fn func(*agentdir.Home) error) (err error) {
	dir, err := os.MkdirTemp(s.Home.RunDir(), backup.Scratch)
	if err != nil {
		return agentdir.Fault(err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	home, err := agentdir.OpenHome(dir)
	if err != nil {
		return err
	}
	home.UserHome = s.Home.UserHome
	return errors.Join(fn(home), home.Close())
}

// writeShared writes a backup of agents of the database, each at one instant.
func (s *Service) writeShared(ctx context.Context, out io.Writer, what backup.Selection) error {
	if len(what.Agents) == 0 {
		var err error
		if what.Agents, err = s.allShared(ctx); err != nil {
			return err
		}
	} else {
		for _, id := range what.Agents { // before much is written
			if _, err := s.Agent(ctx, id); err != nil {
				return err
			}
		}
	}
	return s.within(func(home *agentdir.Home) error {
		granted := map[string]uint64{}
		return backup.Write(ctx, out, backup.Source{
			Home: home,
			Bring: func(ctx context.Context, id string) error {
				tokens, err := transfer.Lay(ctx, s.Shared.Engine().Pool(), home, id, what.Workdir)
				maps.Copy(granted, tokens)
				return err
			},
			Tokens: func(context.Context) (map[string]uint64, error) { return granted, nil },
		}, what)
	})
}

func (s *Service) allShared(ctx context.Context) (ids []string, err error) {
	const page = 1000
	for after := ""; ; after = ids[len(ids)-1] {
		some, err := s.Shared.Agents.List(ctx, after, page)
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

// restoreShared brings the agents of a backup into the database. It replaces none: of
// rows nothing could be kept.
func (s *Service) restoreShared(ctx context.Context, in io.Reader, what backup.Choice) (done []backup.Restored, err error) {
	if what.Replace {
		return nil, fault.New(codes.FailedPrecondition, fault.AgentExists, "agents in a database are not exchanged, for the old ones could not be kept",
			"back the old one up, remove it with 'agentctl rm', then restore without --replace")
	}
	what.Absent = func(ctx context.Context, id string) error { return transfer.Absent(ctx, s.Shared.Engine().Pool(), id) }
	err = s.within(func(home *agentdir.Home) error {
		if done, err = backup.Restore(ctx, in, home, what); err != nil {
			return err
		}
		ids := make([]string, len(done))
		for i, r := range done {
			ids[i] = r.Agent
		}
		s.making.RLock() // nobody is removed of a name that comes
		defer s.making.RUnlock()
		left, err := transfer.Put(ctx, s.Shared.Engine().Pool(), home, ids)
		for i, r := range done {
			done[i].Left = left[r.Agent]
			s.Shared.Agents.Forget(r.Agent)
		}
		return err
	})
	return done, err
}
