package sqlite

import (
	"context"
	"slices"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
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
}

func loadTurn(tx *db.Tx, key string) (turnRow, error) {
	var t turnRow
	var fate string
	var err error
	t.found, err = tx.Row(`SELECT state, fate, crash_attempts, error_attempts, not_before, waiting_since, inbound_id, reply_id, error_id
		FROM x_turn WHERE key = ?`, []any{key}, &t.state, &fate, &t.crashes, &t.errors, &t.notBefore, &t.waitingSince, &t.inboundID, &t.replyID, &t.errorID)
	t.fate = store.Fate(fate)
	return t, err
}

func (t turnRow) finished(tx *db.Tx) (store.Finished, error) {
	f := store.Finished{Fate: t.fate, ReplyID: t.replyID, InboundID: t.inboundID, ErrorEventID: t.errorID, Already: true}
	var err error
	f.OutboxHead, err = outboxHead(tx)
	return f, err
}

// outboxHead is the newest event that waits for delivery; 0 when none does.
func outboxHead(tx *db.Tx) (int64, error) {
	var head int64
	_, err := tx.Row("SELECT COALESCE(MAX(event_id),0) FROM x_delivery WHERE state IN ('pending','sending')", nil, &head)
	return head, err
}

// Begin claims an event (T1) and records it (T2). The claim is counted before
// any work, in the same transaction, so that a killer can be told from an
// innocent however often the process dies.
func (e *Engine) Begin(ctx context.Context, r store.Ref, f store.Fence, b store.Begin) (store.Begun, error) {
	var out store.Begun
	err := e.do(ctx, r, false, func(tx *db.Tx) error {
		out = store.Begun{}
		if err := e.fence(tx, f); err != nil {
			return err
		}
		t, err := loadTurn(tx, b.Key)
		if err != nil {
			return err
		}
		if t.state == store.TurnDone {
			out.Outcome = store.BeginFinished
			out.Finished, err = t.finished(tx)
			return err
		}
		now := time.Now()
		if wait := t.notBefore - now.UnixMilli(); wait > 0 {
			out.Outcome, out.Wait = store.BeginWait, time.Duration(wait)*time.Millisecond
			return nil
		}
		if t.crashes >= store.AloneAfter && !b.Alone && t.crashes < store.MaxCrashAttempts {
			out.Outcome = store.BeginAlone
			return nil
		}
		if b.Subscribe {
			filter := thread.OutboundFilter
			if err := upsertSubscription(tx, thread.Outbound, b.Handler, &filter); err != nil {
				return err
			}
		}
		if t.inboundID, err = recordInbound(tx, f, b); err != nil {
			return err
		}
		if t.crashes >= store.MaxCrashAttempts {
			return e.exhaust(tx, f, b, t, &out)
		}
		if _, err := tx.Exec(`INSERT INTO x_turn(key, inbox_id, state, crash_attempts, reply_context, inbound_id, claimed_at) VALUES(?,?,'claimed',1,?,?,?)
			ON CONFLICT(key) DO UPDATE SET state = 'claimed', crash_attempts = crash_attempts + 1, inbound_id = excluded.inbound_id`,
			b.Key, b.Event.ID, b.ReplyContext, t.inboundID, now.UnixMilli()); err != nil {
			return err
		}
		out.Outcome, out.CrashAttempts, out.ErrorAttempts = store.BeginGo, t.crashes+1, t.errors
		if t.waitingSince > 0 {
			out.Waited = now.Sub(time.UnixMilli(t.waitingSince))
		}
		return fillContext(tx, b, t.inboundID, &out)
	})
	return out, err
}

func recordInbound(tx *db.Tx, f store.Fence, b store.Begin) (int64, error) {
	id, _, err := tx.InsertOnce(b.Key+":in", f.Token, store.NewEvent{
		Source: b.Event.Source, Type: b.Event.Type, Subtype: b.Event.Subtype, Content: b.Event.Content,
	})
	return id, err
}

func (e *Engine) exhaust(tx *db.Tx, f store.Fence, b store.Begin, t turnRow, out *store.Begun) error {
	out.Outcome = store.BeginExhausted
	if _, err := tx.Exec("INSERT OR IGNORE INTO x_turn(key, inbox_id, state, inbound_id) VALUES(?,?,'claimed',?)", b.Key, b.Event.ID, t.inboundID); err != nil {
		return err
	}
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
	budget := thread.MaxAnswer / 2
	err = tx.Each("SELECT "+db.Columns+" FROM events WHERE type = 'message' AND id <= ? ORDER BY id DESC LIMIT ?", []any{inboundID, b.Tail}, func(scan func(...any) error) error {
		ev, err := db.Scan(scan)
		if err != nil {
			return err
		}
		if budget -= ev.Size(); budget >= 0 || len(out.Tail) == 0 {
			out.Tail = append(out.Tail, ev)
		}
		return nil
	})
	slices.Reverse(out.Tail)
	return err
}

