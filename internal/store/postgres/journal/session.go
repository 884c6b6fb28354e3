package journal

import (
	"context"
	"strconv"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/unit"
	"github.com/theclaw/agents/internal/thread"
)

// sessionColumns are those of a store.Session, as loadSession and saveSession name its fields.
const sessionColumns = `key, epoch, epoch_from, started_at, pending, pending_by, model, thinking, "verbose", reasoning, queue_mode, usage_footer, elevated, title, archived`

// loadSession queues the read of the session of the conversation; *out stays nil when it has
// none.
func loadSession(tx *unit.Tx, out **store.Session) {
	tx.Read("SELECT "+sessionColumns+" FROM session WHERE "+inThread, nil, func(scan func(...any) error) error {
		s := &store.Session{}
		var started int64
		err := scan(&s.Key, &s.Epoch, &s.EpochFrom, &started, &s.Pending, &s.PendingBy, &s.Model, &s.Thinking, &s.Verbose, &s.Reasoning,
			&s.QueueMode, &s.UsageFooter, &s.Elevated, &s.Title, &s.Archived)
		s.StartedAt, *out = store.FromMillis(started), s
		return err
	})
}

// loadLastAt queues the read of when the newest event was stored that is no context; *out stays zero when there is none.
func loadLastAt(tx *unit.Tx, out *time.Time) {
	tx.Read("SELECT created_at FROM event WHERE "+inThread+" AND (type, COALESCE(subtype, '')) <> ('"+thread.TypeRecord+"', '"+thread.SubtypeContext+
		"') ORDER BY id DESC LIMIT 1", nil, func(scan func(...any) error) error {
		var at string
		err := scan(&at)
		*out = thread.ParseStamp(at)
		return err
	})
}

func saveSession(tx *unit.Tx, s store.Session) {
	tx.Exec(`INSERT INTO session(agent_id, thread_id, `+sessionColumns+`, key_folded) VALUES($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16,$17,$18)
		ON CONFLICT (agent_id, thread_id) DO UPDATE SET key = excluded.key, epoch = excluded.epoch, epoch_from = excluded.epoch_from, started_at = excluded.started_at,
			pending = excluded.pending, pending_by = excluded.pending_by, model = excluded.model, thinking = excluded.thinking, "verbose" = excluded."verbose",
			reasoning = excluded.reasoning, queue_mode = excluded.queue_mode, usage_footer = excluded.usage_footer, elevated = excluded.elevated,
			title = excluded.title, archived = excluded.archived, key_folded = excluded.key_folded`,
		s.Key, s.Epoch, s.EpochFrom, store.Millis(s.StartedAt), s.Pending, s.PendingBy, s.Model, s.Thinking, s.Verbose, s.Reasoning,
		s.QueueMode, s.UsageFooter, s.Elevated, s.Title, s.Archived, unit.Indexed(s.Folded()))
}

// SessionStep answers the session of a conversation, and changes it first when there is a
// patch; store.ErrNoSession.
type SessionStep struct {
	patch *store.SessionPatch
	found *store.Session
	Out   store.Session
}

// Session is a view.
func Session() *SessionStep { return &SessionStep{} }

// PatchSession makes a session where there is none.
func PatchSession(p store.SessionPatch) *SessionStep { return &SessionStep{patch: &p} }

// Load reads it.
func (s *SessionStep) Load(tx *unit.Tx) { loadSession(tx, &s.found) }

// Decide writes it when it changes.
func (s *SessionStep) Decide(_ context.Context, tx *unit.Tx) error {
	switch {
	case s.found != nil:
		s.Out = *s.found
	case s.patch == nil:
		return store.ErrNoSession
	default:
		s.Out.Key = s.patch.Key
	}
	if s.patch == nil {
		return nil
	}
	s.Out = s.patch.Apply(s.Out)
	if s.found == nil || *s.found != s.Out {
		saveSession(tx, s.Out)
	}
	return nil
}

// SessionsStep lists sessions of an agent, the last active first.
type SessionsStep struct {
	q   store.ListSessions
	Out []store.SessionEntry
}

// Sessions is a view of the inbox.
func Sessions(q store.ListSessions) *SessionsStep { return &SessionsStep{q: q} }

// Load reads them. When a session was last active stands in the row of its thread, which is
// written with each event anyway; so a list reads all sessions of the agent, or those of one
// key, and orders them. Messages are counted for the page alone, as turns without those that are
// open: both are counted in an index.
func (s *SessionsStep) Load(tx *unit.Tx) {
	args := []any{tx.Agent}
	arg := func(v any) string {
		args = append(args, v)
		return "$" + strconv.Itoa(len(args))
	}
	from := "session WHERE agent_id = $1"
	if s.q.Folded != "" {
		from += " AND key_folded = " + arg(unit.Indexed(s.q.Folded))
	}
	where := "true"
	if !s.q.Archived {
		where += " AND NOT s.archived"
	}
	if !s.q.Since.IsZero() {
		where += " AND t.last_at >= " + arg(stamp(s.q.Since))
	}
	if s.q.BeforeThread != "" {
		at := arg(stamp(s.q.Before))
		where += " AND (t.last_at < " + at + " OR t.last_at = " + at + " AND s.thread_id > " + arg(s.q.BeforeThread) + ")"
	}
	tx.ReadRaw(`SELECT p.thread_id, p.key, p.epoch, p.title, p.archived, p.last_at,
			(SELECT COUNT(*) FROM turn n WHERE n.agent_id = $1 AND n.thread_id = p.thread_id)
			- (SELECT COUNT(*) FROM turn n WHERE n.agent_id = $1 AND n.thread_id = p.thread_id AND n.state <> 'done')
		FROM (SELECT s.thread_id, s.key, s.epoch, s.title, s.archived, t.last_at FROM (SELECT * FROM `+from+` OFFSET 0) s
			CROSS JOIN LATERAL (SELECT last_at FROM thread WHERE agent_id = $1 AND thread_id = s.thread_id OFFSET 0) t
			WHERE `+where+` ORDER BY t.last_at COLLATE "C" DESC, s.thread_id LIMIT `+arg(s.q.Limit)+`::bigint) p
		ORDER BY p.last_at COLLATE "C" DESC, p.thread_id`, args, func(scan func(...any) error) error {
		var e store.SessionEntry
		var at string
		err := scan(&e.Thread, &e.Key, &e.Epoch, &e.Title, &e.Archived, &at, &e.Messages)
		e.LastAt = thread.ParseStamp(at)
		s.Out = append(s.Out, e)
		return err
	})
}

// stamp is t as thread.last_at; empty for none.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return thread.Stamp(t)
}

// Decide has nothing to decide.
func (s *SessionsStep) Decide(context.Context, *unit.Tx) error { return nil }
