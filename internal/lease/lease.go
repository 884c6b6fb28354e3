package lease

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	// DefaultTTL is how long a grant lasts without a renewal when the request
	// does not say. Tests and proofs use one second.
	DefaultTTL = 15 * time.Second

	// GrantKeep is how long a holder keeps a lease after its work ran out, so
	// that a quiet conversation does not cost one grant (and one fsync) for each
	// message. A holder that is asked to yield gives it back at once instead.
	GrantKeep = 10 * time.Second

	minMargin = 50 * time.Millisecond
)

// Margin is the part of a ttl at its end in which a holder no longer trusts its
// lease, although the table may: one fifth of the ttl, at least 50 ms. It pays
// for the work that was begun just before the trust ended, and for clocks that
// tick at slightly different speeds.
func Margin(ttl time.Duration) time.Duration { return max(ttl/5, minMargin) }

// AgentResource names the right to work through an agent's inbox.
func AgentResource(agentID string) string { return "agent/" + agentID }

// DeliverResource names the right to send for an agent: one resource for all of
// its outbound consumers.
func DeliverResource(agentID string) string { return "deliver/" + agentID }

// ChannelResource names the right to receive what people write to a channel account of the home.
func ChannelResource(account string) string { return channelPrefix + account }

const channelPrefix = "channel/"

// AgentOf is the agent of a resource; "" for a resource that is of no agent.
func AgentOf(resource string) string {
	if IsChannel(resource) {
		return ""
	}
	_, id, _ := strings.Cut(resource, "/")
	return id
}

// IsChannel reports whether a resource is a channel account.
func IsChannel(resource string) bool { return strings.HasPrefix(resource, channelPrefix) }

// AccountOf is the channel account of a resource; "" for one that is no account.
func AccountOf(resource string) string {
	if !IsChannel(resource) {
		return ""
	}
	return resource[len(channelPrefix):]
}

// RoleOf is the role of the services that work on a resource: runner, deliverer or gateway; ""
// for what is no resource.
func RoleOf(resource string) string {
	switch kind, id, ok := strings.Cut(resource, "/"); {
	case !ok || id == "":
		return ""
	case kind == "agent":
		return "runner"
	case kind == "deliver":
		return "deliverer"
	case kind+"/" == channelPrefix:
		return "gateway"
	}
	return ""
}

// ErrLost reports that a token is not, or no longer, the current unexpired one of
// its resource. It is final for that token: no later answer turns it around.
// At a service's edge it is ABORTED / LEASE_LOST.
var ErrLost = errors.New("lease lost")

// HeldError reports that a resource is live with somebody else. At a service's edge
// it is FAILED_PRECONDITION / LEASE_HELD with RetryInfo.
type HeldError struct {
	Resource string
	Holder   string
	// Address is where the holder can be reached, as it stated itself; it may be
	// empty.
	Address string
	// RetryAfter is the time until the lease runs out if nobody renews it.
	RetryAfter time.Duration
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("lease %s is held by %s", e.Resource, e.Holder)
}

// Record is one term of one resource as the table keeps and shows it.
type Record struct {
	Resource string
	// Token is the fencing token: the number of the term. It rises strictly for
	// a resource for as long as its inbox or its ledger row exists.
	Token uint64
	// Holder is the process that acts, as NewHolder names it.
	Holder string
	// Address is where the holder can be reached; display and joining only.
	Address string
	// RequestID is the caller's name for the request that began the term. A
	// repeat of that request returns the same term.
	RequestID string
	TTL       time.Duration
	// Expires is wall time and for display only. What counts is the monotonic
	// deadline, which only the table knows.
	Expires time.Time
	// Released reports that the term is over and need not be waited for.
	Released bool
	// YieldRequested reports that somebody waits for the resource. It lives in
	// memory only; a Ledger need not keep it.
	YieldRequested bool
}

// Ledger is the disk below the table: the last Record of each resource.
type Ledger interface {
	// Load returns the last saved record of every resource.
	Load(ctx context.Context) ([]Record, error)
	// Save replaces the record of r.Resource. It MUST be on disk before Save
	// returns, except when r.Released is true: such a record may be written
	// lazily, since losing it costs one ttl of waiting after a power loss and
	// nothing else. A record with a lower token than the saved one is never
	// passed. When Save returns, with an error too, the write is over: nothing
	// of it may reach the disk later. Saves of different resources come
	// concurrently, those of one resource in order.
	Save(ctx context.Context, r Record) error
}
