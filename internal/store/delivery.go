package store

import (
	"context"
	"time"

	"github.com/theclaw/agents/internal/thread"
)

// Deliveries is the journal of outbound events.
//
//	         NextDelivery           FinishDelivery
//	pending --------------> sending --------------> sent | dead | skipped
//	   ^                       |
//	   +-----------------------+  failed: wait until not_before
type Deliveries interface {
	// NextDelivery answers the first undelivered event and, unless it is only
	// looked at, counts the attempt (D1).
	NextDelivery(ctx context.Context, r Ref, f Fence, n NextDelivery) (DueDelivery, error)
	FinishDelivery(ctx context.Context, r Ref, f Fence, fin FinishDelivery) (Delivery, error)
	ListDeliveries(ctx context.Context, r Ref, state string, after int64, limit int) ([]Delivery, error)
	// ResolveDelivery makes a dead delivery pending again ("retried") or takes
	// it off the dead letters ("dropped").
	ResolveDelivery(ctx context.Context, r Ref, eventID int64, how string) (Delivery, error)
}

// States of a delivery as stored.
const (
	DeliveryPending = "pending"
	DeliverySending = "sending"
	DeliverySent    = "sent"
	DeliveryDead    = "dead"
	DeliverySkipped = "skipped"
)

// DeliveryWaits are the waits before the second and the third try.
var DeliveryWaits = []time.Duration{5 * time.Second, 60 * time.Second}

// NextDelivery asks for the next event to send.
type NextDelivery struct {
	BootID      string        // name of the Generation; a row of another one is flagged
	Since       time.Time     // when that began: an older message without a row may have been sent
	Elapsed     time.Duration // since then, by the monotonic clock: no message of it is older; 0: not known
	Peek        bool
	MaxAge      time.Duration // what was tried, or may have been, and is older is dead; 0: no bound
	MaxAttempts int           // a waiting row past it (the limit was lowered) is dead; 0: no bound
	WithRun     bool          // of no Peek: answer DueDelivery.Run too, which is looked for in the turns of the thread
}

// DueDelivery is the next event to send.
type DueDelivery struct {
	Outcome        DueOutcome
	Wait           time.Duration
	Event          thread.Event
	Key            string
	Attempt        int
	MaybeDuplicate bool
	Tried          bool   // it was begun before
	Run            string // key of the turn whose reply it is; empty unless asked for, or when it is of none
	Parts          int    // parts of the message that were sent before
	Reach          int64  // bytes of its text that they hold
	Acked, Dead    int64  // outbound progress and dead rows after the call
}

// DueOutcome reports what NextDelivery found.
type DueOutcome int

// Outcomes of NextDelivery.
const (
	DueSend DueOutcome = iota + 1
	DueIdle
	DueWait
)

// Outcomes of a send.
const (
	OutcomeSent        = "sent"
	OutcomeFailed      = "failed"
	OutcomeUnavailable = "unavailable"
	OutcomeRejected    = "rejected"
	OutcomeSkipped     = "skipped"
	// OutcomePart is for a message that is sent in parts: one of them was sent, and
	// more follow under the same attempt. What was sent is not sent again.
	OutcomePart = "part"
)

// FinishDelivery records a send.
type FinishDelivery struct {
	EventID     int64
	Outcome     string
	Channel     string
	ProviderID  string
	Error       string
	RetryAfter  time.Duration
	MaxAttempts int
	InDoubt     bool  // it did not succeed, and may have left all the same
	Parts       int   // sent so far, for OutcomePart
	Reach       int64 // bytes of the text in them
	// Waits before the second and each later try, the last one for all that
	// follow; nil means DeliveryWaits.
	Waits []time.Duration
}

// Delivery is a row of the journal.
type Delivery struct {
	Thread         string
	EventID        int64
	Key, State     string
	Attempts       int
	Channel        string
	ProviderID     string
	Error          string
	MaybeDuplicate bool
	Parts          int   // sent, of a message in parts
	Reach          int64 // bytes of its text in them
	NextAt         time.Time
	CreatedAt      time.Time
	UpdatedAt      time.Time
	Resolved       string
	Acked, Dead    int64 // outbound progress and dead rows of the thread
}
