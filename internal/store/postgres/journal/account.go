package journal

import (
	"context"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/machine"
	"github.com/theclaw/agents/internal/store/postgres/unit"
)

// ClaimedStep reports whether there is a turn under key.
type ClaimedStep struct {
	key string
	Out bool
}

// Claimed makes the step.
func Claimed(key string) *ClaimedStep { return &ClaimedStep{key: key} }

// Load queues the read.
func (s *ClaimedStep) Load(tx *unit.Tx) {
	tx.One("SELECT EXISTS (SELECT 1 FROM turn WHERE "+inThread+" AND key = $3)", []any{s.key}, nil, &s.Out)
}

// Decide has nothing to decide.
func (s *ClaimedStep) Decide(context.Context, *unit.Tx) error { return nil }

// SayIDStep answers the event with the key of a Say.
type SayIDStep struct {
	key string
	Out int64
}

// SayID makes the step.
func SayID(key string) *SayIDStep { return &SayIDStep{key: key} }

// Load queues the read.
func (s *SayIDStep) Load(tx *unit.Tx) {
	tx.One("SELECT COALESCE((SELECT event_id FROM dedupe WHERE "+inThread+" AND key = $3), 0)", []any{s.key}, nil, &s.Out)
}

// Decide has nothing to decide.
func (s *SayIDStep) Decide(context.Context, *unit.Tx) error { return nil }

// ExplainStep completes the account of an inbox event from its thread.
type ExplainStep struct {
	t     *store.Turn
	turn  machine.Turn
	steps []store.Step
	reply *store.Delivery
}

// Explain makes the step; it changes t.
func Explain(t *store.Turn) *ExplainStep { return &ExplainStep{t: t} }

// Load queues the reads.
func (s *ExplainStep) Load(tx *unit.Tx) {
	key := s.t.Key
	tx.Read("SELECT "+turnColumns+", claimed_at FROM turn WHERE "+inThread+" AND key = $3", []any{key}, func(scan func(...any) error) (err error) {
		var claimed int64
		s.turn, err = scanTurn(scan, &claimed)
		s.turn.ClaimedAt = claimed
		return err
	})
	loadAllSteps(tx, key, func(st store.Step) { s.steps = append(s.steps, st) })
	tx.Read("SELECT "+deliveryColumns+" FROM delivery d WHERE "+ofDelivery+" AND d.event_id = (SELECT t.reply_id FROM turn t WHERE t.agent_id = $1 AND t.thread_id = $2 AND t.key = $3 AND t.reply_id <> 0)",
		[]any{key}, func(scan func(...any) error) error {
			var d machine.Delivery
			err := scanDelivery(scan, &d, nil)
			d.Thread, s.reply = tx.Ref.Thread, &d.Delivery
			return err
		})
}

// Decide puts it together. Steps under the key of what is no turn are none of its own.
func (s *ExplainStep) Decide(context.Context, *unit.Tx) error {
	if s.turn.Key != "" {
		machine.Account(s.t, s.turn, s.steps, s.reply)
	}
	return nil
}

const aDay = 24 * 60 * 60 * 1000 // of recorded_at, in milliseconds

// SumUsageStep adds up what the journalled answers have cost. A row is an answer
// that was committed: there is one for each round of a turn, however often the
// round was tried, one for each digest that a model made, and one for each transcript
// of a provider.
type SumUsageStep struct {
	q   store.SumUsage
	Out []store.UsageSum
}

// SumUsage makes the step.
func SumUsage(q store.SumUsage) *SumUsageStep { return &SumUsageStep{q: q} }

// Load queues the read.
func (s *SumUsageStep) Load(tx *unit.Tx) {
	tx.Read(`SELECT CASE WHEN $3 THEN recorded_at / $4 ELSE 0 END AS day, CASE WHEN $5 THEN turn ELSE '' END AS of, name,
			COUNT(*), SUM(input)::bigint, SUM(output)::bigint, SUM(cached_input)::bigint, SUM(reasoning)::bigint, SUM(cache_write)::bigint
		FROM step WHERE `+inThread+` AND (kind = 'model' OR kind = 'compaction' AND name <> '' OR kind = 'transcript' AND class = '' AND state = 'done' AND NOT is_error) AND recorded_at >= $6 AND ($7 OR turn = ANY($8))
		GROUP BY 1, 2, 3 ORDER BY 1, 2, name COLLATE "C"`,
		[]any{s.q.ByDay, int64(aDay), s.q.ByRun, store.Millis(s.q.Since), s.q.Turns == nil, s.q.Turns}, func(scan func(...any) error) error {
			var u store.UsageSum
			var days int64
			n := &u.Usage
			err := scan(&days, &u.Turn, &u.Model, &u.Answers, &n.Input, &n.Output, &n.CachedInput, &n.Reasoning, &n.CacheWrite)
			if s.q.ByDay {
				u.Day = store.FromMillis(days * aDay).UTC().Format("2006-01-02")
			}
			s.Out = append(s.Out, u)
			return err
		})
}

// Decide has nothing to decide.
func (s *SumUsageStep) Decide(context.Context, *unit.Tx) error { return nil }

// LastAnswerStep finds the newest answer of a model in a turn.
type LastAnswerStep struct {
	since time.Time
	Out   store.UsageSum
}

// LastAnswer makes the step.
func LastAnswer(since time.Time) *LastAnswerStep { return &LastAnswerStep{since: since} }

// Load queues the read.
func (s *LastAnswerStep) Load(tx *unit.Tx) {
	tx.Read(`SELECT name, turn, input, output, cached_input, reasoning, cache_write
		FROM step WHERE `+inThread+` AND kind = 'model' AND recorded_at >= $3 ORDER BY recorded_at DESC, seq DESC LIMIT 1`,
		[]any{store.Millis(s.since)}, func(scan func(...any) error) error {
			n := &s.Out.Usage
			s.Out.Answers = 1
			return scan(&s.Out.Model, &s.Out.Turn, &n.Input, &n.Output, &n.CachedInput, &n.Reasoning, &n.CacheWrite)
		})
}

// Decide has nothing to decide.
func (s *LastAnswerStep) Decide(context.Context, *unit.Tx) error { return nil }
