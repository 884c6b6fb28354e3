package sqlite

import (
	"context"
	"slices"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/store/sqlite/journal"
	"github.com/theclaw/agents/internal/thread"
)

// Share returns what of a thread belongs to a peer.
func (e *Engine) Share(ctx context.Context, r store.Ref, q store.PeerQuery) (store.PeerShare, error) {
	return view(ctx, e, r, func(tx *db.Tx) (store.PeerShare, error) { return peerRecords(tx, r.IsInbox(), q) })
}

// Erase replaces the contents of events and then removes their bytes from the files. An
// erased event keeps everything but its content, and its keys, which identify turns and
// deliveries, stay what they were. Its tombstone is written in the same transaction.
//
// The title of a conversation that is the peer's alone is in the list of sessions too, which
// is another database; it is erased there first, because a repetition finds the conversation.
func (e *Engine) Erase(ctx context.Context, r store.Ref, s store.PeerShare) error {
	if s.Whole && !r.IsInbox() {
		if err := e.eraseTitle(ctx, r); err != nil {
			return err
		}
	}
	if err := e.do(ctx, r, true, func(tx *db.Tx) error { return eraseContents(tx, r.IsInbox(), s) }); err != nil {
		return err
	}
	return e.pool.Scrub(ctx, r)
}

// eraseTitle forgets the title of a conversation in the list of sessions.
func (e *Engine) eraseTitle(ctx context.Context, r store.Ref) error {
	inbox := store.Inbox(r.Agent)
	listed, err := view(ctx, e, inbox, func(tx *db.Tx) (bool, error) { return tx.HasSessions(), nil })
	if err != nil || !listed {
		return err
	}
	if err := e.do(ctx, inbox, true, func(tx *db.Tx) error {
		_, err := tx.Exec("UPDATE x_sessions SET title = '' WHERE thread = ?", r.Thread)
		return err
	}); err != nil {
		return err
	}
	return e.pool.Scrub(ctx, inbox)
}

// peerRecords returns which events and turns of the database belong to a peer.
func peerRecords(tx *db.Tx, inbox bool, q store.PeerQuery) (store.PeerShare, error) {
	if inbox {
		return peerInbox(tx, q)
	}
	return peerThread(tx, q)
}

func peerInbox(tx *db.Tx, q store.PeerQuery) (s store.PeerShare, err error) {
	err = tx.Each(`SELECT e.id, e.created_at, e.source, e.type, e.subtype, e.content, COALESCE(f.key,''), COALESCE(f.thread,''),
		f.inbox_id IS NULL OR EXISTS (SELECT 1 FROM x_dead d WHERE d.inbox_id = e.id AND d.resolved = '')
		FROM events e LEFT JOIN x_fate f ON f.inbox_id = e.id ORDER BY e.id`, nil, func(scan func(...any) error) error {
		var e thread.Event
		var key, at string
		var open bool
		if err := scan(&e.ID, &e.CreatedAt, &e.Source, &e.Type, &e.Subtype, &e.Content, &key, &at, &open); err != nil || !q.Match(e) {
			return err
		}
		s.Events = append(s.Events, e.ID)
		if open {
			s.Open++
		}
		if at != "" {
			s.Turns = append(s.Turns, key)
			if !slices.Contains(s.Threads, at) {
				s.Threads = append(s.Threads, at)
			}
		}
		return nil
	})
	if err != nil {
		return s, err
	}
	for _, t := range s.Threads {
		var n int64
		if _, err := tx.Row("SELECT COUNT(*) FROM x_outbox WHERE thread = ? AND (head > acked OR dead > 0)", []any{t}, &n); err != nil {
			return s, err
		}
		s.Open += n
	}
	return s, nil
}

