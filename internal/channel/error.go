package channel

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode"
)

// Class is how a send that did not succeed ended.
type Class int

const (
	// Failed: the channel is there and this message did not get through. Counts
	// an attempt.
	Failed Class = iota
	// Unavailable: the channel itself is down or busy. Counts no attempt and
	// opens its breaker, so an outage of hours kills no message.
	Unavailable
	// Rejected: no repeat can help. Dead at once.
	Rejected
	// Interrupted: our own side stopped the send (drain, lost lease). Counts no
	// attempt and says nothing about the channel.
	Interrupted
)

// String returns the word used in logs and metrics.
func (c Class) String() string {
	switch c {
	case Unavailable:
		return "unavailable"
	case Rejected:
		return "rejected"
	case Interrupted:
		return "interrupted"
	default:
		return "failed"
	}
}

// Reasons that a Rejected error can carry in addition to its text.
const (
	ReasonHopLimit       = "HOP_LIMIT"
	ReasonReplyContext   = "REPLY_CONTEXT_INVALID"
	ReasonAddressRefused = "ADDRESS_REFUSED"
)

// Error is a send that did not succeed.
type Error struct {
	Class      Class
	Reason     string        // one of the Reason constants, or empty
	RetryAfter time.Duration // the receiver's own wish; 0: it has none
	InDoubt    bool          // the message may have left all the same
	BeforeSend bool          // decided here, before the channel was tried
	What       string        // one line, safe to show and to record
	Fix        string        // one line, or empty
	Err        error         // the cause; for logs only
}

// Error returns What alone: the cause may quote a stranger.
func (e *Error) Error() string { return e.What }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Reject returns an error of class Rejected decided before anything was sent.
func Reject(reason, what, fix string) *Error {
	return &Error{Class: Rejected, Reason: reason, BeforeSend: true, What: what, Fix: fix}
}

// AsError finds the *Error in err. A bare context.Canceled is our own doing
// (Interrupted); any other stranger counts an attempt, because an unclassified
// cause must not be retried for a day. It returns nil for nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if errors.Is(err, context.Canceled) {
		return &Error{Class: Interrupted, InDoubt: true, What: "the send was stopped", Err: err}
	}
	return &Error{Class: Failed, InDoubt: true, What: "the send failed", Err: err}
}

// Clean makes foreign text fit for one line of a log or a record: runs of
// spaces, control and other unprintable characters become one space, and the
// result is cut after limit characters.
func Clean(s string, limit int) string {
	var b strings.Builder
	n, gap := 0, false
	for _, r := range s {
		if unicode.IsSpace(r) || !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			gap = n > 0
			continue
		}
		if gap {
			b.WriteByte(' ')
			n, gap = n+1, false
		}
		if n >= limit {
			b.WriteString("...")
			break
		}
		b.WriteRune(r)
		n++
	}
	return b.String()
}
