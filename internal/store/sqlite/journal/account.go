package journal

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/machine"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/thread"
)

// Claimed reports whether there is a turn under key.
func Claimed(tx *db.Tx, key string) (bool, error) {
	_, ok, err := turn(tx, key)
	return ok, err
}

// Explain completes the account of an inbox event from its thread.
func Explain(tx *db.Tx, out *store.Turn) error {
	r, ok, err := turn(tx, out.Key)
	if err != nil || !ok {
		return err
	}
	var steps []store.Step
	if err := eachStep(tx, out.Key, func(s store.Step) { steps = append(steps, s) }); err != nil {
		return err
	}
	var reply *store.Delivery
	if r.ReplyID != 0 {
		d, ok, err := delivery(tx, r.ReplyID)
		if err != nil {
			return err
		}
		if ok {
			d.Thread, reply = out.Thread, &d.Delivery
		}
	}
	machine.Account(out, r, steps, reply)
	return nil
}

// Tail answers the newest messages for a model after an id and up to another one, as many as fit half an
// answer.
func Tail(tx *db.Tx, after, upto int64, limit int) ([]thread.Event, error) {
	budget, out := thread.MaxAnswer/2, make([]thread.Event, 0, min(limit, 64))
	err := tx.Events("SELECT "+db.Columns+" FROM events WHERE "+thread.ShownFilter+" AND id > ? AND id <= ? ORDER BY id DESC LIMIT ?", []any{after, upto, limit}, func(e thread.Event) error {
		if budget -= e.Size(); budget >= 0 || len(out) == 0 {
			out = append(out, e)
		}
		return nil
	})
	slices.Reverse(out)
	return out, err
}

const fateColumns = "COALESCE(f.key,''), COALESCE(f.thread,''), COALESCE(f.fate,''), COALESCE(f.at,0), COALESCE(d.error,''), COALESCE(d.resolved,'')"

// Turn answers what the inbox knows of an event. Its thread is the one of its fate, else of
// its origin, or where it will go; empty when none is known.
func Turn(tx *db.Tx, agent string, q store.TurnQuery) (store.Turn, error) {
	t := store.Turn{Agent: agent, InboxID: q.InboxID, State: store.TurnQueued}
	e, key, err := Event(tx, q.InboxID)
	if err != nil {
		return t, err
	}
	if q.Key != "" && q.Key != key {
		return t, store.ErrNoTurn
	}
	t.Key, t.Source, t.QueuedAt = key, e.Source, thread.ParseStamp(e.CreatedAt)
	if t.Origin, err = Origin(tx, e.ID); err != nil {
		return t, err
	}
	var f machine.Fate
	var fate, resolved string
	ok, err := tx.Row("SELECT "+fateColumns+" FROM x_fate f LEFT JOIN x_dead d USING(inbox_id) WHERE f.inbox_id = ?", []any{q.InboxID},
		&f.Key, &f.Thread, &fate, &f.At, &f.Error, &resolved)
	if err != nil {
		return t, err
	}
	if ok {
		f.Fate = store.Fate(fate)
		machine.SettleAccount(&t, f, resolved)
		return t, nil
	}
	if e.Type != thread.TypeMessage {
		return t, nil
	}
	if t.Origin != nil {
		t.Thread = t.Origin.Thread
		return t, nil
	}
	list, err := routes(tx)
	in := machine.Inbox{Routes: list}
	mode := in.ModeAt(e.ID)
	if err != nil || mode == "" {
		return t, err
	}
	if id, err := q.Route(e, mode); err == nil { // else it is dead when a batch opens
		t.Thread = id
	}
	return t, nil
}