const stepColumns = "seq, kind, key, request_sha256, class, state, name, call_id, arguments, result, input, output, cached_input, reasoning, duration_us, recorded_at"

func steps(tx *db.Tx, turn string) ([]store.Step, error) {
	var out []store.Step
	err := tx.Each("SELECT "+stepColumns+" FROM x_step WHERE turn = ? ORDER BY seq", []any{turn}, func(scan func(...any) error) error {
		var s store.Step
		var us, at int64
		if err := scan(&s.Seq, &s.Kind, &s.Key, &s.RequestSHA256, &s.Class, &s.State, &s.Name, &s.CallID, &s.Arguments, &s.Result,
			&s.Usage.Input, &s.Usage.Output, &s.Usage.CachedInput, &s.Usage.Reasoning, &us, &at); err != nil {
			return err
		}
		s.Duration, s.RecordedAt = time.Duration(us)*time.Microsecond, store.FromMillis(at)
		out = append(out, s)
		return nil
	})
	return out, err
}

// putSteps journals steps: a new one is inserted, an intent becomes done or in
// doubt, and what is done stays as it is.
func putSteps(tx *db.Tx, f store.Fence, turn string, list []store.Step, toolcalls map[string]string) (fresh bool, err error) {
	for _, s := range list {
		n, err := tx.Exec(`INSERT INTO x_step(turn, `+stepColumns+`) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)
			ON CONFLICT(turn, key) DO UPDATE SET state = excluded.state, result = excluded.result, duration_us = excluded.duration_us,
				recorded_at = excluded.recorded_at WHERE x_step.state = 'intent' AND excluded.state <> 'intent'`,
			turn, s.Seq, s.Kind, s.Key, s.RequestSHA256, s.Class, s.State, s.Name, s.CallID, s.Arguments, s.Result,
			s.Usage.Input, s.Usage.Output, s.Usage.CachedInput, s.Usage.Reasoning, s.Duration.Microseconds(), time.Now().UnixMilli())
		if err != nil {
			return fresh, err
		}
		fresh = fresh || n > 0
		content, ok := toolcalls[s.Key]
		if !ok {
			continue
		}
		sub := thread.SubtypeToolcall
		if _, _, err := tx.InsertOnce(turn+":"+s.Key, f.Token, store.NewEvent{Source: thread.SourceSelf, Type: thread.TypeRecord, Subtype: &sub, Content: content}); err != nil {
			return fresh, err
		}
	}
	return fresh, nil
}

// Record journals steps (T3, T4, T6) and failed tries. An intent of class
// effect is made durable: after it the outside world may change.
func (e *Engine) Record(ctx context.Context, r store.Ref, f store.Fence, rec store.Record) (int, error) {
	attempts := 0
	durable := slices.ContainsFunc(rec.Steps, func(s store.Step) bool {
		return s.State == store.StepIntent && s.Class == store.ClassEffect
	})
	err := e.do(ctx, r, durable, func(tx *db.Tx) error {
		if err := e.fence(tx, f); err != nil {
			return err
		}
		t, err := loadTurn(tx, rec.Key)
		if err != nil {
			return err
		}
		if !t.found {
			return store.ErrNoTurn
		}
		attempts = t.errors
		if t.state == store.TurnDone {
			return nil
		}
		fresh, err := putSteps(tx, f, rec.Key, rec.Steps, rec.Toolcalls)
		if err != nil {
			return err
		}
		if fresh && t.crashes > 0 {
			// Progress: what crashed before is not what this message does.
			if _, err := tx.Exec("UPDATE x_turn SET crash_attempts = 0 WHERE key = ?", rec.Key); err != nil {
				return err
			}
		}
		if rec.Failed == nil {
			return nil
		}
		attempts, err = countFailure(tx, rec.Key, t, *rec.Failed)
		return err
	})
	return attempts, err
}

