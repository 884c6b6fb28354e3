package repair

import (
	"bytes"
	"context"
	"database/sql"
	"maps"
	"slices"

	"github.com/theclaw/agents/internal/invariant/record"
	"github.com/theclaw/agents/internal/invariant/snapshot"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/store/sqlite/schema"
	"github.com/theclaw/agents/internal/thread"
)

// rescued is what could be saved of the events.
type rescued struct {
	events            []thread.Event // by id
	proved, fromLines int            // as the chain has them; of those, by events.jsonl
	tombs             map[int64]string
}

type link struct{ prev, sum []byte }

func (l link) proves(e thread.Event) bool {
	got := e.Hash(l.prev)
	return bytes.Equal(got[:], l.sum)
}

// rescue takes for each id the version that the chain proves: the row, or the
// line of events.jsonl, which is the same bytes for events of our own. Where
// nothing is proved the line is taken before a row that is known to be wrong.
func rescue(ctx context.Context, from *sql.Conn, d *snapshot.DB) (rescued, error) {
	rows, wrong := map[int64]thread.Event{}, map[int64]bool{}
	links := map[int64]link{}
	for _, order := range []string{"", " DESC"} { // an error ends a direction, and is why we are here
		_ = rowsOf(ctx, from, "SELECT event_id, prev, sha256 FROM x_chain ORDER BY event_id"+order, 3, func(r []any) {
			prev, ok1 := r[1].([]byte)
			sum, ok2 := r[2].([]byte)
			if id, ok := r[0].(int64); ok && ok1 && ok2 {
				links[id] = link{prev, sum}
			}
		})
		_ = rowsOf(ctx, from, "SELECT "+db.Columns+" FROM events ORDER BY id"+order, 6, func(r []any) {
			if id, ok := r[0].(int64); ok {
				rows[id], wrong[id] = eventOf(id, r[1:])
			}
		})
	}
	lines := map[int64]thread.Event{}
	err := record.Lines(d.Dir, func(e thread.Event) error {
		lines[e.ID] = e
		return nil
	})
	if err != nil {
		return rescued{}, err
	}
	out := rescued{tombs: map[int64]string{}}
	_ = rowsOf(ctx, from, "SELECT event_id, key FROM x_erased", 2, func(r []any) { // mostly there is no such table
		key, ok1 := r[1].(string)
		if id, ok2 := r[0].(int64); ok1 && ok2 {
			out.tombs[id] = key
		}
	})
	ids := maps.Clone(rows)
	maps.Copy(ids, lines)
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		e, proved, byLine := choose(id, rows, lines, links, wrong)
		if proved {
			out.proved++
		}
		if byLine {
			out.fromLines++
		}
		out.events = append(out.events, e)
	}
	return out, nil
}

func choose(id int64, rows, lines map[int64]thread.Event, links map[int64]link, wrong map[int64]bool) (e thread.Event, proved, byLine bool) {
	row, hasRow := rows[id]
	line, hasLine := lines[id]
	l, linked := links[id]
	if linked && hasRow && !wrong[id] && l.proves(row) {
		return row, true, false
	}
	timed := line
	timed.CreatedAt = row.CreatedAt // the external tool's lines have another clock
	for _, c := range []thread.Event{line, timed} {
		if linked && hasLine && l.proves(c) {
			return c, true, true
		}
	}
	if !hasLine || (hasRow && !wrong[id] && (!linked || timed.Hash(nil) == row.Hash(nil))) {
		return row, false, false
	}
	return line, false, false
}

// eventOf reads a row; wrong tells that a column holds no text.
func eventOf(id int64, r []any) (e thread.Event, wrong bool) {
	text := func(v any) string {
		switch v := v.(type) {
		case string:
			return v
		case []byte:
			wrong = true
			return string(v)
		}
		wrong = true
		return ""
	}
	e = thread.Event{ID: id, CreatedAt: text(r[0]), Source: text(r[1]), Type: text(r[2]), Content: text(r[4])}
	if r[3] != nil {
		s := text(r[3])
		e.Subtype = &s
	}
	return e, wrong
}

// write inserts the events under their ids and chains them anew.
func (r rescued) write(ctx context.Context, to *sql.Conn) error {
	prev := []byte{}
	for _, e := range r.events {
		if _, err := to.ExecContext(ctx, "INSERT INTO events("+db.Columns+") VALUES(?,?,?,?,?,?)", e.ID, e.CreatedAt, e.Source, e.Type, e.Subtype, e.Content); err != nil {
			return err
		}
		sum := e.Hash(prev)
		if _, err := to.ExecContext(ctx, "INSERT INTO x_chain(event_id, prev, sha256) VALUES(?,?,?)", e.ID, prev, sum[:]); err != nil {
			return err
		}
		prev = sum[:]
		key, erased := r.tombs[e.ID]
		if !erased || e.Content != store.Erased {
			continue
		}
		// What was erased keeps the key by which its turn is known.
		if _, err := to.ExecContext(ctx, schema.Erased); err != nil {
			return err
		}
		if _, err := to.ExecContext(ctx, schema.RaiseFormat, schema.FormatErased); err != nil {
			return err
		}
		if _, err := to.ExecContext(ctx, "INSERT INTO x_erased(event_id, key, proof) VALUES(?,?,?)", e.ID, key, thread.TombstoneProof(e, sum[:], key)); err != nil {
			return err
		}
	}
	return nil
}
