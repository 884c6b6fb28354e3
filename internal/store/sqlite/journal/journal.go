// Package journal owns the turns of a conversation thread: x_turn, what became
// of each inbox event, and x_step, what a turn has done so far.
//
//	        Begin            Record (failed try)
//	queued ------> claimed <--------------------> waiting
//	                  |  Finish, or Begin past the crash limit
//	                  v
//	                done (fate)
//
// Others may join a turn, at its claim or later: they are recorded as its members,
// and have their fate with its own, in the transactions that do the same for it.
//
// A claim is counted before any work, so that a killer can be told from an
// innocent however often the process dies. Everything is keyed by the event's
// key and done once; what is done stays as it is. The functions run inside a
// transaction whose caller has checked the fence.
package journal

import (
	"slices"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/consumer"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/store/sqlite/memory"
	"github.com/theclaw/agents/internal/store/sqlite/outbox"
	"github.com/theclaw/agents/internal/thread"
)

// turnRow is x_turn as the state machine reads it.
type turnRow struct {
	found                       bool
	state                       string
	fate                        store.Fate
	crashes, errors             int
	notBefore, waitingSince     int64
	inboundID, replyID, errorID int64
	leader                      string
}

func loadTurn(tx *db.Tx, key string) (turnRow, error) {
	var t turnRow
	var fate string
	var err error
	t.found, err = tx.Row(`SELECT state, fate, crash_attempts, error_attempts, not_before, waiting_since, inbound_id, reply_id, error_id, leader
		FROM x_turn WHERE key = ?`, []any{key}, &t.state, &fate, &t.crashes, &t.errors, &t.notBefore, &t.waitingSince, &t.inboundID, &t.replyID, &t.errorID, &t.leader)
	t.fate = store.Fate(fate)
	return t, err
}

func (t turnRow) finished(tx *db.Tx, key string) (store.Finished, error) {
	f := store.Finished{Fate: t.fate, ReplyID: t.replyID, InboundID: t.inboundID, ErrorEventID: t.errorID, Already: true}
	var err error
	if f.OutboxHead, err = outbox.Head(tx); err == nil {
		f.Merged, err = led(tx, key)
	}
	return f, err
}

// Begin claims an event (T1) and records it (T2).
func Begin(tx *db.Tx, f store.Fence, b store.Begin) (store.Begun, error) {
	var out store.Begun
	t, err := loadTurn(tx, b.Key)
	if err != nil {
		return out, err
	}
	if t.state == store.TurnDone {
		out.Outcome = store.BeginFinished
		out.Finished, err = t.finished(tx, b.Key)
		return out, err
	}
	now := time.Now()
	if wait := t.notBefore - now.UnixMilli(); wait > 0 {
		out.Outcome, out.Wait = store.BeginWait, time.Duration(wait)*time.Millisecond
		return out, nil
	}
	if t.crashes >= store.AloneAfter && !b.Alone && t.crashes < store.MaxCrashAttempts {
		out.Outcome = store.BeginAlone
		return out, nil
	}
	if b.Subscribe {
		filter := thread.OutboundFilter
		if err := consumer.Keep(tx, thread.Outbound, b.Handler, &filter); err != nil {
			return out, err
		}
	}
	if t.inboundID, err = recordInbound(tx, f, b); err != nil {
		return out, err
	}
	if t.crashes >= store.MaxCrashAttempts {
		err = exhaust(tx, f, b, t, &out)
		return out, err
	}
	if t.leader != "" { // its leader would have come first: there is none any more
		if err := leave(tx, t.leader, b.Key); err != nil {
			return out, err
		}
	}
	if t.crashes >= dissolveAfter {
		if err := dissolve(tx, b.Key); err != nil {
			return out, err
		}
	}
	if _, err := tx.Exec(`INSERT INTO x_turn(key, inbox_id, state, crash_attempts, reply_context, inbound_id, claimed_at) VALUES(?,?,'claimed',1,?,?,?)
		ON CONFLICT(key) DO UPDATE SET state = 'claimed', crash_attempts = crash_attempts + 1, inbound_id = excluded.inbound_id`,
		b.Key, b.Event.ID, b.ReplyContext, t.inboundID, now.UnixMilli()); err != nil {
		return out, err
	}
	if !t.found && len(b.Members) > 0 {
		if _, err := join(tx, f, store.Steer{Key: b.Key, Step: store.StepCollect, Seq: 1, Members: b.Members}); err != nil {
			return out, err
		}
	}
	out.Outcome, out.CrashAttempts, out.ErrorAttempts = store.BeginGo, t.crashes+1, t.errors
	if t.waitingSince > 0 {
		out.Waited = now.Sub(time.UnixMilli(t.waitingSince))
	}
	err = fillContext(tx, b, t.inboundID, &out)
	return out, err
}

func recordInbound(tx *db.Tx, f store.Fence, b store.Begin) (int64, error) {
	id, fresh, err := tx.InsertOnce(b.Key+":in", f.Token, store.NewEvent{
		Source: b.Event.Source, Type: b.Event.Type, Subtype: b.Event.Subtype, Content: b.Event.Content,
	})
	if err == nil && fresh && b.Tuple != "" { // it is missing when the process died after making the thread
		_, err = tx.Exec("UPDATE x_meta SET tuple = ? WHERE tuple = ''", b.Tuple)
	}
	if err == nil && fresh && id == 1 {
		err = decide(tx, f, b.Key+":opened", b.Opening)
	}
	return id, err
}

func exhaust(tx *db.Tx, f store.Fence, b store.Begin, t turnRow, out *store.Begun) error {
	out.Outcome = store.BeginExhausted
	const why = "the process died each time this message was worked on"
	fin, err := finish(tx, f, store.Finish{
		Key: b.Key, Fate: store.FateDead, Error: why,
		Record: string(append(append([]byte(`{"error":`), thread.AppendString(nil, why)...), `,"context":"crash attempts used up"}`...)),
	}, t)
	out.Finished = fin
	return err
}

func fillContext(tx *db.Tx, b store.Begin, inboundID int64, out *store.Begun) error {
	var err error
	if out.Inbound, _, err = tx.Event(inboundID); err != nil {
		return err
	}
	if out.Steps, err = steps(tx, b.Key); err != nil {
		return err
	}
	if out.Memory, err = memory.Marks(tx, b.Layers); err != nil {
		return err
	}
	budget := thread.MaxAnswer / 2
	out.Tail = make([]thread.Event, 0, min(b.Tail, 64))
	err = tx.Events("SELECT "+db.Columns+" FROM events WHERE type = 'message' AND id <= ? ORDER BY id DESC LIMIT ?", []any{inboundID, b.Tail}, func(ev thread.Event) error {
		if budget -= ev.Size(); budget >= 0 || len(out.Tail) == 0 {
			out.Tail = append(out.Tail, ev)
		}
		return nil
	})
	slices.Reverse(out.Tail)
	return err
}