func countFailure(tx *db.Tx, key string, t turnRow, ft store.FailedTry) (int, error) {
	attempts, now := t.errors, time.Now()
	since := t.waitingSince
	if ft.Counted {
		attempts, since = attempts+1, 0
	} else if since == 0 {
		since = now.UnixMilli()
	}
	_, err := tx.Exec("UPDATE x_turn SET state = 'waiting', error_attempts = ?, error = ?, not_before = ?, waiting_since = ?, crash_attempts = 0 WHERE key = ?",
		attempts, ft.Error, now.Add(ft.Wait).UnixMilli(), since, key)
	return attempts, err
}

// Finish gives the turn its fate (T7 or T9), durably, in one transaction with
// the reply, its delivery and the chain.
func (e *Engine) Finish(ctx context.Context, r store.Ref, f store.Fence, fin store.Finish) (store.Finished, error) {
	var out store.Finished
	err := e.do(ctx, r, true, func(tx *db.Tx) error {
		if err := e.fence(tx, f); err != nil {
			return err
		}
		t, err := loadTurn(tx, fin.Key)
		if err != nil {
			return err
		}
		if !t.found {
			return store.ErrNoTurn
		}
		if t.state == store.TurnDone {
			out, err = t.finished(tx)
			return err
		}
		out, err = finish(tx, f, fin, t)
		return err
	})
	return out, err
}

func finish(tx *db.Tx, f store.Fence, fin store.Finish, t turnRow) (store.Finished, error) {
	out := store.Finished{Fate: fin.Fate, InboundID: t.inboundID}
	if _, err := putSteps(tx, f, fin.Key, fin.Steps, fin.Toolcalls); err != nil {
		return out, err
	}
	var err error
	switch fin.Fate {
	case store.FateReplied:
		out.ReplyID, err = say(tx, f, fin, fin.Key+":out", fin.Reply)
	case store.FateDead:
		sub := thread.SubtypeError
		out.ErrorEventID, _, err = tx.InsertOnce(fin.Key+":err", f.Token, store.NewEvent{Source: thread.SourceSelf, Type: thread.TypeRecord, Subtype: &sub, Content: fin.Record})
		if err == nil && fin.Apology != "" {
			_, err = say(tx, f, fin, fin.Key+":apology", fin.Apology)
		}
	}
	if err != nil {
		return out, err
	}
	if _, err := tx.Exec("UPDATE x_turn SET state = 'done', fate = ?, error = CASE WHEN ? = '' THEN error ELSE ? END, reply_id = ?, error_id = ?, not_before = 0, finished_at = ? WHERE key = ?",
		string(fin.Fate), fin.Error, fin.Error, out.ReplyID, out.ErrorEventID, time.Now().UnixMilli(), fin.Key); err != nil {
		return out, err
	}
	out.OutboxHead, err = outboxHead(tx)
	return out, err
}

// say appends an event of the agent and the row that will deliver it.
func say(tx *db.Tx, f store.Fence, fin store.Finish, key, content string) (int64, error) {
	id, fresh, err := tx.InsertOnce(key, f.Token, store.NewEvent{Source: thread.SourceSelf, Type: thread.TypeMessage, Content: content})
	if err != nil || !fresh || !fin.Deliver {
		return id, err
	}
	ev, _, err := tx.Event(id)
	if err != nil {
		return id, err
	}
	now, state, channel := time.Now().UnixMilli(), store.DeliveryPending, ""
	if fin.Console {
		state, channel = store.DeliverySent, "console"
	}
	if _, err := tx.Exec("INSERT INTO x_delivery(event_id, key, state, channel, boot_id, created_at, updated_at) VALUES(?,?,?,?,?,?,?)",
		id, ev.DeliveryKey(tx.UUID()), state, channel, fin.BootID, now, now); err != nil {
		return id, err
	}
	if fin.Console {
		_, err = advanceOutbound(tx)
	}
	return id, err
}

// ResetCrashes forgets the claims of turns that were given back cleanly.
func (e *Engine) ResetCrashes(ctx context.Context, r store.Ref, keys []string) error {
	return e.do(ctx, r, false, func(tx *db.Tx) error {
		for _, k := range keys {
			if _, err := tx.Exec("UPDATE x_turn SET crash_attempts = 0 WHERE key = ? AND state <> 'done'", k); err != nil {
				return err
			}
		}
		return nil
	})
}

// Claimed tells whether the thread has a turn under key.
func (e *Engine) Claimed(ctx context.Context, r store.Ref, key string) (bool, error) {
	found := false
	err := e.view(ctx, r, func(tx *db.Tx) error {
		t, err := loadTurn(tx, key)
		found = t.found
		return err
	})
	return found, err
}
