// Package record owns whether what a thread recorded is what was written: the
// chain of a database ([Broken]) and the lines of its events.jsonl ([Lines]).
//
// It reads and judges one thread at a time. What a finding is, and what to do
// about one, is said elsewhere.
package record

import (
	"bytes"
	"fmt"

	"github.com/theclaw/agents/internal/invariant/snapshot"
)

// Broken answers what is wrong with a database as a file and as a chain; nothing
// when it is as it was written.
func Broken(d *snapshot.DB) []string {
	var out []string
	if n := len(d.Damage); n > 0 {
		line := "the database is damaged: " + d.Damage[0]
		if n > 1 {
			line += fmt.Sprintf(" (and %d more)", n-1)
		}
		out = append(out, line)
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
			out = append(out, fmt.Sprintf("event %d is in the chain and gone", l.ID))
		case e.NotText != "":
			out = append(out, fmt.Sprintf("column %s of event %d holds no text", e.NotText, l.ID))
		case !bytes.Equal(l.Sum, e.Linked[:]):
			out = append(out, fmt.Sprintf("event %d does not match its hash", l.ID))
		case !bytes.Equal(l.Prev, prev):
			out = append(out, fmt.Sprintf("the chain is broken before event %d", l.ID))
		}
		prev = l.Sum
	}
	if len(d.Links) == 0 {
		return out
	}
	last := d.Links[len(d.Links)-1].ID
	for _, e := range d.Events {
		if e.ID < last && !chained[e.ID] {
			out = append(out, fmt.Sprintf("event %d was put between chained ones", e.ID))
		}
		if e.ID > last && e.NotText != "" {
			out = append(out, fmt.Sprintf("column %s of event %d holds no text", e.NotText, e.ID))
		}
	}
	return out
}