func peerThread(tx *db.Tx, q store.PeerQuery) (s store.PeerShare, err error) {
	if s.Whole = q.Whole; q.Whole {
		if s.Events, err = queryIDs(tx, "SELECT id FROM events ORDER BY id"); err != nil {
			return s, err
		}
		s.Turns, err = queryKeys(tx, "SELECT key FROM x_turn ORDER BY key")
	} else {
		for _, k := range q.Turns {
			mine, err := queryKeys(tx, "SELECT key FROM x_turn WHERE key = ? UNION SELECT leader FROM x_turn WHERE key = ? AND leader <> ''", k, k)
			if err != nil {
				return s, err
			}
			s.Turns = append(s.Turns, mine...)
		}
		slices.Sort(s.Turns)
		s.Turns = slices.Compact(s.Turns)
		for _, k := range s.Turns {
			// What a turn says it says under its key: key:in, key:out, key:tool:1:1 ...
			mine, err := queryIDs(tx, "SELECT event_id FROM x_dedupe WHERE key > ? || ':' AND key < ? || ';'", k, k)
			if err != nil {
				return s, err
			}
			s.Events = append(s.Events, mine...)
		}
		// What hooks decided about a message may quote it.
		for _, id := range s.Events {
			decided, err := queryIDs(tx, "SELECT k.event_id FROM x_delivery d JOIN x_dedupe k ON k.key = 'delivery:' || d.key || ':hook' WHERE d.event_id = ?", id)
			if err != nil {
				return s, err
			}
			s.Events = append(s.Events, decided...)
		}
		// A digest may quote everybody.
		told, err := queryIDs(tx, "SELECT event_id FROM x_dedupe WHERE key >= 'compact:' AND key < 'compact;'")
		if err != nil {
			return s, err
		}
		s.Events = append(s.Events, told...)
		slices.Sort(s.Events)
		s.Events = slices.Compact(s.Events)
	}
	if err == nil {
		_, err = tx.Row("SELECT COUNT(*) FROM x_delivery WHERE state IN ('pending','sending') OR (state = 'dead' AND resolved = '')", nil, &s.Open)
	}
	return s, err
}

// eraseContents replaces the contents of the share and leaves tombstones.
func eraseContents(tx *db.Tx, inbox bool, s store.PeerShare) error {
	if err := tx.Erase(s.Events, store.Erased); err != nil {
		return err
	}
	for _, k := range s.Turns {
		if _, err := tx.Exec("UPDATE x_step SET result = NULL, arguments = '', summary = '' WHERE turn = ?", k); err != nil {
			return err
		}
		if _, err := tx.Exec("UPDATE x_turn SET error = '', attempts = '', reply_context = '' WHERE key = ?", k); err != nil {
			return err
		}
	}
	for _, id := range s.Events {
		for _, q := range []string{
			"UPDATE x_delivery SET error = '' WHERE event_id = ? AND error <> ''",
			"UPDATE x_dead SET error = '' WHERE inbox_id = ? AND error <> ''",
		} {
			if _, err := tx.Exec(q, id); err != nil {
				return err
			}
		}
	}
	if err := eraseSessions(tx, inbox, s); err != nil {
		return err
	}
	if inbox {
		if err := journal.EraseProcesses(tx, s.Turns); err != nil {
			return err
		}
	}
	_, err := tx.Exec("UPDATE x_memory SET text = '', thread = '', event = '' WHERE text <> '' OR event <> ''")
	return err
}

// eraseSessions forgets what a peer is in the origins of its events, and the title of a
// conversation that is the peer's alone.
func eraseSessions(tx *db.Tx, inbox bool, s store.PeerShare) error {
	if !tx.HasSessions() {
		return nil
	}
	if !inbox {
		if !s.Whole {
			return nil
		}
		_, err := tx.Exec("UPDATE x_session SET title = ''")
		return err
	}
	for _, id := range s.Events {
		if _, err := tx.Exec("UPDATE x_origin SET account = '', provider_id = '', command = '' WHERE inbox_id = ?", id); err != nil {
			return err
		}
	}
	return nil
}

func queryIDs(tx *db.Tx, q string, args ...any) (out []int64, err error) {
	err = tx.Each(q, args, func(scan func(...any) error) error {
		var id int64
		err := scan(&id)
		out = append(out, id)
		return err
	})
	return out, err
}

func queryKeys(tx *db.Tx, q string, args ...any) (out []string, err error) {
	err = tx.Each(q, args, func(scan func(...any) error) error {
		var k string
		err := scan(&k)
		out = append(out, k)
		return err
	})
	return out, err
}
