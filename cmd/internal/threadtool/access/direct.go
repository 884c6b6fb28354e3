package access

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite"
	"github.com/theclaw/agents/internal/store/sqlite/db"
	"github.com/theclaw/agents/internal/thread"
)

// direct is a database opened here.
type direct struct {
	p      Place
	g      *sqlite.Guest
	unlock func() error // the home's lock; nil: there is none
}

func openDirect(ctx context.Context, p Place, unlock func() error) (Conn, error) {
	d := &direct{p: p, unlock: unlock}
	g, err := sqlite.OpenGuest(ctx, p.Dir)
	if err != nil {
		return nil, errors.Join(Fault(p, err), d.free())
	}
	d.g = g
	return d, nil
}

func makeDirect(p Place, unlock func() error) (Conn, error) {
	return &direct{p: p, unlock: unlock}, nil
}

func (d *direct) make(context.Context) (bool, error) {
	created, err := db.Create(d.p.Dir)
	return created, errors.Join(Fault(d.p, err), d.free())
}

func (d *direct) free() error {
	if d.unlock == nil {
		return nil
	}
	return d.unlock()
}

func (d *direct) Push(ctx context.Context, events []store.NewEvent) ([]int64, error) {
	ids, err := d.g.Append(ctx, events)
	return ids, Fault(d.p, err)
}

func (d *direct) Peek(ctx context.Context, q Query) ([]thread.Event, bool, error) {
	p, err := d.g.Read(ctx, store.Query{After: q.After, Limit: min(q.Limit, page), Filter: q.Filter})
	return p.Events, p.More, Fault(d.p, err)
}

func (d *direct) Ack(ctx context.Context, consumer string, id int64) error {
	return Fault(d.p, d.g.Ack(ctx, consumer, id))
}

func (d *direct) Info(ctx context.Context) (store.Info, error) {
	in, err := d.g.Info(ctx)
	return in, Fault(d.p, err)
}

func (d *direct) Subscribe(ctx context.Context, s store.Subscription) error {
	return Fault(d.p, d.g.Subscribe(ctx, s))
}

func (d *direct) Unsubscribe(ctx context.Context, consumer string) error {
	return Fault(d.p, d.g.Unsubscribe(ctx, consumer))
}

// Close closes the database first: the home is free when it is at rest.
func (d *direct) Close() error {
	return errors.Join(Fault(d.p, d.g.Close()), d.free())
}

// Fault says what went wrong with the thread at p, for the person at the
// keyboard. An error that is one of those already stays as it is.
func Fault(p Place, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	is := func(target error) bool { return errors.Is(err, target) }
	say := func(code codes.Code, reason, what, fix string) error {
		return fault.Wrap(fault.New(code, reason, what, fix), err)
	}
	switch {
	case is(context.Canceled), is(context.DeadlineExceeded):
		return err
	case is(store.ErrNotFound):
		return say(codes.NotFound, fault.ThreadNotFound, p.Dir+" is not a thread directory", "run 'thread init "+p.Dir+"' first")
	case is(store.ErrNoConsumer):
		return say(codes.NotFound, fault.ConsumerNotFound, "the consumer is not subscribed to "+p.Dir, "run 'thread subscribe' first; 'thread info' lists who is")
	case is(store.ErrConsumerExists):
		return say(codes.AlreadyExists, fault.ConsumerExists, "the consumer is subscribed to "+p.Dir+" already", "unsubscribe first, with 'thread unsubscribe'")
	case is(store.ErrBusy):
		return say(codes.Unavailable, fault.AgentFailed, "the database of "+p.Dir+" is locked by another program", "nothing was stored; try again when that is done")
	case is(store.ErrDiskFull):
		return say(codes.ResourceExhausted, fault.DiskFull, "the disk is full", "free some space; nothing was stored and nothing is lost")
	case is(store.ErrReadOnly):
		return say(codes.FailedPrecondition, fault.ReadOnly, p.Dir+" cannot be written", "give the files back their write permission")
	case is(store.ErrCorrupt):
		return say(codes.DataLoss, fault.DatabaseCorrupt, p.Dir+" has a damaged database", "'agentctl fsck --repair' saves what can be read of an agent's")
	case is(store.ErrIO):
		return say(codes.Unavailable, fault.AgentFailed, p.Dir+" had an input/output error", "check the disk, then try again")
	}
	if f, ok := errors.AsType[*fault.Error](agentdir.Fault(err)); ok {
		return f
	}
	return say(codes.Internal, fault.Internal, p.Dir+": "+err.Error(), "check that it is a thread that 'thread init' made")
}
