package journal

import (
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/machine"
	"github.com/theclaw/agents/internal/store/sqlite/consumer"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/store/sqlite/memory"
	"github.com/theclaw/agents/internal/thread"
)

// Begin claims an event (T1), records it (T2), and answers what its turn is made from.
func Begin(tx *db.Tx, f store.Fence, b store.Begin) (store.Begun, error) {
	t := machine.Thread{Token: f.Token, Now: time.Now()}
	if err := Load(tx, machine.BeginNeeds(b), &t); err != nil {
		return store.Begun{}, err
	}
	if more, again := machine.ReclaimNeeds(&t, b); again {
		if err := Load(tx, more, &t); err != nil {
			return store.Begun{}, err
		}
	}
	out, err := machine.Begin(&t, b)
	if err != nil {
		return out, err
	}
	if b.Subscribe && machine.Recorded(out.Outcome) {
		filter := thread.OutboundFilter
		if err := consumer.Keep(tx, thread.Outbound, b.Handler, &filter); err != nil {
			return out, err
		}
	}
	if err := Save(tx, &t); err != nil || out.Outcome != store.BeginGo {
		return out, err
	}
	if out.Inbound, _, err = tx.Event(t.Used(machine.InboundKey(b.Key))); err != nil {
		return out, err
	}
	if out.Memory, err = memory.Marks(tx, b.Layers); err != nil {
		return out, err
	}
	after := int64(0)
	if out.Session != nil {
		after = out.Session.EpochFrom
	}
	if b.Turns > 0 {
		first := int64(0)
		if _, err = tx.Row("SELECT id FROM events WHERE "+thread.AskedFilter+" AND id > ? AND id < ? ORDER BY id DESC LIMIT 1 OFFSET ?",
			[]any{after, out.Inbound.ID, b.Turns - 1}, &first); err != nil {
			return out, err
		}
		after = max(after, first-1)
	}
	out.Tail, err = Tail(tx, after, out.Inbound.ID, b.Tail)
	return out, err
}