// Turns answers events with their fates, newest first.
func Turns(tx *db.Tx, agent string, q store.ListTurns) ([]store.Turn, error) {
	if q.Before <= 0 {
		q.Before = math.MaxInt64
	}
	origin, of := "''", ""
	if tx.HasSessions() {
		origin, of = "COALESCE(o.thread,'')", " LEFT JOIN x_origin o ON o.inbox_id = e.id"
	}
	sql := `SELECT ` + db.Columns + `, ` + fateColumns + `, ` + origin + `
		FROM events e LEFT JOIN x_fate f ON f.inbox_id = e.id LEFT JOIN x_dead d ON d.inbox_id = e.id` + of + ` WHERE e.id < ?`
	args := []any{q.Before}
	if q.Fate != store.FateNone {
		sql, args = sql+" AND f.fate = ?", append(args, string(q.Fate))
	}
	if q.Unresolved {
		sql += " AND COALESCE(d.resolved,'') = ''"
	}
	if q.Fate == store.FateDead { // few rows among many: start from them
		sql += " AND e.id IN (SELECT inbox_id FROM x_dead)"
	}
	var out []store.Turn
	err := tx.Each(sql+" ORDER BY e.id DESC LIMIT ?", append(args, q.Limit), func(scan func(...any) error) error {
		t := store.Turn{Agent: agent, State: store.TurnQueued}
		var e thread.Event
		var f machine.Fate
		var fate, resolved, will string
		if err := scan(&e.ID, &e.CreatedAt, &e.Source, &e.Type, &e.Subtype, &e.Content, &f.Key, &f.Thread, &fate, &f.At, &f.Error, &resolved, &will); err != nil {
			return err
		}
		key, err := tx.KeyOf(e)
		if err != nil {
			return err
		}
		t.InboxID, t.Key, t.Source, t.QueuedAt = e.ID, key, e.Source, thread.ParseStamp(e.CreatedAt)
		if f.Fate = store.Fate(fate); f.Fate != store.FateNone {
			machine.SettleAccount(&t, f, resolved)
		} else if e.Type == thread.TypeMessage {
			t.Thread = will
		}
		out = append(out, t)
		return nil
	})
	return out, err
}

// Resolve takes a dead turn off the dead letters; repeated, it answers the same.
func Resolve(tx *db.Tx, inboxID int64, how string) (thread.Event, string, error) {
	e, key, err := Event(tx, inboxID)
	if err != nil {
		return e, key, err
	}
	n, err := tx.Exec("UPDATE x_dead SET resolved = ? WHERE inbox_id = ? AND resolved IN ('', ?)", how, inboxID, how)
	if err == nil && n == 0 {
		err = store.ErrNotDead
	}
	return e, key, err
}

const aDay = 24 * 60 * 60 * 1000 // of recorded_at, in milliseconds

// SumUsage adds up what the journalled answers have cost. A row is an answer
// that was committed: there is one for each round of a turn, however often the
// round was tried, one for each digest that a model made, and one for each transcript
// of a provider.
func SumUsage(tx *db.Tx, q store.SumUsage) ([]store.UsageSum, error) {
	day, turn := "0", "''"
	if q.ByDay {
		day = fmt.Sprintf("recorded_at / %d", aDay)
	}
	if q.ByRun {
		turn = "turn"
	}
	sql := "SELECT " + day + ", " + turn + `, name, COUNT(*), SUM(input), SUM(output), SUM(cached_input), SUM(reasoning), SUM(cache_write)
		FROM x_step WHERE (kind = 'model' OR kind = 'compaction' AND name <> '' OR kind = 'transcript' AND class = '' AND state = 'done' AND is_error = 0) AND recorded_at >= ?`
	args := []any{store.Millis(q.Since)}
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

// LastAnswer answers the newest answer of a model in a turn since a time.
func LastAnswer(tx *db.Tx, since time.Time) (s store.UsageSum, err error) {
	u := &s.Usage
	found, err := tx.Row(`SELECT name, turn, input, output, cached_input, reasoning, cache_write
		FROM x_step WHERE kind = 'model' AND recorded_at >= ? ORDER BY recorded_at DESC, seq DESC LIMIT 1`,
		[]any{store.Millis(since)}, &s.Model, &s.Turn, &u.Input, &u.Output, &u.CachedInput, &u.Reasoning, &u.CacheWrite)
	if found {
		s.Answers = 1
	}
	return s, err
}
