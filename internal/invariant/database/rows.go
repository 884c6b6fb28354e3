package database

import (
	"strconv"
	"strings"

	"github.com/theclaw/agents/internal/invariant/snapshot"
	"github.com/theclaw/agents/internal/thread"
)

// events reads events with their links, which stand in the same row.
func (l *loader) events(*snapshot.Home) error {
	var e thread.Event
	var prev, sum, proof []byte
	var key string
	return l.rows("event", "id, created_at, source, type, subtype, content, prev, sha256, COALESCE(erased_key, ''), erased_proof", "id",
		[]any{&e.ID, &e.CreatedAt, &e.Source, &e.Type, &e.Subtype, &e.Content, &prev, &sum, &key, &proof}, func(d *snapshot.DB) {
			d.Links = append(d.Links, snapshot.Link{ID: e.ID, Prev: append([]byte{}, prev...), Sum: append([]byte{}, sum...)})
			full := e
			if e.Subtype != nil {
				s := *e.Subtype
				full.Subtype = &s
			}
			d.Put(full, prev)
			if proof != nil {
				d.Events[len(d.Events)-1].Bury(full, sum, key, proof)
			}
			d.Search(l.o.Search, "event "+strconv.FormatInt(e.ID, 10), e.Content)
		})
}

// account reads what is known about whole events: fates, dead letters, fences.
func (l *loader) account(*snapshot.Home) error {
	var f snapshot.Fate
	if err := l.rows("fate", "inbox_id, key, thread, fate", "inbox_id", []any{&f.ID, &f.Key, &f.Thread, &f.Fate}, func(d *snapshot.DB) {
		d.Fates = append(d.Fates, f)
		d.Dead[f.ID] = f.Fate == "dead" // the row is its dead letter
	}); err != nil {
		return err
	}
	var key string
	var id, token int64
	if err := l.rows("fence", "resource, token", "resource", []any{&key, &token}, func(d *snapshot.DB) { d.Fences[key] = uint64(token) }); err != nil {
		return err
	}
	if err := l.rows("outbox", "thread, acked", "thread", []any{&key, &id}, func(d *snapshot.DB) { d.Outbox[key] = id }); err != nil {
		return err
	}
	if err := l.rows("subscription", "consumer", "consumer", []any{&key}, func(d *snapshot.DB) { d.Subscribed = d.Subscribed || key == inbox }); err != nil {
		return err
	}
	return l.rows("dedupe", "key, event_id, token", "key", []any{&key, &id, &token}, func(d *snapshot.DB) {
		d.Dedupe[key] = snapshot.Dedupe{EventID: id, Token: uint64(token)}
	})
}

// journal reads what a conversation knows of turns and deliveries.
func (l *loader) journal(*snapshot.Home) error {
	var t snapshot.Turn
	var at int64
	if err := l.rows("turn", "key, inbox_id, state, fate, inbound_id, reply_id, error_id, claimed_at, leader", "inbox_id, key",
		[]any{&t.Key, &t.InboxID, &t.State, &t.Fate, &t.InboundID, &t.ReplyID, &t.ErrorID, &at, &t.Leader}, func(d *snapshot.DB) {
			t.Claimed = snapshot.Millis(at)
			d.Turns = append(d.Turns, t)
		}); err != nil {
		return err
	}
	var s snapshot.Step
	var arguments string
	var result []byte
	if err := l.rows("step", "turn, key, kind, class, state, arguments, result", "turn, seq",
		[]any{&s.Turn, &s.Key, &s.Kind, &s.Class, &s.State, &arguments, &result}, func(d *snapshot.DB) {
			d.Steps = append(d.Steps, s)
			where := "step " + s.Key + " of " + s.Turn
			d.Search(l.o.Search, where, arguments)
			d.Search(l.o.Search, where, string(result))
		}); err != nil {
		return err
	}
	var v snapshot.Delivery
	return l.rows("delivery", "event_id, key, state, channel, provider_id, resolved, created_at", "event_id",
		[]any{&v.EventID, &v.Key, &v.State, &v.Channel, &v.ProviderID, &v.Resolved, &at}, func(d *snapshot.DB) {
			v.Created = snapshot.Millis(at)
			d.Deliveries = append(d.Deliveries, v)
		})
}

