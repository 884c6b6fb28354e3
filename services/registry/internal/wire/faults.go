package wire

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/store"
)

// RetryFull is how long a caller whose push was refused should wait.
const RetryFull = 5 * time.Second

// Faults converts the errors of the layers below to those that callers get.
type Faults struct {
	// Missing reports whether an agent does not exist.
	Missing func(agentID string) bool
	// Engine returns the faults of one storage engine that others do not have, or mean
	// something else by; nil for any other error.
	Engine func(error) *fault.Error
}

// Fault is what a caller gets for an error about a thread of an agent.
func (s Faults) Fault(agentID, threadID string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if held, ok := errors.AsType[*lease.HeldError](err); ok {
		f := fault.New(codes.FailedPrecondition, fault.LeaseHeld, "agent '"+agentID+"' is being worked on by "+held.Holder, "wait for it, or stop that process")
		f.RetryAfter, f.Meta = held.RetryAfter, map[string]string{"holder": held.Holder, "address": held.Address}
		return f
	}
	return fault.Wrap(s.known(agentID, threadID, err), err)
}

func (s Faults) known(agentID, threadID string, err error) *fault.Error {
	where := "thread '" + threadID + "' of agent '" + agentID + "'"
	is := func(target error) bool { return errors.Is(err, target) }
	switch {
	case is(store.ErrLeaseLost), is(lease.ErrLost):
		return fault.New(codes.Aborted, fault.LeaseLost, "the lease is no longer current", "stop working on it; another process has it or will take it")
	case is(store.ErrNotFound):
		if s.Missing(agentID) {
			return fault.New(codes.NotFound, fault.AgentNotFound, "agent '"+agentID+"' not found", "run 'agentctl init "+agentID+"' first")
		}
		return fault.New(codes.NotFound, fault.ThreadNotFound, where+" does not exist", others(threadID)+"see 'agentctl threads "+agentID+"'")
	case is(store.ErrNoConsumer):
		return fault.New(codes.NotFound, fault.ConsumerNotFound, "no such consumer in "+where, "subscribe it first")
	case is(store.ErrConsumerExists):
		return fault.New(codes.AlreadyExists, fault.ConsumerExists, "the consumer is subscribed to "+where+" already", "unsubscribe first")
	case is(store.ErrNoTurn):
		return fault.New(codes.NotFound, fault.TurnNotFound, "agent '"+agentID+"' has no message with this id", "see 'agentctl turns "+agentID+"'")
	case is(store.ErrNoProcess):
		return fault.New(codes.NotFound, fault.ProcessNotFound, "the conversation has no process of this id", "list them; a row goes 7 days after the end of its process")
	case is(store.ErrNoMedia):
		return fault.New(codes.NotFound, fault.MediaNotFound, "agent '"+agentID+"' has no media with this hash, or their data are damaged", "run 'agentctl fsck --agent "+agentID+"'; send or create the file again")
	case is(store.ErrProcessTaken):
		return fault.New(codes.FailedPrecondition, fault.InvalidArgument, "another call has started a process of this id", "start it again")
	case is(store.ErrMemoryMoved):
		return fault.New(codes.FailedPrecondition, fault.InvalidArgument, "the memory of agent '"+agentID+"' was changed by another process meanwhile", "read it again; nothing was changed")
	case is(store.ErrNoDelivery):
		return fault.New(codes.NotFound, fault.DeliveryNotFound, "no such delivery in "+where, "see 'agentctl dlq list "+agentID+"'")
	case is(store.ErrStopped):
		return fault.New(codes.FailedPrecondition, fault.AgentStopped, "agent '"+agentID+"' is stopped", "start it with 'agentctl start "+agentID+"'")
	case is(store.ErrNotDead):
		return fault.New(codes.FailedPrecondition, fault.InvalidArgument, "this is not a dead letter", "see 'agentctl dlq list "+agentID+"'")
	case is(store.ErrKeyReused):
		return fault.New(codes.InvalidArgument, fault.InvalidArgument, "the idempotency key was used for another push", "use a new key for a new message")
	case is(store.ErrKeyMismatch):
		return fault.New(codes.Aborted, fault.InvalidArgument, "the event with this id is a different one now", "open the batch again")
	case is(store.ErrInboxFull):
		f := fault.New(codes.ResourceExhausted, fault.InboxFull, "the inbox of agent '"+agentID+"' is full", "wait until the agent has caught up")
		f.RetryAfter = RetryFull
		return f
	case is(store.ErrPeerFull):
		f := fault.New(codes.ResourceExhausted, fault.InboxFull, "too many messages of one sender wait in the inbox of agent '"+agentID+"'", "wait until some have been answered; others may still write")
		f.RetryAfter = RetryFull
		return f
	case is(store.ErrDiskFull):
		f := fault.New(codes.ResourceExhausted, fault.DiskFull, "the disk is full", "free some space; nothing was stored and nothing is lost")
		f.RetryAfter = RetryFull
		return f
	case is(store.ErrNoMemory):
		f := fault.New(codes.ResourceExhausted, fault.Overloaded, "the registry has too little memory for this call", "try again; if it happens often, give the registry more memory")
		f.RetryAfter = RetryFull
		return f
	case is(store.ErrReadOnly):
		return fault.New(codes.FailedPrecondition, fault.ReadOnly, where+" cannot be written", "give the files back their write permission")
	case is(store.ErrCorrupt):
		what := where + " has a damaged database"
		if lost, ok := errors.AsType[*store.LostCommits](err); ok {
			what = fmt.Sprintf("%s has lost its last commits, as without its -wal file: events.jsonl has event %d, the database ends at %d", where, lost.Line, lost.Last)
		}
		return fault.New(codes.DataLoss, fault.DatabaseCorrupt, what, "stop the services, run 'agentctl fsck --repair --agent "+agentID+"' and start them; all other agents continue")
	case is(store.ErrFormat):
		return fault.New(codes.FailedPrecondition, fault.FormatMismatch, where+" was written by a newer version", "use that version, or restore a backup")
	}
	if f := s.Engine(err); f != nil {
		return f
	}
	switch {
	case is(store.ErrNoPiece):
		return fault.New(codes.FailedPrecondition, fault.InvalidArgument, "a piece of the working directory of agent '"+agentID+"' is not there", "write all of them again; nothing was changed")
	case is(store.ErrBusy):
		f := fault.New(codes.Unavailable, fault.AgentFailed, "another program holds "+where+" locked", "try again when it is done")
		f.RetryAfter = RetryFull
		return f
	case is(store.ErrIO):
		return fault.New(codes.Unavailable, fault.AgentFailed, where+" had an input/output error", "check the disk; the next call tries again")
	case is(store.ErrClosed):
		return fault.New(codes.Unavailable, fault.RegistryUnavailable, "the registry is shutting down", "try again")
	}
	if f, ok := errors.AsType[*fault.Error](agentdir.Fault(err)); ok {
		return f
	}
	return fault.New(codes.Internal, fault.Internal, "internal error", "see the registry's log")
}

// others names the ids under which what is meant by a thread id may be stored.
func others(threadID string) string {
	list := slices.DeleteFunc(route.Stored(threadID), func(id string) bool { return id == threadID })
	if len(list) == 0 {
		return ""
	}
	return "channel and peer are encoded in it, a - of a peer as %2D: try " + strings.Join(list, " or ") + "; or "
}
