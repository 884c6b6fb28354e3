package store

import (
	"context"

	"github.com/theclaw/agents/internal/thread"
)

// Erased is the content of an event that was erased.
const Erased = "[erased]"

// PeerQuery says what of a thread belongs to a peer.
type PeerQuery struct {
	// Match reports whether an inbox event is the peer's; only for an inbox.
	Match func(e thread.Event) bool
	// Whole means every event and turn: the conversation is the peer's alone.
	Whole bool
	// Turns are keys of the peer's turns, as the inbox has them.
	Turns []string
}

// PeerShare is what of a thread belongs to a peer.
type PeerShare struct {
	Events  []int64  // ids, rising; their content is erased or stays as it is
	Turns   []string // keys of turns that worked on them
	Threads []string // of an inbox: where they were worked on
	Whole   bool     // of a conversation: it is the peer's alone
	Open    int64    // messages without an end, replies not delivered, dead letters
}

// Eraser forgets the messages from and to a peer.
//
// An erased event keeps its id, time, source and type, so that whoever counts, reads
// or acknowledges is not disturbed; its content is [Erased]. Its origin
// loses account, id and command, a session whose conversation is the peer's alone loses its
// title, and what the peer's turns have left in the background is forgotten. The chain still holds:
// the hash of what was there stays in the chain, and next to it is one over that
// hash and what is there now, so that a change of an erased event is found like any
// other.
type Eraser interface {
	// Share answers what of a thread is a peer's.
	Share(ctx context.Context, r Ref, q PeerQuery) (PeerShare, error)
	// Erase forgets it: contents, arguments, results and errors. In files of our own
	// its bytes are gone when it returns nil. It may be repeated, and finishes then
	// what a killed one left. That the agent is at rest is seen to by a registry that
	// is alone; an engine for several refuses with LEASE_HELD while it is not.
	Erase(ctx context.Context, r Ref, s PeerShare) error
}
