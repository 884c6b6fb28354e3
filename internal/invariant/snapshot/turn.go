package snapshot

import (
	"maps"
	"slices"
	"strings"
)

// Lost answers the turns of a thread whose event the inbox has never had. Ids that
// a restore left out are below its next one.
func (a *Agent) Lost(d *DB) (out []Turn) {
	known := max(a.Inbox.Head(), a.Inbox.Sequence)
	for _, t := range d.Turns {
		if uuid, _, _ := strings.Cut(t.Key, ":"); uuid == a.Inbox.UUID && t.InboxID > known {
			out = append(out, t)
		}
	}
	return out
}

// Unasked answers the keys of turns that are not there, and whose reply is.
func (d *DB) Unasked() (out []string) {
	turns := make(map[string]bool, len(d.Turns))
	for _, t := range d.Turns {
		turns[t.Key] = true
	}
	for _, key := range slices.Sorted(maps.Keys(d.Dedupe)) {
		if of, reply := strings.CutSuffix(key, ":out"); reply && !turns[of] {
			out = append(out, of)
		}
	}
	return out
}
