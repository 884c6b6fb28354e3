package journal

import (
	"context"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/unit"
	"github.com/theclaw/agents/internal/thread"
)

// originColumns are those of an origin o; all are zero where it is joined and there is none.
const originColumns = `COALESCE(o.inbox_id, 0), COALESCE(o.thread, ''), COALESCE(o.session_key, ''), COALESCE(o.account, ''), COALESCE(o.provider_id, ''),
	COALESCE(o.rev, 0), COALESCE(o.command, ''), COALESCE(o.sent_at, 0), COALESCE(o.cause, '')`

// hasOrigin holds of an event e that has one. OFFSET 0 has each looked up, as in open.
const hasOrigin = "EXISTS (SELECT 1 FROM origin o WHERE o.agent_id = $1 AND o.inbox_id = e.id OFFSET 0)"

// originRow is what a row of originColumns is read to.
type originRow struct {
	id, sent int64
	o        store.Origin
}

func (r *originRow) dest() []any {
	o := &r.o
	return []any{&r.id, &o.Thread, &o.Key, &o.Account, &o.ProviderID, &o.Rev, &o.Command, &r.sent, &o.Cause}
}

// origin is the one that was read; nil when there was none.
func (r *originRow) origin() *store.Origin {
	if r.id == 0 {
		return nil
	}
	o := r.o
	o.SentAt = store.FromMillis(r.sent)
	return &o
}

// withOrigins adds the origins of a page's events to out, by id.
func withOrigins(out map[int64]*store.Origin) *unit.With {
	row := &originRow{}
	return &unit.With{
		Join:    "LEFT JOIN LATERAL (SELECT * FROM origin WHERE agent_id = $1 AND inbox_id = sized.id OFFSET 0) AS o ON true",
		Columns: originColumns,
		Dest:    row.dest(),
		Each: func(id int64) {
			if o := row.origin(); o != nil {
				out[id] = o
			}
		},
	}
}

// loadOrigin queues the read of one origin; *out stays nil when there is none.
func loadOrigin(tx *unit.Tx, id int64, out **store.Origin) {
	tx.ReadRaw("SELECT "+originColumns+" FROM origin o WHERE o.agent_id = $1 AND o.inbox_id = $2", []any{tx.Agent, id}, func(scan func(...any) error) error {
		row := &originRow{}
		err := scan(row.dest()...)
		*out = row.origin()
		return err
	})
}

// SaveOrigin queues the write of the origin of a new inbox event, and answers it as it is
// stored.
func SaveOrigin(tx *unit.Tx, id int64, o store.Origin) *store.Origin {
	tx.ExecRaw(`INSERT INTO origin(agent_id, inbox_id, thread, session_key, account, provider_id, rev, command, sent_at, cause)
		VALUES($1,$2,$3,$4,$5,$6,$7,$8,$9,$10)`, tx.Agent, id, o.Thread, o.Key, o.Account, o.ProviderID, o.Rev, o.Command, store.Millis(o.SentAt), o.Cause)
	o.SentAt = store.FromMillis(store.Millis(o.SentAt))
	return &o
}

// OriginStep answers the origin of an inbox event; nil when it has none.
type OriginStep struct {
	id  int64
	Out *store.Origin
}

// Origin is a view.
func Origin(id int64) *OriginStep { return &OriginStep{id: id} }

// Load reads it.
func (s *OriginStep) Load(tx *unit.Tx) { loadOrigin(tx, s.id, &s.Out) }

// Decide has nothing to decide.
func (s *OriginStep) Decide(context.Context, *unit.Tx) error { return nil }

// Stored is an event as a push finds it.
type Stored struct {
	thread.Event
	Key    string        // of an inbox event
	Origin *store.Origin // of an inbox event; nil: it has none
}

// LoadStored queues the read of the events between two ids, which are SQL over args from $3.
func LoadStored(tx *unit.Tx, from, to string, args []any, out *[]Stored) {
	tx.Read("SELECT "+unit.Columns+", COALESCE(erased_key, ''), "+originColumns+` FROM event e
		LEFT JOIN LATERAL (SELECT * FROM origin WHERE agent_id = $1 AND inbox_id = e.id AND $2 = '`+thread.Inbox+`' OFFSET 0) AS o ON true
		WHERE e.agent_id = $1 AND e.thread_id = $2 AND e.id BETWEEN `+from+" AND "+to+" ORDER BY e.id", args, func(scan func(...any) error) error {
		var s Stored
		row := &originRow{}
		e := &s.Event
		if err := scan(append([]any{&e.ID, &e.CreatedAt, &e.Source, &e.Type, &e.Subtype, &e.Content, &s.Key}, row.dest()...)...); err != nil {
			return err
		}
		if s.Key == "" {
			s.Key = e.Key(tx.UUID) // the thread's row was read before
		}
		s.Origin = row.origin()
		*out = append(*out, s)
		return nil
	})
}
