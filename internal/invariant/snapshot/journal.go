package snapshot

import (
	"strconv"
	"strings"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// account reads what is known about whole events: fates, acks, fences.
func (l *loader) account() {
	d := l.d
	l.table("x_fate", "SELECT inbox_id, key, thread, fate FROM x_fate ORDER BY inbox_id", func(scan func(...any) error) error {
		var f Fate
		err := scan(&f.ID, &f.Key, &f.Thread, &f.Fate)
		d.Fates = append(d.Fates, f)
		return err
	})
	l.table("x_dead", "SELECT inbox_id FROM x_dead", func(scan func(...any) error) error {
		var id int64
		err := scan(&id)
		d.Dead[id] = true
		return err
	})
	l.table("x_ack", "SELECT consumer, id FROM x_ack", func(scan func(...any) error) error {
		var consumer string
		var id int64
		err := scan(&consumer, &id)
		d.Acks[consumer] = id
		return err
	})
	l.table("x_fence", "SELECT resource, token FROM x_fence", func(scan func(...any) error) error {
		var resource string
		var token int64
		err := scan(&resource, &token)
		d.Fences[resource] = uint64(token)
		return err
	})
	l.table("x_outbox", "SELECT thread, acked FROM x_outbox", func(scan func(...any) error) error {
		var id string
		var acked int64
		err := scan(&id, &acked)
		d.Outbox[id] = acked
		return err
	})
	l.table("x_dedupe", "SELECT key, event_id, token FROM x_dedupe", func(scan func(...any) error) error {
		var key string
		var id, token int64
		err := scan(&key, &id, &token)
		d.Dedupe[key] = Dedupe{id, uint64(token)}
		return err
	})
}

// journal reads what a conversation thread knows of turns and deliveries.
func (l *loader) journal() {
	d := l.d
	l.table("x_turn", "SELECT key, inbox_id, state, fate, inbound_id, reply_id, error_id, claimed_at, leader FROM x_turn ORDER BY inbox_id, key", func(scan func(...any) error) error {
		var t Turn
		var claimed int64
		err := scan(&t.Key, &t.InboxID, &t.State, &t.Fate, &t.InboundID, &t.ReplyID, &t.ErrorID, &claimed, &t.Leader)
		t.Claimed = Millis(claimed)
		d.Turns = append(d.Turns, t)
		return err
	})
	l.table("x_step", "SELECT turn, key, kind, class, state, arguments, CAST(result AS TEXT) FROM x_step ORDER BY turn, seq", func(scan func(...any) error) error {
		var s Step
		var arguments string
		var result *string
		err := scan(&s.Turn, &s.Key, &s.Kind, &s.Class, &s.State, &arguments, &result)
		d.Steps = append(d.Steps, s)
		l.d.Search(l.o.Search, "step "+s.Key+" of "+s.Turn, arguments)
		if result != nil {
			l.d.Search(l.o.Search, "step "+s.Key+" of "+s.Turn, *result)
		}
		return err
	})
	if strings.Contains(l.there["x_step"], "is_error") {
		l.table("x_step", "SELECT turn, key, state, is_error FROM x_step WHERE asks <> 0 AND summary <> ''", func(scan func(...any) error) error {
			var s Asked
			err := scan(&s.Turn, &s.Key, &s.State, &s.IsError)
			d.Asked = append(d.Asked, s)
			return err
		})
	}
	l.table("x_delivery", "SELECT event_id, key, state, channel, provider_id, resolved, created_at FROM x_delivery ORDER BY event_id", func(scan func(...any) error) error {
		var v Delivery
		var created int64
		err := scan(&v.EventID, &v.Key, &v.State, &v.Channel, &v.ProviderID, &v.Resolved, &created)
		v.Created = Millis(created)
		d.Deliveries = append(d.Deliveries, v)
		return err
	})
}

// sessions reads where messages came from, and what conversations have next to their events. A
// database that knows nothing of either has no such table.
func (l *loader) sessions() {
	d := l.d
	if l.has("x_origin") {
		l.table("x_origin", "SELECT inbox_id, thread, session_key, account FROM x_origin ORDER BY inbox_id", func(scan func(...any) error) error {
			var o Origin
			err := scan(&o.InboxID, &o.Thread, &o.Key, &o.Account)
			d.Origins = append(d.Origins, o)
			return err
		})
	}
	if l.has("x_process") {
		l.table("x_process", "SELECT id, step_key, state, seen FROM x_process ORDER BY id", func(scan func(...any) error) error {
			var p Process
			err := scan(&p.ID, &p.StepKey, &p.State, &p.Seen)
			d.Processes = append(d.Processes, p)
			return err
		})
	}
	if l.has("x_media") {
		l.table("x_media", "SELECT sha256 FROM x_media ORDER BY sha256", func(scan func(...any) error) error {
			var m Media
			err := scan(&m.SHA256)
			d.Media = append(d.Media, m)
			return err
		})
	}
	if l.has("x_session") {
		l.table("x_session", "SELECT key, epoch, epoch_from, title, archived FROM x_session", func(scan func(...any) error) error {
			s := Session{Thread: d.Thread}
			err := scan(&s.Key, &s.Epoch, &s.EpochFrom, &s.Title, &s.Archived)
			d.Session = &s
			return err
		})
	}
	if l.has("x_sessions") {
		l.table("x_sessions", "SELECT thread, key, epoch, title, archived FROM x_sessions ORDER BY thread", func(scan func(...any) error) error {
			var s Session
			err := scan(&s.Thread, &s.Key, &s.Epoch, &s.Title, &s.Archived)
			d.Listed = append(d.Listed, s)
			return err
		})
	}
}
