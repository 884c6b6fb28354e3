package home

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/theclaw/agents/internal/store/postgres/unit"
)

// pace moves the time at which the next message of a pair would be due by $3, unless it
// were then more than $4 from now, all in microseconds.
const pace = `INSERT INTO pace AS p (agent_id, peer, at)
	SELECT a.agent_id, $2, clock_timestamp() + $3 * interval '1 us' FROM agent a WHERE a.agent_id = $1 AND $3 <= $4
	ON CONFLICT (agent_id, peer) DO UPDATE SET at = GREATEST(p.at, clock_timestamp()) + $3 * interval '1 us'
	WHERE GREATEST(p.at, clock_timestamp()) + $3 * interval '1 us' <= clock_timestamp() + $4 * interval '1 us'
	RETURNING 1`

// Pace lets one agent write to another: each message moves the time that the next would
// be due by step, and that may be no more than most from now. Over is how long to wait
// when it is not let. A crash of the database may forget the last moment of it, for
// which it is not made to wait for its disk.
func (d *DB) Pace(ctx context.Context, from, to string, step, most time.Duration) (over time.Duration, err error) {
	b := &pgx.Batch{}
	b.Queue("SELECT set_config('synchronous_commit', 'off', true)")
	b.Queue("DELETE FROM pace WHERE agent_id = $1 AND peer <> $2 AND at < clock_timestamp() - interval '1 hour'", to, from)
	let := false
	b.Queue(pace, to, from, step.Microseconds(), most.Microseconds()).QueryRow(func(row pgx.Row) error {
		var one int
		err := row.Scan(&one)
		let = err == nil
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	b.Queue("SELECT GREATEST(0, EXTRACT(EPOCH FROM at - clock_timestamp()) * 1000000)::bigint FROM pace WHERE agent_id = $1 AND peer = $2", to, from).QueryRow(func(row pgx.Row) error {
		var us int64
		err := row.Scan(&us)
		if errors.Is(err, pgx.ErrNoRows) { // no such agent, which whoever stores the message says
			let = true
			return nil
		}
		over = time.Duration(us)*time.Microsecond + step - most
		return err
	})
	if err := d.pool.SendBatch(ctx, b).Close(); err != nil {
		return 0, fmt.Errorf("count messages of a pair: %w", unit.Problem(err))
	}
	if let {
		return 0, nil
	}
	return max(over, time.Millisecond), nil
}
