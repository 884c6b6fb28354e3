package slack

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/channel/history"
)

// maxQueued is how many envelopes wait to be read. More of them wait in the socket.
const maxQueued = 256

// receiver takes in the events of one account.
type receiver struct {
	name       string
	definition channel.Definition
	resolve    channel.Resolve
}

// Receive implements [channel.Receiver].
func (r *receiver) Receive(ctx context.Context, in channel.Intake) error {
	c := newClient(r.name, r.definition, r.resolve, channel.NewTransport())
	defer c.transport.CloseIdleConnections()
	err := c.receive(ctx, in)
	if err == nil || ctx.Err() != nil {
		return nil
	}
	return c.down(err)
}

func (c *client) receive(ctx context.Context, in channel.Intake) error {
	token, err := c.token(ctx)
	if err != nil {
		return err
	}
	who, err := c.identify(ctx, token)
	if err != nil {
		return err
	}
	s, err := c.connect(ctx)
	if err != nil {
		return err
	}
	if err := in.Connected(who.identity(), "@"+who.Name); err != nil {
		s.close()
		return err
	}
	seen, err := history.Load(ctx, in, date)
	if err != nil {
		s.close()
		return err
	}
	r := &reader{client: c, token: token, who: who, directory: newDirectory(c, token)}
	envelopes := make(chan envelope, maxQueued)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.stay(ctx, s, envelopes) })
	group.Go(func() error {
		g := seen.Gap(in, pageSize, func() {})
		more, err := g.Fetch(ctx, r)
		if err != nil {
			return err
		}
		if more {
			other := &reader{client: c, token: token, who: who, directory: newDirectory(c, token)} // r is in use
			group.Go(func() error { return g.Finish(ctx, other) })
		}
		return take(ctx, r, in, seen, envelopes)
	})
	return group.Wait()
}

// take passes on what envelopes say, in their order, until ctx ends.
func take(ctx context.Context, r *reader, in channel.Intake, seen *history.Positions, envelopes <-chan envelope) error {
	taken := pending{open: map[string][]envelope{}}
	for {
		var e envelope
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e = <-envelopes:
		}
		u, ok := r.read(ctx, e.Type, e.Payload)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case !ok:
			in.Ignored()
			e.ack()
			continue
		case taken.repeats(u.Key, e):
			continue
		}
		stored := func() {
			taken.stored(u.Key)
			if u.Key == r.key(u.SessionID, u.MessageID) { // neither an edit nor a pressed button
				seen.Stored(u)
			}
		}
		if err := in.Take(ctx, u, stored); err != nil {
			return err
		}
	}
}

// pending are the envelopes of messages that were taken and are not stored, by the keys of the
// messages.
type pending struct {
	mu   sync.Mutex
	open map[string][]envelope
}

// repeats notes an envelope, and reports whether its message was taken before and is not stored
// yet: the platform sends an envelope again that is not acknowledged within 3 seconds, and a
// mention as two events.
func (p *pending) repeats(key string, e envelope) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	list, ok := p.open[key]
	p.open[key] = append(list, e)
	return ok
}

// stored acknowledges the envelopes of a message.
func (p *pending) stored(key string) {
	p.mu.Lock()
	list := p.open[key]
	delete(p.open, key)
	p.mu.Unlock()
	for _, e := range list {
		e.ack()
	}
}
