package postgres

import (
	"context"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/unit"
)

// Prune counts old rows, and removes those that are not needed when asked to, a few in
// each transaction. The rules and their reasons are at store.Pruner: runs that are waited
// for, retries that come within the age, deliveries and the checks of the invariants work
// as before.
func (e *Engine) Prune(ctx context.Context, r store.Ref, p store.Prune) (store.Pruned, error) {
	before := p.Before.UnixMilli()
	count := &countPrunable{before: before}
	if err := e.view(ctx, r, count); err != nil || !p.Apply {
		return count.out, err
	}
	for left := count.out.Results.Gone + count.out.Keys.Gone; left > 0; {
		some := &pruneSome{before: before}
		if err := e.do(ctx, r, some); err != nil {
			return count.out, err
		}
		if some.out == 0 {
			break
		}
		left -= some.out
	}
	return count.out, nil
}

// batch is the most rows changed in one transaction: a writer of the thread waits
// behind it for some milliseconds at most.
const pruneBatch = 500

// A step is old when its turn is done since then, and has something to lose. What a
// turn has digested or was told while it ran is no such thing: it may be asked for.
const (
	stepSize = "COALESCE(octet_length(s.result), 0) + octet_length(s.arguments)"
	oldStep  = `FROM step s JOIN turn t ON t.agent_id = $1 AND t.thread_id = $2 AND t.key = s.turn
		WHERE s.agent_id = $1 AND s.thread_id = $2 AND s.kind IN ('model', 'tool') AND t.state = 'done' AND t.finished_at > 0 AND t.finished_at < $3 AND ` + stepSize + ` > 0`
	stepNeeded = `(s.state <> 'done' OR t.fate = 'dead'
		OR EXISTS (SELECT 1 FROM delivery d WHERE d.agent_id = $1 AND d.thread_id = $2 AND d.event_id = t.reply_id
			AND (d.state IN ('pending', 'sending') OR (d.state = 'dead' AND d.resolved = '')))
		OR s.key = (SELECT m.key FROM step m WHERE m.agent_id = $1 AND m.thread_id = $2 AND m.turn = s.turn AND m.kind = 'model' ORDER BY m.seq DESC LIMIT 1))`
)

// A push has a key for its first event and, when it has several, one for its
// last. They go together or not at all: half of them would refuse the next push. The key of a
// message that an account received is never removed: a platform may deliver it again after any time. An event
// that was erased no longer says whether one did.
const (
	oldKey = `FROM dedupe k
		JOIN event e ON e.agent_id = $1 AND e.thread_id = $2 AND e.id = k.event_id
		JOIN fate f ON f.agent_id = $1 AND f.thread_id = $2 AND f.inbox_id = k.event_id
		LEFT JOIN dedupe l ON l.agent_id = $1 AND l.thread_id = $2 AND l.key = 'push-end:' || substr(k.key, 6)
		LEFT JOIN fate g ON g.agent_id = $1 AND g.thread_id = $2 AND g.inbox_id = l.event_id
		WHERE k.agent_id = $1 AND k.thread_id = $2 AND k.key >= 'push:' AND k.key < 'push;' AND f.at < $3 AND (l.key IS NULL OR g.at < $3)`
	keyNeeded = `(e.source LIKE 'internal:%' OR k.key LIKE '%:retry:%' OR e.erased_proof IS NOT NULL
		OR EXISTS (SELECT 1 FROM fate x WHERE x.agent_id = $1 AND x.thread_id = $2 AND x.fate = 'dead' AND x.resolved = '' AND x.inbox_id BETWEEN k.event_id AND COALESCE(l.event_id, k.event_id))
		OR EXISTS (SELECT 1 FROM origin o WHERE o.agent_id = $1 AND o.account <> '' AND o.inbox_id BETWEEN k.event_id AND COALESCE(l.event_id, k.event_id)))`
)

// mediaNeeded selects messages of an inbox whose fates are f: those that wait, and dead letters that may be tried again.
const mediaNeeded = "(f.inbox_id IS NULL OR f.fate = 'dead' AND f.resolved = '')"

// countPrunable counts the old rows of a thread, and those of them that are needed.
type countPrunable struct {
	before int64
	out    store.Pruned
}

// Load queues the read.
func (s *countPrunable) Load(tx *unit.Tx) {
	share, needed, size, old := &s.out.Results, stepNeeded, stepSize, oldStep
	if tx.IsInbox() {
		share, needed, size, old = &s.out.Keys, keyNeeded, "octet_length(k.key)", oldKey
	}
	tx.One(`SELECT COUNT(*) FILTER (WHERE NOT needed), COALESCE(SUM(size) FILTER (WHERE NOT needed), 0)::bigint, COUNT(*) FILTER (WHERE needed)
		FROM (SELECT `+needed+` AS needed, `+size+` AS size `+old+`) x`, []any{s.before}, nil, &share.Gone, &share.Bytes, &share.Kept)
}

// Decide has nothing to decide.
func (s *countPrunable) Decide(context.Context, *unit.Tx) error { return nil }

// pruneSome removes at most pruneBatch of the rows that countPrunable counts; out is 0
// when nothing is left.
type pruneSome struct {
	before int64
	out    int64
}

// Load reads nothing: what is old is found where it is removed.
func (s *pruneSome) Load(*unit.Tx) {}

// Decide queues the write.
func (s *pruneSome) Decide(_ context.Context, tx *unit.Tx) error {
	changed := func(rows int64) error { s.out = rows; return nil }
	if !tx.IsInbox() {
		tx.ExecRows(changed, `UPDATE step SET result = NULL, arguments = '', summary = '' WHERE agent_id = $1 AND thread_id = $2 AND (turn, key) IN
			(SELECT s.turn, s.key `+oldStep+` AND NOT `+stepNeeded+` LIMIT $4)`, s.before, pruneBatch)
		return nil
	}
	tx.ExecRows(changed, `WITH old AS (SELECT k.key AS first, l.key AS last `+oldKey+` AND NOT `+keyNeeded+` LIMIT $4),
			ends AS (DELETE FROM dedupe WHERE agent_id = $1 AND thread_id = $2 AND key IN (SELECT last FROM old))
		DELETE FROM dedupe WHERE agent_id = $1 AND thread_id = $2 AND key IN (SELECT first FROM old)`, s.before, pruneBatch)
	return nil
}
