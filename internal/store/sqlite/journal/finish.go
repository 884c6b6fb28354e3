package journal

import (
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/store/sqlite/outbox"
	"github.com/theclaw/agents/internal/thread"
)

// Finish gives the turn its fate (T7 or T9) in one transaction with the reply,
// its delivery and the chain; a fate that stands is answered.
func Finish(tx *db.Tx, f store.Fence, fin store.Finish) (store.Finished, error) {
	t, err := loadTurn(tx, fin.Key)
	if err != nil {
		return store.Finished{}, err
	}
	if !t.found {
		return store.Finished{}, store.ErrNoTurn
	}
	if t.state == store.TurnDone {
		return t.finished(tx, fin.Key)
	}
	return finish(tx, f, fin, t)
}

func finish(tx *db.Tx, f store.Fence, fin store.Finish, t turnRow) (store.Finished, error) {
	out := store.Finished{Fate: fin.Fate, InboundID: t.inboundID}
	if _, err := putSteps(tx, f, fin.Key, fin.Steps, fin.Toolcalls); err != nil {
		return out, err
	}
	var err error
	way := way{fin.Deliver, fin.Console, fin.BootID}
	switch fin.Fate {
	case store.FateReplied:
		out.ReplyID, err = say(tx, f, way, fin.Key+":out", fin.Reply)
	case store.FateDead:
		sub := thread.SubtypeError
		out.ErrorEventID, _, err = tx.InsertOnce(fin.Key+":err", f.Token, store.NewEvent{Source: thread.SourceSelf, Type: thread.TypeRecord, Subtype: &sub, Content: fin.Record})
		if err == nil && fin.Apology != "" {
			_, err = say(tx, f, way, fin.Key+":apology", fin.Apology)
		}
	default: // the other fates say nothing to anybody
		err = decide(tx, f, fin.Key+":decided", fin.Decision)
	}
	if err != nil {
		return out, err
	}
	if _, err := tx.Exec("UPDATE x_turn SET state = 'done', fate = ?, error = CASE WHEN ? = '' THEN error ELSE ? END, reply_id = ?, error_id = ?, not_before = 0, finished_at = ? WHERE key = ?",
		string(fin.Fate), fin.Error, fin.Error, out.ReplyID, out.ErrorEventID, time.Now().UnixMilli(), fin.Key); err != nil {
		return out, err
	}
	if out.Merged, err = end(tx, fin.Key, fin.Fate); err != nil {
		return out, err
	}
	out.OutboxHead, err = outbox.Head(tx)
	return out, err
}

// decide appends what was decided, once, when there is something to tell.
func decide(tx *db.Tx, f store.Fence, key, content string) error {
	if content == "" {
		return nil
	}
	sub := thread.SubtypeDecision
	_, _, err := tx.InsertOnce(key, f.Token, store.NewEvent{Source: thread.SourceSelf, Type: thread.TypeRecord, Subtype: &sub, Content: content})
	return err
}

// way is how what is said in a thread leaves it.
type way struct {
	deliver, console bool
	bootID           string
}

// say appends an event of the agent and the row that will deliver it.
func say(tx *db.Tx, f store.Fence, out way, key, content string) (int64, error) {
	if id, err := tx.Deduped(key); err != nil || id != 0 {
		return id, err
	}
	ev, err := tx.Insert(store.NewEvent{Source: thread.SourceSelf, Type: thread.TypeMessage, Content: content})
	if err != nil {
		return 0, err
	}
	if err := tx.Dedupe(key, ev.ID, f.Token); err != nil {
		return 0, err
	}
	return ev.ID, outbox.Put(tx, ev, out.deliver, out.console, out.bootID)
}

// ResetCrashes forgets the claims of turns that were given back cleanly.
func ResetCrashes(tx *db.Tx, keys []string) error {
	for _, k := range keys {
		if _, err := tx.Exec("UPDATE x_turn SET crash_attempts = 0 WHERE key = ? AND state <> 'done'", k); err != nil {
			return err
		}
	}
	return nil
}

// Claimed tells whether there is a turn under key.
func Claimed(tx *db.Tx, key string) (bool, error) {
	t, err := loadTurn(tx, key)
	return t.found, err
}
