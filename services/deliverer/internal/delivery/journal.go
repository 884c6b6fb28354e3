package delivery

import (
	"context"
	"errors"
	"time"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/hook"
	"github.com/theclaw/agents/internal/obs/tracing"
	"github.com/theclaw/agents/internal/thread"
)

// Journal is where deliveries are on record. Calls run under the context of
// the lease. An error for which errors.Is(err, lease.ErrLost) holds ends the
// whole drain; one that wraps ErrRefused ends the lane; every other is asked
// again. Both methods may be repeated.
type Journal interface {
	// Begin returns the next undelivered event of a thread and counts its
	// attempt (D1). A peek counts nothing.
	Begin(ctx context.Context, agentID, threadID string, peek bool) (Due, error)
	// Finish records a send (D3, D4) and begins the next one if f.Next is set.
	Finish(ctx context.Context, agentID, threadID string, f Finish) (Finished, error)
	// Decide records what hooks decided about a message that was begun, and returns the
	// decision that stands, which an earlier call may have recorded.
	Decide(ctx context.Context, agentID, threadID string, due Due, d hook.Decision) (hook.Decision, error)
}

// ErrRefused reports that the journal will not take this call, however often it
// is made: the thread is gone, or its database is set aside.
var ErrRefused = errors.New("refused by the journal")

// Found is what Begin found.
type Found int

// What Begin can find.
const (
	Idle Found = iota // everything is delivered or dead
	Send              // the event is to be sent now
	Wait              // the next try has its time
)

// Due is the next delivery of a thread.
type Due struct {
	Found          Found
	Wait           time.Duration // for Wait
	Event          thread.Event  // this and below for Send
	Key            string        // stable over all tries
	RunID          string        // of the message it answers; empty unless traces are on
	Attempt        int           // from 1
	MaybeDuplicate bool          // an earlier send may have left
	Settings       channel.Settings
	MaxChars       int   // of one message to the outside; 0: that of its platform
	Parts          int   // parts that were sent before
	Reach          int64 // bytes of the text in them; more than it has: nothing is left to send
	// MessageID is the id at the platform of the message that the event changes, where it names an earlier event.
	MessageID string
	// Hooks of the agent for messages, SessionKey for them, and what they have decided about this one.
	Hooks      []hook.Hook
	SessionKey string
	Decision   *hook.Decision

	asked *hook.Decision // what the hooks said, before that is recorded
	left  *left          // what was sent by this lane, when nothing is left to send
}

// left is a message that has left completely, before that is recorded.
type left struct {
	receipt channel.Receipt
	took    time.Duration
	span    tracing.Span
}

// Outcome is what became of a send; the word is the one used in logs.
type Outcome string

// Outcomes of a send.
const (
	Sent        Outcome = "sent"
	Failed      Outcome = "failed"      // spends the attempt
	Unavailable Outcome = "unavailable" // spends none
	Rejected    Outcome = "rejected"    // dead at once
	Skipped     Outcome = "skipped"     // no channel is configured for it
	Part        Outcome = "part"        // more of it follows
)

// Finish records one send.
type Finish struct {
	EventID    int64
	Outcome    Outcome
	Channel    string
	ProviderID string
	Error      string        // one line, redacted
	InDoubt    bool          // it did not succeed, and may have left all the same
	Parts      int           // sent so far, for Part
	Reach      int64         // bytes of the text in them
	RetryAfter time.Duration // the least wait until the next try
	Next       bool          // begin the next delivery of the thread too
	Log        string        // one line for the agent's log
	Level      string        // of Log: INFO, WARN or ERROR
}

// Finished is the state after Finish.
type Finished struct {
	Dead bool // the event is a dead letter now
	Next *Due // when asked for
}
