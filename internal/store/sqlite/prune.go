package sqlite

import (
	"context"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
)

// Prune counts old rows, and removes those that are not needed when asked to, a few in
// each transaction. The rules and their reasons are at store.Pruner: runs that are waited
// for, retries that come within the age, deliveries and the checks of the invariants work
// as before. New rows use the space of removed ones; the file does not shrink.
func (e *Engine) Prune(ctx context.Context, r store.Ref, p store.Prune) (store.Pruned, error) {
	before := p.Before.UnixMilli()
	out, err := view(ctx, e, r, func(tx *db.Tx) (store.Pruned, error) { return countPrunable(tx, r.IsInbox(), before) })
	if err != nil || !p.Apply {
		return out, err
	}
	for left := out.Results.Gone + out.Keys.Gone; left > 0; {
		var n int64
		if err := e.do(ctx, r, false, func(tx *db.Tx) (err error) {
			n, err = pruneSome(tx, r.IsInbox(), before)
			return err
		}); err != nil {
			return out, err
		}
		if n == 0 {
			break
		}
		left -= n
	}
	return out, nil
}

// pruneBatch is the most rows changed in one transaction: a writer behind it waits a
// few milliseconds at most.
const pruneBatch = 500

// A step is old when its turn is done since then, and has something to lose. What a
// turn has digested or was told while it ran is no such thing: it may be asked for.
const (
	stepSize = "COALESCE(length(s.result), 0) + length(CAST(s.arguments AS BLOB))"
	oldStep  = `FROM x_step s JOIN x_turn t ON t.key = s.turn
		WHERE s.kind IN ('model','tool') AND t.state = 'done' AND t.finished_at > 0 AND t.finished_at < ? AND ` + stepSize + ` > 0`
	stepNeeded = `(s.state <> 'done' OR t.fate = 'dead'
		OR EXISTS (SELECT 1 FROM x_delivery d WHERE d.event_id = t.reply_id AND (d.state IN ('pending','sending') OR (d.state = 'dead' AND d.resolved = '')))
		OR s.key = (SELECT m.key FROM x_step m WHERE m.turn = s.turn AND m.kind = 'model' ORDER BY m.seq DESC LIMIT 1))`
)

// A push has a key for its first event and, when it has several, one for its
// last. They go together or not at all: half of them would refuse the next push.
const (
	firstKey = "push:"
	lastKey  = "push-end:"
	oldKey   = `FROM x_dedupe k JOIN events e ON e.id = k.event_id JOIN x_fate f ON f.inbox_id = k.event_id
		LEFT JOIN x_dedupe l ON l.key = '` + lastKey + `' || substr(k.key, 6)
		LEFT JOIN x_fate g ON g.inbox_id = l.event_id
		WHERE k.key >= '` + firstKey + `' AND k.key < 'push;' AND f.at < ? AND (l.key IS NULL OR g.at < ?)`
	keyWanted = `(e.source LIKE 'internal:%' OR k.key LIKE '%:retry:%' OR e.content = '` + store.Erased + `'
		OR EXISTS (SELECT 1 FROM x_dead x WHERE x.resolved = '' AND x.inbox_id BETWEEN k.event_id AND COALESCE(l.event_id, k.event_id)))`
)

// keyNeeded selects the keys that stay. A platform may deliver a message again after any time:
// the key of one that an account received is never removed. An event that was erased no longer says whether one did.
func keyNeeded(tx *db.Tx) string {
	if !tx.HasSessions() {
		return keyWanted
	}
	return "(" + keyWanted + ` OR EXISTS (SELECT 1 FROM x_origin o WHERE o.account <> '' AND o.inbox_id BETWEEN k.event_id AND COALESCE(l.event_id, k.event_id)))`
}

// countPrunable counts the old rows of a thread, and those of them that are needed.
func countPrunable(tx *db.Tx, inbox bool, before int64) (store.Pruned, error) {
	var p store.Pruned
	var err error
	if inbox {
		_, err = tx.Row(`SELECT COALESCE(SUM(NOT needed), 0), COALESCE(SUM(CASE WHEN needed THEN 0 ELSE size END), 0), COALESCE(SUM(needed), 0)
			FROM (SELECT `+keyNeeded(tx)+` AS needed, length(CAST(k.key AS BLOB)) AS size `+oldKey+`)`,
			[]any{before, before}, &p.Keys.Gone, &p.Keys.Bytes, &p.Keys.Kept)
		return p, err
	}
	_, err = tx.Row(`SELECT COALESCE(SUM(NOT needed), 0), COALESCE(SUM(CASE WHEN needed THEN 0 ELSE size END), 0), COALESCE(SUM(needed), 0)
		FROM (SELECT `+stepNeeded+` AS needed, `+stepSize+` AS size `+oldStep+`)`,
		[]any{before}, &p.Results.Gone, &p.Results.Bytes, &p.Results.Kept)
	return p, err
}

// pruneSome removes at most pruneBatch of the rows that countPrunable counts; 0 means that nothing is left.
func pruneSome(tx *db.Tx, inbox bool, before int64) (int64, error) {
	if !inbox {
		return tx.Exec(`UPDATE x_step SET result = NULL, arguments = '', summary = '' WHERE (turn, key) IN
			(SELECT s.turn, s.key `+oldStep+` AND NOT `+stepNeeded+` LIMIT ?)`, before, pruneBatch)
	}
	var keys []string
	err := tx.Each("SELECT k.key "+oldKey+" AND NOT "+keyNeeded(tx)+" LIMIT ?", []any{before, before, pruneBatch}, func(scan func(...any) error) error {
		var key string
		err := scan(&key)
		keys = append(keys, key[len(firstKey):])
		return err
	})
	if err != nil {
		return 0, err
	}
	for _, key := range keys {
		if _, err := tx.Exec("DELETE FROM x_dedupe WHERE key IN (?, ?)", firstKey+key, lastKey+key); err != nil {
			return 0, err
		}
	}
	return int64(len(keys)), nil
}
