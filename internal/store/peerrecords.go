package store

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// PeerRecords selects what is kept of a peer outside of the threads of an agent: questions
// that people were asked, lines of the agent's log, files, what was decided about who writes to an account. Every engine selects the same,
// and a conversation whose name begins like the peer's is not selected.
type PeerRecords struct {
	Files   []string // of the agent's, where they are rows
	Threads []string // conversations that are the peer's alone
	Turns   []string // keys of the peer's turns
	Inbox   []int64  // ids of the peer's inbox events, rising
	// Account and Peer name the pairing of the peer. One that is blocked stays, without a name, so that
	// an erasure does not let the person write again.
	Account, Peer string
}

// Asked reports whether a question was asked for the peer: in a conversation that is the
// peer's alone, or by one of its turns. What a turn asks has a key that begins with the
// turn's.
func (s PeerRecords) Asked(thread, key string) bool {
	return slices.Contains(s.Threads, thread) || slices.ContainsFunc(s.Turns, func(turn string) bool { return strings.HasPrefix(key, turn+":") })
}

var inboxEvent = regexp.MustCompile(`\binbox event (\d+)\b`)

// Logged reports whether a line of the log names one of the peer's messages or a
// conversation that is the peer's alone.
func (s PeerRecords) Logged(line string) bool {
	for _, m := range inboxEvent.FindAllStringSubmatch(line, -1) {
		id, err := strconv.ParseInt(m[1], 10, 64)
		if _, mine := slices.BinarySearch(s.Inbox, id); err == nil && mine {
			return true
		}
	}
	return slices.ContainsFunc(s.Threads, func(id string) bool { return namesThread(line, id) })
}

// namesThread reports whether the line contains id, and not only a name that begins with it.
func namesThread(line, id string) bool {
	for {
		_, rest, found := strings.Cut(line, id)
		if !found {
			return false
		}
		next := strings.TrimLeft(rest, ".:") // the end of a sentence
		if next == "" || next != rest && strings.IndexByte(" \t\n", next[0]) >= 0 || next == rest && strings.IndexByte(` ,;)]"'`+"\t\n", next[0]) >= 0 {
			return true
		}
		line = rest
	}
}
