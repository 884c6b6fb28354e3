package journal

import (
	"context"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/outbox"
	"github.com/theclaw/agents/internal/store/postgres/unit"
	"github.com/theclaw/agents/internal/thread"
)

// FinishStep gives the turn its fate (T7 or T9) in one transaction with the reply,
// its delivery and the chain; a fate that stands is answered.
type FinishStep struct {
	fin  store.Finish
	book book
	Out  store.Finished
}

// Finish makes the step.
func Finish(fin store.Finish) *FinishStep { return &FinishStep{fin: fin, book: open(fin.Key)} }

// Load queues the reads.
func (s *FinishStep) Load(tx *unit.Tx) {
	key := s.fin.Key
	s.book.loadLed(tx)
	s.book.loadStates(tx, s.fin.Steps, true)
	used := toolcallKeys(key, s.fin.Toolcalls)
	switch s.fin.Fate { // what it may say
	case store.FateReplied:
		used = append(used, key+":out")
	case store.FateDead:
		used = append(used, key+":err", key+":apology")
	default:
		used = append(used, key+":decided")
	}
	s.book.loadUsed(tx, used...)
	s.book.front.Load(tx, !s.fin.Deliver || s.fin.Console)
}

// Decide queues the writes; store.ErrNoTurn.
func (s *FinishStep) Decide(_ context.Context, tx *unit.Tx) (err error) {
	t := s.book.turn()
	switch {
	case !t.found:
		return store.ErrNoTurn
	case t.state == store.TurnDone:
		s.Out, err = s.book.finished()
	default:
		s.Out, err = s.book.finish(tx, s.fin)
	}
	return err
}

// finished is the fate that stands.
func (b *book) finished() (store.Finished, error) {
	t := b.turn()
	members, err := b.led()
	return store.Finished{
		Fate: t.fate, ReplyID: t.replyID, InboundID: t.inboundID, ErrorEventID: t.errorID, Already: true,
		OutboxHead: b.front.Head(), Merged: members,
	}, err
}

func (b *book) finish(tx *unit.Tx, fin store.Finish) (store.Finished, error) {
	out := store.Finished{Fate: fin.Fate, InboundID: b.turn().inboundID}
	b.put(tx, fin.Steps, fin.Toolcalls)
	way := outbox.Way{Deliver: fin.Deliver, Console: fin.Console, BootID: fin.BootID}
	switch fin.Fate {
	case store.FateReplied:
		way.Run = fin.Key
		out.ReplyID = b.say(tx, fin.Key+":out", fin.Reply, way)
	case store.FateDead:
		out.ErrorEventID = b.record(tx, fin.Key+":err", thread.SubtypeError, fin.Record)
		if fin.Apology != "" {
			b.say(tx, fin.Key+":apology", fin.Apology, way)
		}
	default: // the other fates say nothing to anybody
		if fin.Decision != "" {
			b.record(tx, fin.Key+":decided", thread.SubtypeDecision, fin.Decision)
		}
	}
	tx.Exec(`UPDATE turn SET state = 'done', fate = $4, error = CASE WHEN $5 = '' THEN error ELSE $5 END, reply_id = $6, error_id = $7, not_before = 0, finished_at = $8
		WHERE `+ofThread+" AND key = $3", fin.Key, string(fin.Fate), fin.Error, out.ReplyID, out.ErrorEventID, tx.Time.UnixMilli())
	var err error
	out.Merged, err = b.end(tx, fin.Fate)
	out.OutboxHead = b.front.Head()
	return out, err
}

// ResetStep forgets the claims of turns that were given back cleanly.
type ResetStep struct{ keys []string }

// ResetCrashes makes the step.
func ResetCrashes(keys []string) *ResetStep { return &ResetStep{keys} }

// Load reads nothing.
func (s *ResetStep) Load(*unit.Tx) {}

// Decide queues the write.
func (s *ResetStep) Decide(_ context.Context, tx *unit.Tx) error {
	tx.Exec("UPDATE turn SET crash_attempts = 0 WHERE "+ofThread+" AND key = ANY($3) AND state <> 'done'", s.keys)
	return nil
}