// asked reads what people were asked for calls. The database of an earlier build does not mark errors, or has no questions.
func (l *loader) asked(*snapshot.Home) error {
	var marks, questions bool
	if err := l.tx.QueryRow(l.ctx, `SELECT EXISTS (SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass('step') AND attname = 'is_error'),
		to_regclass('question') IS NOT NULL`).Scan(&marks, &questions); err != nil || !marks || !questions {
		return err
	}
	var s snapshot.Asked
	if err := l.rows("(SELECT * FROM step WHERE asks AND summary <> '') AS asked", "turn, key, state, is_error", "turn, key", []any{&s.Turn, &s.Key, &s.State, &s.IsError}, func(d *snapshot.DB) {
		d.Asked = append(d.Asked, s)
	}); err != nil {
		return err
	}
	for _, kind := range []string{"approval", "question"} {
		if err := l.each(kind, "agent_id, id, key, state", "agent_id, id", func(scan func(...any) error) error {
			var agent string
			p := snapshot.Prompt{Kind: kind}
			err := scan(&agent, &p.ID, &p.Key, &p.State)
			if a := l.agents[agent]; a != nil {
				a.Prompts = append(a.Prompts, p)
			}
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// sessions reads where messages came from, and what conversations have next to their events. The
// database of an earlier build has no such tables.
func (l *loader) sessions(*snapshot.Home) error {
	var there bool
	if err := l.tx.QueryRow(l.ctx, "SELECT to_regclass('origin') IS NOT NULL AND to_regclass('session') IS NOT NULL").Scan(&there); err != nil || !there {
		return err
	}
	var o snapshot.Origin
	err := l.rows("origin", "inbox_id, thread, session_key, account", "inbox_id", []any{&o.InboxID, &o.Thread, &o.Key, &o.Account}, func(d *snapshot.DB) {
		d.Origins = append(d.Origins, o)
	})
	if err != nil {
		return err
	}
	if err := l.tx.QueryRow(l.ctx, "SELECT to_regclass('process') IS NOT NULL").Scan(&there); err != nil {
		return err
	}
	var p snapshot.Process
	if there {
		if err := l.rows("process", "id, step_key, state, seen", "id", []any{&p.ID, &p.StepKey, &p.State, &p.Seen}, func(d *snapshot.DB) {
			d.Processes = append(d.Processes, p)
		}); err != nil {
			return err
		}
	}
	if err := l.tx.QueryRow(l.ctx, "SELECT to_regclass('media') IS NOT NULL").Scan(&there); err != nil {
		return err
	}
	var m snapshot.Media
	if there {
		if err := l.rows(media, "sha256, damaged", "sha256", []any{&m.SHA256, &m.Damaged}, func(d *snapshot.DB) {
			d.Media = append(d.Media, m)
		}); err != nil {
			return err
		}
	}
	var s snapshot.Session
	return l.rows("session", "key, epoch, epoch_from, title, archived", "key", []any{&s.Key, &s.Epoch, &s.EpochFrom, &s.Title, &s.Archived}, func(d *snapshot.DB) {
		own := s
		own.Thread = d.Thread
		d.Session = &own
	})
}

// media are the media of agents, and whether their data do not have their hash.
const media = `(SELECT agent_id, sha256, encode(sha256(COALESCE((SELECT string_agg(p.data, ''::bytea ORDER BY p.n) FROM media_piece p
	WHERE p.agent_id = m.agent_id AND p.sha256 = m.sha256), '')), 'hex') <> sha256 AS damaged FROM media m) AS media`

// mark begins what PostgreSQL could not store as it is: a byte in two hex digits.
const mark = "\x01"

// plain turns what was scanned into what was said; false when it cannot be.
func plain(dest []any) bool {
	for _, p := range dest {
		s, ok := p.(*string)
		if null, may := p.(**string); may {
			s, ok = *null, *null != nil
		}
		if !ok || !strings.Contains(*s, mark) {
			continue
		}
		parts := strings.Split(*s, mark)
		for i, part := range parts[1:] {
			b, err := strconv.ParseUint(part[:min(2, len(part))], 16, 8)
			if err != nil || len(part) < 2 {
				return false
			}
			parts[i+1] = string([]byte{byte(b)}) + part[2:]
		}
		*s = strings.Join(parts, "")
	}
	return true
}
