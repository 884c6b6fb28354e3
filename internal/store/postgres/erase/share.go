package erase

import (
	"context"
	"slices"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/unit"
	"github.com/theclaw/agents/internal/thread"
)

// ShareStep answers what of a thread is a peer's.
type ShareStep struct {
	q    store.PeerQuery
	open []string // of an inbox: threads with replies that are not done
	Out  store.PeerShare
}

// Share is a view.
func Share(q store.PeerQuery) *ShareStep { return &ShareStep{q: q} }

// Load reads it.
func (s *ShareStep) Load(tx *unit.Tx) {
	switch {
	case tx.IsInbox():
		s.inbox(tx)
		return
	case s.q.Whole:
		s.Out.Whole = true
		s.ids(tx, "SELECT id FROM event WHERE agent_id = $1 AND thread_id = $2 ORDER BY id")
		s.keys(tx, "SELECT key FROM turn WHERE agent_id = $1 AND thread_id = $2 ORDER BY key")
	default:
		s.keys(tx, turnsOf+" ORDER BY 1", s.q.Turns)
		// What a turn says it says under its key: key:in, key:out, key:tool:1:1 ... A
		// digest may quote everybody.
		// What hooks decided about a message may quote it.
		s.ids(tx, `WITH said AS (SELECT d.event_id FROM (`+turnsOf+`) k JOIN dedupe d ON d.agent_id = $1 AND d.thread_id = $2 AND d.key > k.key || ':' AND d.key < k.key || ';')
			SELECT event_id FROM said
			UNION SELECT k.event_id FROM said JOIN delivery d ON d.agent_id = $1 AND d.thread_id = $2 AND d.event_id = said.event_id
				JOIN dedupe k ON k.agent_id = $1 AND k.thread_id = $2 AND k.key = 'delivery:' || d.key || ':hook'
			UNION SELECT event_id FROM dedupe WHERE agent_id = $1 AND thread_id = $2 AND key >= 'compact:' AND key < 'compact;' ORDER BY 1`, s.q.Turns)
	}
	tx.One(`SELECT (SELECT COUNT(*) FROM delivery WHERE agent_id = $1 AND thread_id = $2 AND state IN ('pending', 'sending'))
		+ (SELECT COUNT(*) FROM delivery WHERE agent_id = $1 AND thread_id = $2 AND state = 'dead' AND resolved = '')`, nil, nil, &s.Out.Open)
}

// turnsOf are the turns with the keys $3, and their leaders.
const turnsOf = `SELECT key FROM turn WHERE agent_id = $1 AND thread_id = $2 AND key = ANY($3::text[])
	UNION SELECT leader FROM turn WHERE agent_id = $1 AND thread_id = $2 AND key = ANY($3::text[]) AND leader <> ''`

func (s *ShareStep) inbox(tx *unit.Tx) {
	tx.Read(`SELECT e.id, e.created_at, e.source, e.type, e.subtype, e.content, COALESCE(f.key, ''), COALESCE(f.thread, ''),
		f.inbox_id IS NULL OR (f.fate = 'dead' AND f.resolved = '')
		FROM event e LEFT JOIN fate f ON f.agent_id = $1 AND f.thread_id = $2 AND f.inbox_id = e.id
		WHERE e.agent_id = $1 AND e.thread_id = $2 ORDER BY e.id`, nil, func(scan func(...any) error) error {
		var e thread.Event
		var key, at string
		var open bool
		if err := scan(&e.ID, &e.CreatedAt, &e.Source, &e.Type, &e.Subtype, &e.Content, &key, &at, &open); err != nil || !s.q.Match(e) {
			return err
		}
		s.Out.Events = append(s.Out.Events, e.ID)
		if open {
			s.Out.Open++
		}
		if at != "" {
			s.Out.Turns = append(s.Out.Turns, key)
			if !slices.Contains(s.Out.Threads, at) {
				s.Out.Threads = append(s.Out.Threads, at)
			}
		}
		return nil
	})
	tx.Read("SELECT thread FROM outbox WHERE agent_id = $1 AND thread_id = $2 AND (head > acked OR dead > 0)", nil, func(scan func(...any) error) error {
		var at string
		err := scan(&at)
		s.open = append(s.open, at)
		return err
	})
}

func (s *ShareStep) ids(tx *unit.Tx, sql string, args ...any) {
	tx.Read(sql, args, func(scan func(...any) error) error {
		var id int64
		err := scan(&id)
		s.Out.Events = append(s.Out.Events, id)
		return err
	})
}

func (s *ShareStep) keys(tx *unit.Tx, sql string, args ...any) {
	tx.Read(sql, args, func(scan func(...any) error) error {
		var key string
		err := scan(&key)
		s.Out.Turns = append(s.Out.Turns, key)
		return err
	})
}

// Decide counts the replies of an inbox that are not done.
func (s *ShareStep) Decide(context.Context, *unit.Tx) error {
	for _, at := range s.open {
		if slices.Contains(s.Out.Threads, at) {
			s.Out.Open++
		}
	}
	return nil
}
