package unit

import (
	"bytes"
	"context"
	"fmt"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// VerifyStep checks the chain of a thread from its first event to its head. It reads
// one event at a time, however long the thread is.
type VerifyStep struct {
	Out  int64 // events that match
	prev []byte
	last int64
}

// Load reads and checks the events in order.
func (s *VerifyStep) Load(tx *Tx) {
	tx.Read("SELECT "+Columns+", prev, sha256, COALESCE(erased_key, ''), erased_proof FROM event WHERE agent_id = $1 AND thread_id = $2 ORDER BY id", nil, func(scan func(...any) error) error {
		var e thread.Event
		var prev, sum, proof []byte
		var key string
		if err := scan(&e.ID, &e.CreatedAt, &e.Source, &e.Type, &e.Subtype, &e.Content, &prev, &sum, &key, &proof); err != nil {
			return err
		}
		if !bytes.Equal(prev, s.prev) || !linked(e, prev, sum, key, proof) {
			return fmt.Errorf("event %d does not match its hash: %w", e.ID, store.ErrCorrupt)
		}
		s.prev, s.last = sum, e.ID
		s.Out++
		return nil
	})
}

// Decide compares the end with what the thread's row says of it. Its head may be above
// the last event: ids that another life of the thread has given are not given again.
func (s *VerifyStep) Decide(_ context.Context, tx *Tx) error {
	if s.last > tx.Head || !bytes.Equal(s.prev, tx.chain) {
		return fmt.Errorf("the thread ends with event %d, and its head is %d: %w", s.last, tx.Head, store.ErrCorrupt)
	}
	return nil
}

// linked reports whether e is what its link says: the event itself, or what was left of
// one that was erased.
func linked(e thread.Event, prev, sum []byte, key string, proof []byte) bool {
	if proof != nil {
		return bytes.Equal(proof, thread.TombstoneProof(e, sum, key))
	}
	got := e.Hash(prev)
	return bytes.Equal(got[:], sum)
}
