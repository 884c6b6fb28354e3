package journal

import (
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/machine"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/thread"
)

// skipAtOnce are the deliveries that one step of SkipReplies loads.
const skipAtOnce = 256

// SkipMessages ends the open events of an inbox that are older than a stamp, or all when
// it is empty, without a turn: a message is dead with a cause and dropped, so that it is
// on record and no dead letter waits for a person. Events that a turn has begun are left
// alone. It answers how many messages it ended.
func SkipMessages(tx *db.Tx, before, why string, begun func(key string) bool) (n int64, err error) {
	if err := tx.ChainForeign(); err != nil {
		return 0, err
	}
	in, err := loadInbox(tx)
	if err != nil {
		return 0, err
	}
	err = tx.Events("SELECT "+db.Columns+openEvent+" ORDER BY id", []any{in.Acked}, func(e thread.Event) error {
		key := e.Key(in.UUID)
		if before != "" && e.CreatedAt >= before || begun(key) {
			return nil
		}
		f := machine.Fate{InboxID: e.ID, Key: key, Fate: store.FateNotAMessage, At: in.Now.UnixMilli()}
		if e.Type == thread.TypeMessage {
			f.Fate, f.Error = store.FateDead, why
			n++
		}
		in.Fates = append(in.Fates, f)
		return nil
	})
	if err != nil || len(in.Fates) == 0 {
		return 0, err
	}
	if _, _, err := saveInbox(tx, &in); err != nil {
		return 0, err
	}
	for _, f := range in.Fates {
		if f.Fate != store.FateDead {
			continue
		}
		if _, err := tx.Exec("UPDATE x_dead SET resolved = 'dropped' WHERE inbox_id = ?", f.InboxID); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// SkipReplies records unsent messages of the agent that another program wrote, older than
// a stamp or all when it is empty, as skipped, and moves the ack of outbound.
// It answers how many.
func SkipReplies(tx *db.Tx, before, why string) (n int64, err error) {
	if err := tx.ChainForeign(); err != nil {
		return 0, err
	}
	for more := true; more; {
		var some int64
		err := Run(tx, 0, machine.Needs{Due: skipAtOnce, FirstOpen: true}, func(t *machine.Thread) error {
			some, more = machine.SkipForeign(t, before, why)
			return nil
		})
		if n += some; err != nil {
			return n, err
		}
	}
	return n, nil
}
