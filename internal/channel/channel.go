package channel

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// Guarantee says what a receiver does with a delivery key it has seen before;
// it decides how a delivery interrupted in window B goes on.
type Guarantee int

const (
	// None: the receiver knows no key. An interrupted send is repeated and
	// flagged maybe_duplicate.
	None Guarantee = iota
	// Query: the channel looks for the key at its platform before it repeats a message
	// that may have arrived (MaybeDuplicate).
	Query
	// Keyed: the receiver drops a key it has seen. An interrupted send is
	// repeated with the same key.
	Keyed
)

// String returns none, query or keyed.
func (g Guarantee) String() string {
	switch g {
	case Keyed:
		return "keyed"
	case Query:
		return "query"
	default:
		return "none"
	}
}

// Fence is the fencing token of the lease under which a message is sent.
type Fence struct {
	Resource string // deliver/<agent>
	Token    int64  // 0: no lease travels with the message
}

// Message is one outbound event on its way. It is read-only to channels.
type Message struct {
	AgentID        string // the sender
	ThreadID       string // relative thread id, threads/...
	EventID        int64
	Key            string // stable delivery key, sha256 in lower-case hex; of a part with :part: and which
	Attempt        int    // 1 for the first send of this event
	MaybeDuplicate bool   // an earlier send may have arrived
	Text           string
	Part           int             // of a message in parts, from 1; 0: it is complete
	More           bool            // parts follow
	Buttons        []Button        // below the text; a channel without buttons leaves them out
	Document       *Document       // goes with the text; nil: none, as for each channel that is no [Documenter]
	Content        json.RawMessage // the complete content of the event
	ReplyContext   ReplyContext
	CreatedAt      string // as the event has it, ISO-8601 UTC
	Fence          Fence
}

// Receipt is what a successful send leaves behind.
type Receipt struct {
	ProviderID string // the receiver's own id; empty when it gave none
}

// Channel sends messages to one kind of receiver. Send honors ctx, is safe for concurrent use and
// returns nil or an *[Error].
type Channel interface {
	Name() string
	Guarantee() Guarantee
	Send(ctx context.Context, m Message) (Receipt, error)
}

// Destination names what is down when a send of m over c is Unavailable, while the same
// channel may reach others: one URL, one chat, one agent's inbox. Channels that reach one
// place only need no method; for those it is empty. It is made for comparison and for
// people: a readable part such as a host, and where that is not exact or is secret, a
// blank and a [Fingerprint].
func Destination(c Channel, m Message) string {
	if d, ok := c.(interface{ Destination(Message) string }); ok {
		return d.Destination(m)
	}
	return ""
}

// Fingerprint is a short name of what must not be shown, or is too long for it.
func Fingerprint(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// Console is the channel of a client that watches the thread: the committed
// event is the delivery, there is nothing to send.
type Console struct{}

// Name returns console.
func (Console) Name() string { return NameConsole }

// Guarantee returns [Keyed]: nothing leaves, so nothing can arrive twice.
func (Console) Guarantee() Guarantee { return Keyed }

// Send succeeds at once.
func (Console) Send(context.Context, Message) (Receipt, error) { return Receipt{}, nil }
