package channel

import (
	"context"
	"io"
	"time"
)

// Update is one message that a platform, or a program, hands to an account. Its texts are as
// they came: the gateway and the registry make them valid and bounded.
type Update struct {
	// Key is the same for each delivery of the message, and no other message has it:
	// <type>:<bot id>:<session>:<message id>[:e<edit>].
	Key string
	// Kind of the conversation: dm, group or channel.
	Kind string
	// SessionID is the conversation, PeerID and PeerName who wrote.
	SessionID, PeerID, PeerName string
	// Thread within the conversation; empty: none. Parent is the conversation that SessionID is
	// a thread of; Guild and Team are what the platform groups conversations by.
	Thread, Parent, Guild, Team string
	MessageID                   string
	Text                        string
	// Mentioned means that it addresses the account, Bot that a program wrote it.
	Mentioned, Bot bool
	// Forwarded means that the person passes on what another one wrote, so the text says nothing
	// in the name of the person.
	Forwarded bool
	// ReplyTo is the message that this one answers; nil: none.
	ReplyTo *ReplyTo
	// EditOf is the key of the message that this one is a later version of; empty: none.
	EditOf string
	// Album is the same for the messages that people sent as one; empty: it is alone.
	Album       string
	Attachments []Attachment
	// Extra are data of the platform by their names, for programs that read the event; nil: none.
	Extra  map[string]string
	SentAt time.Time // zero: unknown
}

// ReplyTo is the message that another one answers. Mine means that the account wrote it.
type ReplyTo struct {
	ID, Text string
	Mine     bool
}

// Attachment is a file of an update.
type Attachment struct {
	// Type is image, audio, voice, video or file; empty: it follows from MIME.
	Type, MIME, Name string
	Size             int64 // 0: unknown
	// Data is the content, where it came with the update.
	Data []byte
	// Open fetches the content, which is at most limit bytes ([ErrTooLarge]); nil: it cannot be
	// fetched. An [*Error] of class [Rejected] says that no repeat can help.
	Open func(ctx context.Context, limit int64) (io.ReadCloser, error)
}
