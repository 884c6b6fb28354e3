package channel

import (
	"context"
	"time"
)

// Receiver takes in what people write to one account.
type Receiver interface {
	// Receive passes updates to in until ctx ends, which is no error, or its transport fails. It
	// keeps nothing of its own going when it returns. An error with the Reason [ReasonAuth] is not
	// tried again before the settings change, one with [ReasonConflict] not at once.
	Receive(ctx context.Context, in Intake) error
}

// Intake takes the updates of one account. It is safe for concurrent use.
type Intake interface {
	// Connected says that the account receives now, who it is at its platform, and by which name
	// people know it there. It comes before the other calls. An account that receives already as
	// the same identity is refused with [ReasonConflict].
	Connected(identity, name string) error
	// Ready returns nil while the account may ask its platform for updates. A receiver whose requests take updates
	// away from another one, or end its requests, asks before each.
	Ready() error
	// Cursor returns what Keep stored under a name, at any time before, for the same identity;
	// empty: nothing.
	Cursor(ctx context.Context, name string) (string, error)
	// Keep stores a value of at most 4 KiB, some seconds later; what is kept before it is stored
	// may be lost in a crash.
	Keep(name, value string)
	// Save stores a value of at most 4 KiB before it returns, for what no message repeats.
	Save(ctx context.Context, name, value string) error
	// Take passes an update on, and waits while too many are on their way. Updates of one
	// conversation are stored in the order of the calls. stored is called once the registry has
	// the update on disk or has refused it: only then may the platform count it as arrived.
	// It is not called when ctx ends first.
	Take(ctx context.Context, u Update, stored func()) error
	// Ignored counts an update that is acknowledged without Take because it says nothing to the account: a reaction,
	// a delete, the account's own message, a kind that this build does not know.
	Ignored()
}

// Reasons of errors of a Receiver and of a send over its account.
const (
	ReasonAuth     = "CHANNEL_AUTH"     // the platform refuses the token
	ReasonConflict = "CHANNEL_CONFLICT" // another reader uses the token
)

// Typer is a [Channel] that can show in a conversation that an answer is being written.
type Typer interface {
	// Typing shows it for a while. It is repeated after the time returned.
	Typing(ctx context.Context, to ReplyContext) (again time.Duration, err error)
}

// Editor is a [Channel] that can change messages that it sent before.
type Editor interface {
	// Edit gives the message with the id of a receipt another text.
	Edit(ctx context.Context, providerID string, m Message) error
	// Delete removes it.
	Delete(ctx context.Context, providerID string, to ReplyContext) error
}

// Reactor is a [Channel] that can mark messages of others.
type Reactor interface {
	// React marks the message with the id of the platform with a character; empty: it removes the mark.
	React(ctx context.Context, providerID, mark string, to ReplyContext) error
}

// What is done to an earlier message.
const (
	ActionEdit   = "edit"
	ActionReact  = "react"
	ActionDelete = "delete"
)

// Acts reports whether c has the means for an action. A plugin may refuse it all the same.
func Acts(c Channel, action string) bool {
	_, edits := c.(Editor)
	_, reacts := c.(Reactor)
	return edits && (action == ActionEdit || action == ActionDelete) || reacts && action == ActionReact
}

// Act executes an action on the message with an id of the platform: m has the new text of edit, the mark of
// react, and the conversation. It may be repeated. The error is as that of [Channel].
func Act(ctx context.Context, c Channel, action, providerID string, m Message) error {
	switch {
	case !Acts(c, action):
		return Reject("", Clean(c.Name(), 64)+" cannot "+Clean(action, 16)+" messages", "send a new message")
	case providerID == "":
		return Reject("", "the message to "+action+" has no id at its platform: it was not sent, or went out in parts", "name the id that the platform shows")
	case action == ActionEdit:
		return c.(Editor).Edit(ctx, providerID, m)
	case action == ActionDelete:
		return c.(Editor).Delete(ctx, providerID, m.ReplyContext)
	}
	return c.(Reactor).React(ctx, providerID, m.Text, m.ReplyContext)
}

// Finder is a [Channel] whose direct conversation with a person has another name than the person.
type Finder interface {
	// Find returns the session_id of the direct conversation with a person.
	Find(ctx context.Context, peerID string) (sessionID string, err error)
}

// Button is one below a message. Pressing it is an [Update] of the person who does, whose text is
// Command.
type Button struct{ Text, Command string }
