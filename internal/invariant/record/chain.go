// Package record verifies what a thread recorded: the chain of a database ([Broken]) and
// the lines of its events.jsonl ([Compare]).
//
// It reads and judges one thread at a time. It does not make findings: package invariant
// does.
package record

import (
	"bytes"
	"fmt"

	"github.com/theclaw/agents/internal/invariant/snapshot"
)

// Flaw is one thing that is not as it was written; Event is 0 when it is not about
// a single one.
type Flaw struct {
	Event int64
	What  string
}

// Broken answers what is wrong with a database as a file and as a chain; nothing
// when it is as it was written.
func Broken(d *snapshot.DB) []Flaw {
	var out []Flaw
	note := func(event int64, format string, args ...any) {
		out = append(out, Flaw{event, fmt.Sprintf(format, args...)})
	}
	if d.Absent {
		note(0, "the database is missing")
		return out
	}
	if n := len(d.Damage); n > 0 {
		line := "the database is damaged: " + d.Damage[0]
		if n > 1 {
			line += fmt.Sprintf(" (and %d more)", n-1)
		}
		note(0, "%s", line)
	}
	if d.Unread["events"] || d.Unread["x_chain"] {
		return out
	}
	prev, chained := []byte{}, map[int64]bool{}
	for _, l := range d.Links {
		chained[l.ID] = true
		e, ok := d.Event(l.ID)
		switch {
		case !ok:
			note(l.ID, "event %d is in the chain and gone", l.ID)
		case e.NotText != "":
			note(l.ID, "column %s of event %d holds no text", e.NotText, l.ID)
		case !bytes.Equal(l.Sum, e.Linked[:]):
			note(l.ID, "event %d does not match its hash", l.ID)
		case !bytes.Equal(l.Prev, prev):
			note(l.ID, "the chain is broken before event %d", l.ID)
		}
		prev = l.Sum
	}
	last := int64(0)
	if n := len(d.Links); n > 0 {
		last = d.Links[n-1].ID
	}
	if d.End != nil && (!bytes.Equal(prev, d.End) || last > d.Sequence) {
		note(last, "the chain ends with event %d, and the thread with another one", last)
	}
	// What another program put behind the last link is chained with our next
	// commit; what we committed ourselves was chained with it.
	ours := map[int64]bool{}
	for _, v := range d.Dedupe {
		ours[v.EventID] = true
	}
	for _, e := range d.Events {
		if e.ID < last && !chained[e.ID] {
			note(e.ID, "event %d was put between chained ones", e.ID)
		}
		if e.ID > last && ours[e.ID] {
			note(e.ID, "event %d is ours and not in the chain", e.ID)
		}
		if e.ID > last && last > 0 && e.NotText != "" {
			note(e.ID, "column %s of event %d holds no text", e.NotText, e.ID)
		}
	}
	return out
}
