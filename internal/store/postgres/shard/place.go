package shard

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/unit"
)

// Place is the number of the database of an agent, as far as is known here.
func (s *Set) Place(agent string) int {
	if i, ok := (*s.places.Load())[agent]; ok {
		return i
	}
	return Index(agent, len(s.pools))
}

// Of is the database of an agent, as far as is known here; see On.
func (s *Set) Of(agent string) *pgxpool.Pool { return s.pools[s.Place(agent)] }

// On does something in the database of an agent. When the agent is not there, which do
// says with store.ErrNotFound, it is looked for, and what is to be done is done where it
// is. An agent that is in none costs that look; one that is where it was costs nothing.
func (s *Set) On(ctx context.Context, agent string, do func(*pgxpool.Pool) error) error {
	return s.At(ctx, agent, func(i int) error { return do(s.pools[i]) })
}

// At is On with the number of the database.
func (s *Set) At(ctx context.Context, agent string, do func(i int) error) error {
	was := s.Place(agent)
	err := do(was)
	if len(s.pools) == 1 || err == nil || !gone(err) {
		return err
	}
	p, looked := s.Look(ctx, agent)
	if looked != nil {
		return looked // it may well be there
	}
	if p.Index == was && !p.Landed {
		return err
	}
	if s.moved != nil {
		s.moved(agent)
	}
	return do(p.Index)
}

func gone(err error) bool {
	return errors.Is(err, pgx.ErrNoRows) || errors.Is(unit.Problem(err), store.ErrNotFound)
}

// OnMoved sets who is told of an agent that was found elsewhere than it was believed to
// be. It is set before the set is used, and must not block.
func (s *Set) OnMoved(fn func(agent string)) { s.moved = fn }

// Place of an agent.
type Place struct {
	Index  int
	There  bool // the agent is there; else it would be made there
	Landed bool // what was left of its move was done now
}

// Look looks where an agent is, and remembers it: from the database that its id hashes
// to, along the rows that say where it went.
func (s *Set) Look(ctx context.Context, agent string) (Place, error) {
	p := Place{Index: Index(agent, len(s.pools))}
	came := "" // the move that led here
	for range 2*len(s.pools) + 1 {
		var here bool
		var arriving, move *string
		var next *int
		if err := s.pools[p.Index].QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM agent WHERE agent_id = $1), (SELECT move FROM arriving WHERE agent_id = $1),
			(SELECT shard FROM moved WHERE agent_id = $1), (SELECT move FROM moved WHERE agent_id = $1)`, agent).Scan(&here, &arriving, &next, &move); err != nil {
			return p, fmt.Errorf("look where agent %s is: %w", agent, unit.Problem(err))
		}
		switch {
		case here && arriving == nil:
			p.There = true
		case here && *arriving == came:
			p.There, p.Landed = true, true
			if err := s.land(ctx, p.Index, agent, came); err != nil {
				return p, err
			}
		case next != nil && *next >= 0 && *next < len(s.pools):
			p.Index, came = *next, *move
			continue
		}
		s.remember(agent, p.Index)
		return p, nil
	}
	return p, fmt.Errorf("look where agent %s is: the databases lead in a circle: %w", agent, store.ErrBusy)
}

// land opens a copy that a row of moved leads to. The number of the move is compared, so
// that whoever comes late opens no other copy.
const land = `WITH live AS (DELETE FROM arriving WHERE agent_id = $1 AND move = $2 RETURNING agent_id, run_token, deliver_token),
	back AS (DELETE FROM moved m USING live WHERE m.agent_id = live.agent_id)
	INSERT INTO lease(agent_id, resource, token, holder, address, request_id, ttl_ms, expires_at, released)
	SELECT agent_id, kind || agent_id, token, '', '', '', 0, clock_timestamp(), true
	FROM live, LATERAL (VALUES ('agent/', run_token), ('deliver/', deliver_token)) r(kind, token)
	ON CONFLICT (agent_id, resource) DO UPDATE SET token = GREATEST(lease.token, excluded.token)`

func (s *Set) land(ctx context.Context, i int, agent, move string) error {
	if _, err := s.pools[i].Exec(ctx, land, agent, move); err != nil {
		return fmt.Errorf("open agent %s where it was moved to: %w", agent, unit.Problem(err))
	}
	return nil
}

func (s *Set) remember(agent string, place int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Place(agent) == place {
		return
	}
	next := maps.Clone(*s.places.Load())
	if delete(next, agent); place != Index(agent, len(s.pools)) {
		next[agent] = place
	}
	s.places.Store(&next)
}

// Load reads which agents are elsewhere than their ids hash to.
func (s *Set) Load(ctx context.Context) error {
	next := map[string]int{}
	for i, pool := range s.pools {
		if len(s.pools) == 1 {
			break
		}
		rows, err := pool.Query(ctx, "SELECT agent_id, shard FROM moved ORDER BY agent_id")
		if err == nil {
			var agent string
			var to int
			_, err = pgx.ForEachRow(rows, []any{&agent, &to}, func() error {
				if Index(agent, len(s.pools)) == i && to != i && to >= 0 && to < len(s.pools) {
					next[agent] = to
				}
				return nil
			})
		}
		if err != nil {
			return fmt.Errorf("read which agents were moved: %w", unit.Problem(err))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places.Store(&next)
	return nil
}
