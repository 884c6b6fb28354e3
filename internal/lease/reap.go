package lease

import (
	"context"
	"slices"
	"strings"
	"time"
)

// Reap drops the terms that have expired and those of dead holders, and returns
// each of them once, sorted by resource: their work is due again. It also
// returns a term that an Acquire displaced when that Acquire then failed. A
// term that was released or successfully succeeded is not returned.
//
// Call it at NextExpiry and also about once a second, since a death announces
// itself nowhere. The end of the term is saved in the ledger without regard to
// errors: what is lost with it is one ttl of waiting after a restart.
func (t *Table) Reap(ctx context.Context) []Record {
	// Find the dead first, with mu released: it opens files. A holder id is
	// never used twice and the dead stay dead, so the answer cannot age.
	gone := make(map[string]bool)
	t.mu.Lock()
	for _, e := range t.entries {
		if e.phase == held {
			gone[e.rec.Holder] = false
		}
	}
	t.mu.Unlock()
	for holder := range gone {
		gone[holder] = t.dead(holder)
	}

	type reaped struct {
		e   *entry
		rec Record
	}
	var out []reaped
	t.mu.Lock()
	now := time.Now()
	for _, e := range t.entries {
		if e.phase == held && (!e.live(now) || gone[e.rec.Holder]) {
			e.end()
		}
		// An entry whose turn is taken is just being granted; if that fails it
		// is still here the next time.
		if e.phase == ended && len(e.turn) == 0 {
			e.phase = free
			out = append(out, reaped{e, e.rec})
		}
	}
	t.mu.Unlock()

	slices.SortFunc(out, func(a, b reaped) int { return strings.Compare(a.rec.Resource, b.rec.Resource) })
	records := make([]Record, 0, len(out))
	for _, r := range out {
		_ = t.saveReleased(ctx, r.e, r.rec.Token)
		records = append(records, r.rec)
	}
	return records
}

// NextExpiry returns the instant at which the first live term runs out if
// nobody renews it, or false when there is none. It is not after now when a
// Reap is due.
func (t *Table) NextExpiry() (time.Time, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var first time.Time
	for _, e := range t.entries {
		switch {
		case e.phase == ended && len(e.turn) == 0: // as in Reap, or its caller would spin
			return time.Now(), true
		case e.phase == held && (first.IsZero() || e.deadline.Before(first)):
			first = e.deadline
		}
	}
	return first, !first.IsZero()
}
