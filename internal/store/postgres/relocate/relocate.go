// Package relocate owns how an agent moves from one database of an installation to
// another, while registries serve both.
//
//	hold the rows at the source (nobody writes, everybody may read)
//	copy, read back, compare, check every chain -> arriving at the target: nobody may use it
//	COMMIT at the source: rows removed, row of moved written      <- here it has moved
//	open the copy; lead to it from the database its id hashes to; tell the registries
//
// Each step is a transaction in one database, and the third alone decides: before it the
// agent is at the source, whole, and a copy is garbage that the next move removes; after
// it the agent is at the target, and whoever looks for it opens the copy (package shard).
// So at no instant is it served at two places or at none, wherever a move is killed; and
// the same command again finishes it.
//
// It promises that every row that names the agent goes with it, of whatever table, that
// the copy has the same bytes, and that tokens of leases go on rising. The agent must be
// stopped; who still holds it is asked to give it back, and waited for.
package relocate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store/postgres/notify"
	"github.com/theclaw/agents/internal/store/postgres/shard"
	"github.com/theclaw/agents/internal/store/postgres/unit"
)

// Move is one agent on its way to database To of Set.
type Move struct {
	Set   *shard.Set
	Agent string
	To    int
	// Confirm is asked once the copy is the same; false leaves everything as it was.
	Confirm func(Report) bool

	name string // as holder of leases
}

// Report is what a move has found.
type Report struct {
	Agent   string `json:"agent"`
	From    int    `json:"from"` // of the list, counted from 1
	To      int    `json:"to"`
	Threads int64  `json:"threads"`
	Events  int64  `json:"events"`
	Rows    int64  `json:"rows"`
	Bytes   int64  `json:"bytes"`
	Digest  string `json:"digest"` // of all rows, the same on both sides
	Moved   bool   `json:"moved"`
	Was     bool   `json:"was_there"` // it was there before, and needed no copy
}

// Run moves the agent. Errors: AGENT_NOT_FOUND, AGENT_EXISTS, LEASE_HELD, DATABASE_CORRUPT.
func (m Move) Run(ctx context.Context) (r Report, err error) {
	m.name = "move/" + rand.Text()
	free, err := m.alone(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, free()) }()
	at, err := m.Set.Look(ctx, m.Agent)
	if err != nil {
		return r, err
	}
	r = Report{Agent: m.Agent, From: at.Index + 1, To: m.To + 1, Was: at.Index == m.To}
	switch {
	case !at.There:
		return r, missing(m.Agent)
	case !r.Was:
		back, err := m.freed(ctx)
		if err != nil {
			return r, err
		}
		err = m.across(ctx, m.Set.All()[at.Index], m.Set.All()[m.To], &r)
		if !r.Moved || err != nil {
			return r, errors.Join(err, back())
		}
	}
	r.Moved = true
	return r, m.settle(ctx)
}

func missing(agent string) error {
	return fault.New(codes.NotFound, fault.AgentNotFound, "agent '"+agent+"' is in none of the databases", "check the name, and the databases that are named")
}

// alone keeps other moves of the agent away.
func (m Move) alone(ctx context.Context) (free func() error, err error) {
	const locks = 0x6d6f7665 // of moves
	c, err := m.home().Acquire(ctx)
	if err != nil {
		return nil, unit.Problem(err)
	}
	got := false
	if err := c.QueryRow(ctx, "SELECT pg_try_advisory_lock($1::int, hashtext($2))", locks, m.Agent).Scan(&got); err != nil || !got {
		c.Release()
		if err != nil {
			return nil, unit.Problem(err)
		}
		return nil, fault.New(codes.FailedPrecondition, fault.LeaseHeld, "agent '"+m.Agent+"' is being moved already", "wait for that move")
	}
	return func() error {
		defer c.Release()
		_, err := c.Exec(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock($1::int, hashtext($2))", locks, m.Agent)
		return unit.Problem(err)
	}, nil
}

func (m Move) home() *pgxpool.Pool {
	return m.Set.All()[shard.Index(m.Agent, len(m.Set.All()))]
}

// across copies the agent and, when that is confirmed, moves it.
func (m Move) across(ctx context.Context, from, to *pgxpool.Pool, r *Report) error {
	return pgx.BeginFunc(ctx, from, func(source pgx.Tx) error {
		tables, err := tables(ctx, source)
		if err != nil {
			return err
		}
		tokens, err := hold(ctx, source, m.Agent, m.name, tables)
		if err != nil {
			return err
		}
		move := rand.Text()
		if err := pgx.BeginFunc(ctx, to, func(target pgx.Tx) error {
			tokens, err := makeRoom(ctx, target, m.Agent, tokens)
			if err != nil {
				return err
			}
			if err := copied(ctx, source, target, m.Agent, tables, r); err != nil {
				return err
			}
			_, err = target.Exec(ctx, "INSERT INTO arriving(agent_id, move, run_token, deliver_token) VALUES($1, $2, $3, $4)", m.Agent, move, tokens.run, tokens.deliver)
			return unit.Problem(err)
		}); err != nil {
			return err
		}
		fault.Point("relocate:copied")
		if r.Threads, r.Events, err = chains(ctx, to, m.Agent); err != nil {
			return errors.Join(err, discard(ctx, to, m.Agent))
		}
		if m.Confirm == nil || !m.Confirm(*r) {
			return discard(ctx, to, m.Agent)
		}
		if err := remove(ctx, source, m.Agent, tables); err != nil {
			return err
		}
		_, err = source.Exec(ctx, "INSERT INTO moved(agent_id, shard, move) VALUES($1, $2, $3) ON CONFLICT (agent_id) DO UPDATE SET shard = excluded.shard, move = excluded.move",
			m.Agent, m.To, move)
		fault.Point("relocate:before-commit")
		r.Moved = err == nil
		return unit.Problem(err)
	})
}

// settle opens the copy, leads to it from the database of the hash, removes what moves
// that were killed have left elsewhere, and tells the registries. A repeat changes nothing.
func (m Move) settle(ctx context.Context) error {
	fault.Point("relocate:committed")
	at, err := m.Set.Look(ctx, m.Agent)
	if err != nil {
		return err
	}
	if !at.There || at.Index != m.To {
		return fmt.Errorf("agent %s is not where it was moved to: database %d", m.Agent, at.Index+1)
	}
	fault.Point("relocate:opened")
	all := m.Set.All()
	if home := m.home(); home != all[m.To] {
		if _, err := home.Exec(ctx, "INSERT INTO moved(agent_id, shard, move) VALUES($1, $2, '') ON CONFLICT (agent_id) DO UPDATE SET shard = excluded.shard, move = '' WHERE moved.shard <> excluded.shard",
			m.Agent, m.To); err != nil {
			return unit.Problem(err)
		}
	}
	fault.Point("relocate:led")
	for i, pool := range all {
		if i != m.To {
			if err := discard(ctx, pool, m.Agent); err != nil {
				return err
			}
		}
	}
	if err := notify.Once(ctx, all[0], notify.Item{Kind: notify.Place, Name: m.Agent}, notify.Item{Kind: notify.Work, Name: m.Agent}); err != nil {
		return fmt.Errorf("tell registries where agent %s is: %w", m.Agent, unit.Problem(err))
	}
	return nil
}
