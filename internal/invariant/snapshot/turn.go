package snapshot

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/theclaw/agents/internal/store"
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

// InvalidMember is an inbox event whose leader cannot answer it.
type InvalidMember struct {
	InboxID int64
	Why     string
}

// InvalidMembers returns the members that no turn answers: the leader of a merged message
// is the turn of an earlier message of the same thread that is done and not dead. A
// member of a turn that is done is merged, and one that left a dead turn has no leader.
func (d *DB) InvalidMembers() (out []InvalidMember) {
	byKey := map[string]Turn{}
	for _, t := range d.Turns {
		byKey[t.Key] = t
	}
	for _, t := range d.Turns {
		merged := t.State == store.TurnDone && t.Fate == string(store.FateMerged)
		leader, known := byKey[t.Leader]
		over := leader.State == store.TurnDone
		switch {
		case !merged && t.Leader == "":
		case !known || leader.InboxID >= t.InboxID || leader.Leader != "":
			out = append(out, InvalidMember{t.InboxID, "joined the turn " + strconv.Quote(t.Leader) + ", which cannot lead it"})
		case merged != over, over && leader.Fate == string(store.FateDead):
			out = append(out, InvalidMember{t.InboxID, "is " + t.State + " " + t.Fate + ", and the turn it joined is " + leader.State + " " + leader.Fate})
		}
	}
	return out
}

// SentEvents are the events that the turns of a thread have said to their peers: replies,
// what was said on the way to one, and apologies.
func (d *DB) SentEvents() (out []int64) {
	for key, made := range d.Dedupe {
		for _, end := range []string{":out", ":say", ":apology"} {
			if strings.HasSuffix(key, end) && !strings.HasPrefix(key, "push:") {
				out = append(out, made.EventID)
			}
		}
	}
	slices.Sort(out)
	return out
}

// KeyOf is the key of the delivery that a message arrived under, PartOf which part of
// it that was; empty: all of it.
func KeyOf(arrived string) string { return cut(arrived)[0] }

// PartOf see KeyOf.
func PartOf(arrived string) string { return cut(arrived)[1] }

func cut(arrived string) [2]string {
	key, part, _ := strings.Cut(arrived, ":part:")
	return [2]string{key, part}
}

// OwnEpochs returns the epochs that turns of the conversation began. A record that another
// program put here begins none.
func (d *DB) OwnEpochs() (out []Epoch) {
	ours := map[int64]bool{}
	for key, made := range d.Dedupe {
		if strings.HasSuffix(key, ":session") && !strings.HasPrefix(key, "push:") {
			ours[made.EventID] = true
		}
	}
	for _, e := range d.Epochs {
		if ours[e.EventID] {
			out = append(out, e)
		}
	}
	return out
}

// Unlisted returns the sessions of conversations that the list of the inbox lacks, or of which it
// says something else. It is written after the conversation: one with a turn that the inbox
// does not know the end of is left out, and so is one that was not read to its end.
func (a *Agent) Unlisted() (out []Session) {
	listed := make(map[string]Session, len(a.Inbox.Listed))
	for _, s := range a.Inbox.Listed {
		listed[s.Thread] = s
	}
	for _, d := range a.Threads {
		if d.Session == nil || len(d.Unread) > 0 || a.unsettled(d) {
			continue
		}
		if entry, ok := listed[d.Thread]; !ok || !d.Session.Same(entry) {
			out = append(out, *d.Session)
		}
	}
	return out
}

// unsettled reports whether a turn of a conversation has not come to the inbox yet.
func (a *Agent) unsettled(d *DB) bool {
	return slices.ContainsFunc(d.Turns, func(t Turn) bool {
		_, there := a.Inbox.Event(t.InboxID)
		_, fated := slices.BinarySearchFunc(a.Inbox.Fates, t.InboxID, func(f Fate, id int64) int { return cmp.Compare(f.ID, id) })
		return t.State != store.TurnDone || there && !fated
	})
}
