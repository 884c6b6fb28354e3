package journal

import (
	"encoding/json"
	"fmt"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
)

const aDay = 24 * 60 * 60 * 1000 // of recorded_at, in milliseconds

// SumUsage adds up what the journalled answers have cost. A row is an answer
// that was committed: there is one for each round of a turn, however often the
// round was tried, and one for each digest that a model made.
func SumUsage(tx *db.Tx, q store.SumUsage) ([]store.UsageSum, error) {
	day, turn := "0", "''"
	if q.ByDay {
		day = fmt.Sprintf("recorded_at / %d", aDay)
	}
	if q.ByRun {
		turn = "turn"
	}
	sql := "SELECT " + day + ", " + turn + `, name, COUNT(*), SUM(input), SUM(output), SUM(cached_input), SUM(reasoning), SUM(cache_write)
		FROM x_step WHERE (kind = 'model' OR kind = 'compaction' AND name <> '') AND recorded_at >= ?`
	since := int64(0)
	if !q.Since.IsZero() {
		since = q.Since.UnixMilli()
	}
	args := []any{since}
	if q.Turns != nil {
		keys, err := json.Marshal(q.Turns)
		if err != nil {
			return nil, fmt.Errorf("encode turn keys: %w", err)
		}
		sql, args = sql+" AND turn IN (SELECT value FROM json_each(?))", append(args, string(keys))
	}
	var out []store.UsageSum
	err := tx.Each(sql+" GROUP BY 1, 2, 3 ORDER BY 1, 2, 3", args, func(scan func(...any) error) error {
		var s store.UsageSum
		var days int64
		u := &s.Usage
		if err := scan(&days, &s.Turn, &s.Model, &s.Answers, &u.Input, &u.Output, &u.CachedInput, &u.Reasoning, &u.CacheWrite); err != nil {
			return err
		}
		if q.ByDay {
			s.Day = store.FromMillis(days * aDay).UTC().Format("2006-01-02")
		}
		out = append(out, s)
		return nil
	})
	return out, err
}
