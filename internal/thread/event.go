// Package thread defines the parts of an event log: the event, its hashes, its line in
// events.jsonl, and the names that every writer uses.
//
// A thread is a directory with an append-only table of events. Ids rise from 1
// and order everything; created_at is for people. An event is never changed, so
// its hash identifies it: Hash feeds the chain that makes tampering visible, and
// Key is the name under which an inbox event is accounted for.
//
// The package does no I/O; package store stores threads.
package thread

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
)

// Types and subtypes of events.
const (
	TypeMessage = "message"
	TypeRecord  = "record"

	SubtypeToolcall = "toolcall"
	SubtypeDecision = "decision"
	SubtypeError    = "error"
	SubtypeHook     = "hook"    // what hooks decided about a message of the agent, before it is sent
	SubtypeSession  = "session" // an epoch of the conversation begins
	// SubtypeCommand is of a record that a chat command was written, and of the message that answers it.
	SubtypeCommand = "command"
	// SubtypeContext marks what a person wrote in the conversation that starts no turn: a message of a group that is
	// not addressed to the agent, or the later version of a message.
	SubtypeContext = "context"
	// SubtypeAction is of a message of the agent that changes an earlier one, or goes to another conversation.
	SubtypeAction = "action"
	// SubtypeTranscript is of what was said in a file of a message; see [Transcript].
	SubtypeTranscript = "transcript"
)

// ShownFilter selects the messages of a conversation that a model sees: all but the answers to commands and the
// messages with which the agent changes earlier ones or writes elsewhere.
const ShownFilter = "type = '" + TypeMessage + "' AND (subtype IS NULL OR subtype NOT IN ('" + SubtypeCommand + "', '" + SubtypeAction + "') OR source <> '" + SourceSelf + "')"

// AskedFilter selects those of them that people or programs wrote.
const AskedFilter = "type = '" + TypeMessage + "' AND source <> '" + SourceSelf + "'"

// Shown reports whether an event is of [ShownFilter].
func (e Event) Shown() bool {
	return e.Type == TypeMessage && (e.Source != SourceSelf || e.Subtype == nil || *e.Subtype != SubtypeCommand && *e.Subtype != SubtypeAction)
}

// EpochFilter selects the records with which epochs of a conversation begin.
const EpochFilter = "type = '" + TypeRecord + "' AND subtype = '" + SubtypeSession + "' AND source = '" + SourceSelf + "'"

// ContextFilter selects what people wrote that starts no turn.
const ContextFilter = "type = '" + TypeRecord + "' AND subtype = '" + SubtypeContext + "'"

// TranscriptFilter selects what was said in files of messages.
const TranscriptFilter = "type = '" + TypeRecord + "' AND subtype = '" + SubtypeTranscript + "' AND source = '" + SourceSelf + "'"

// Names shared with the external tools.
const (
	// SourceSelf marks the agent's own events.
	SourceSelf = "self"
	// Inbox is both the thread id of an agent's inbox and its consumer there.
	Inbox = "inbox"
	// Outbound is the consumer that delivers a conversation's replies.
	Outbound = "outbound"
	// OutboundFilter selects what the outbound consumer delivers.
	OutboundFilter = "type = 'message' AND source = 'self'"
)

// Limits of one event and of one answer, in bytes.
const (
	MaxEvent  = 1 << 20
	MaxAnswer = 3 << 20
	MaxPush   = 1000 // events
)

// Event is one row of a thread.
type Event struct {
	ID        int64
	CreatedAt string // ISO-8601, milliseconds, Z
	Source    string
	Type      string
	Subtype   *string // nil is NULL
	Content   string
}

// Size is the number of bytes the event counts against MaxAnswer.
func (e Event) Size() int {
	n := len(e.CreatedAt) + len(e.Source) + len(e.Type) + len(e.Content) + 16
	if e.Subtype != nil {
		n += len(*e.Subtype)
	}
	return n
}

// Hash is the sha256 over prev and every column, each with its length in front
// so that no two rows share an encoding. prev is empty for Key and the previous
// event's chain hash for the chain.
func (e Event) Hash(prev []byte) [32]byte {
	h := sha256.New()
	var n [9]byte
	put := func(tag byte, b string) {
		n[0] = tag
		binary.BigEndian.PutUint64(n[1:], uint64(len(b)))
		h.Write(n[:])
		h.Write([]byte(b))
	}
	put('p', string(prev))
	put('i', strconv.FormatInt(e.ID, 10))
	put('c', e.CreatedAt)
	put('s', e.Source)
	put('t', e.Type)
	if e.Subtype == nil {
		put('n', "")
	} else {
		put('u', *e.Subtype)
	}
	put('x', e.Content)
	return [32]byte(h.Sum(nil))
}

// Key names inbox event e permanently: the inbox's uuid, the id, and the first 16
// hex digits of the event's hash. The hash is in it because an id can be handed
// out again after a power loss or a restore, and a new message must not be taken
// for a finished one.
func (e Event) Key(inboxUUID string) string {
	sum := e.Hash(nil)
	return inboxUUID + ":" + strconv.FormatInt(e.ID, 10) + ":" + hex.EncodeToString(sum[:8])
}

// KeyID is the inbox id inside a key; false when key is not one.
func KeyID(key string) (int64, bool) {
	p := strings.Split(key, ":")
	if len(p) != 3 {
		return 0, false
	}
	id, err := strconv.ParseInt(p[1], 10, 64)
	return id, err == nil && id > 0
}

// DeliveryKey names the delivery of an event: sha256 over the thread's uuid, the
// event's id and its hash, in hex.
func (e Event) DeliveryKey(threadUUID string) string {
	sum := e.Hash(nil)
	h := sha256.New()
	h.Write([]byte(threadUUID))
	h.Write([]byte{0})
	h.Write([]byte(strconv.FormatInt(e.ID, 10)))
	h.Write([]byte{0})
	h.Write(sum[:])
	return hex.EncodeToString(h.Sum(nil))
}

// TimeFormat is the form of created_at.
const TimeFormat = "2006-01-02T15:04:05.000Z"

// Stamp is t as created_at.
func Stamp(t time.Time) string { return t.UTC().Format(TimeFormat) }

// ParseStamp reads a created_at; the zero time when it is not one.
func ParseStamp(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}
	}
	return t
}
