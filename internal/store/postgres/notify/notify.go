// Package notify owns what registries that share a database tell each other: that
// something has changed, never what.
//
//	Tell (after a commit here) --> pending, each item once --one NOTIFY--> the others
//	LISTEN, one connection of its own ------------------------------------> On(items)
//
// A sender goroutine sends what has gathered while it sent the last: with little to do
// a change leaves at once, with much each NOTIFY carries many. What only those who look on
// from another registry wait for leaves with the next, or after some milliseconds: each
// NOTIFY wakes every registry, and those near an agent know already. The sender runs
// outside of every transaction that does work, because committing a NOTIFY takes a lock
// that all senders share.
//
// It promises nothing about delivery: a connection breaks, a pooler drops LISTEN, a
// server fails over. Whoever waits looks again by itself after a while, and Lost says
// that it is worth looking now. No decision is made on what is told here.
package notify

import (
	"context"
	"crypto/rand"
	"log/slog"
	mrand "math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/theclaw/agents/internal/pause"
)

// Kind is what changed.
type Kind byte

// The kinds, with what the name is.
const (
	Inbox     Kind = 'i' // agent: its inbox has new events
	Held      Kind = 'h' // agent and holder, a blank between: the same while the holder has its lease
	Heard     Kind = 'H' // agent and holder: the same, and the holder was told already, as it looks
	Read      Kind = 'r' // agent: the same, and its holder reads it already
	Thread    Kind = 't' // agent/thread: the same of another thread
	Work      Kind = 'w' // agent: it may be free, or shall work
	Replies   Kind = 'o' // agent: it has replies to send
	Fate      Kind = 'f' // agent: an event or a delivery came to its end
	Settings  Kind = 's' // agent: a file of it was changed
	Approvals Kind = 'a' // nothing: a question or an answer
	Lapse     Kind = 'l' // holder: a lease of it ran out
	Place     Kind = 'p' // agent: it is in another database
	Abort     Kind = 'x' // agent, run and token, blanks between: who has that lease shall end the run
)

// mayWait tells of a kind that nobody's work begins with.
func (k Kind) mayWait() bool { return k == Thread || k == Fate || k == Heard || k == Read }

// Item is one thing that changed.
type Item struct {
	Kind Kind
	Name string
}

const (
	channel = "theclaw"
	// maxPayload is below the 8000 bytes that a server takes.
	maxPayload = 7900
	maxPending = 100_000 // then the others look by themselves
	// gather is how long what may wait waits for company: not seen by who reads along, and
	// long beside the pause between two changes where there is much to do.
	gather    = 25 * time.Millisecond
	firstWait = 50 * time.Millisecond
	lastWait  = 2 * time.Second
	patience  = 10 * time.Second
	tries     = 4
)

// Bus is one registry's connection to the others.
type Bus struct {
	pool *pgxpool.Pool
	log  *slog.Logger
	id   string
	on   func([]Item) // of others
	lost func()

	mu      sync.Mutex
	pending map[Item]struct{}
	order   []Item
	wake    chan struct{} // something is pending
	now     chan struct{} // something that may not wait is
}

// Options of a bus. On and Lost must not block.
type Options struct {
	Pool   *pgxpool.Pool // the caller's
	Logger *slog.Logger
	On     func([]Item) // what others told
	Lost   func()       // something may have been told meanwhile
}

// New makes a bus; Run must run for it to carry anything.
func New(o Options) *Bus {
	return &Bus{pool: o.Pool, log: o.Logger, id: rand.Text(), on: o.On, lost: o.Lost, pending: map[Item]struct{}{}, wake: make(chan struct{}, 1), now: make(chan struct{}, 1)}
}

// Tell tells the others, soon. It never blocks.
func (b *Bus) Tell(items ...Item) {
	wake := b.wake
	b.mu.Lock()
	for _, i := range items {
		if !i.Kind.mayWait() {
			wake = b.now
		}
		if _, there := b.pending[i]; !there && len(b.order) < maxPending && !strings.Contains(i.Name, "\n") {
			b.pending[i] = struct{}{}
			b.order = append(b.order, i)
		}
	}
	b.mu.Unlock()
	select {
	case wake <- struct{}{}:
	default:
	}
}

// Once tells all registries, for who is none; err is nil when they were told.
func Once(ctx context.Context, pool *pgxpool.Pool, items ...Item) error {
	b := New(Options{Pool: pool})
	b.Tell(items...)
	for _, text := range b.payloads() {
		if err := b.say(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// Run sends and listens until ctx ends.
func (b *Bus) Run(ctx context.Context) {
	var g sync.WaitGroup
	g.Go(func() { b.send(ctx) })
	g.Go(func() { b.listen(ctx) })
	g.Wait()
}

func (b *Bus) send(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.now:
		case <-b.wake:
			b.company(ctx)
		}
		for _, text := range b.payloads() {
			if err := b.say(ctx, text); err != nil && ctx.Err() == nil {
				b.log.Warn("other registries are not told of changes", "error", err) // they look by themselves
				break
			}
		}
	}
}

// company waits for something that may not wait, or long enough.
func (b *Bus) company(ctx context.Context) {
	t := time.NewTimer(gather)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-b.now:
	case <-t.C:
	}
}

// say sends one payload. Connections that a restart of the server has broken are found
// broken one by one.
func (b *Bus) say(ctx context.Context, text string) (err error) {
	call, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for range tries {
		if _, err = b.pool.Exec(call, "SELECT pg_notify($1, $2)", channel, text); err == nil || call.Err() != nil {
			return err
		}
	}
	return err
}

// payloads takes what is pending.
func (b *Bus) payloads() []string {
	b.mu.Lock()
	items := b.order
	b.order = nil
	clear(b.pending)
	b.mu.Unlock()
	var out []string
	for len(items) > 0 {
		var s strings.Builder
		s.WriteString(b.id)
		n := 0
		for n < len(items) && (n == 0 || s.Len()+2+len(items[n].Name) < maxPayload) {
			s.WriteByte('\n')
			s.WriteByte(byte(items[n].Kind))
			s.WriteString(items[n].Name)
			n++
		}
		items = items[n:]
		if s.Len() < maxPayload {
			out = append(out, s.String())
		}
	}
	return out
}

// listen keeps a connection that listens.
func (b *Bus) listen(ctx context.Context) {
	wait := firstWait
	for ctx.Err() == nil {
		began := time.Now()
		err := b.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		b.log.Warn("does not hear of other registries' changes", "error", err)
		if time.Since(began) > 2*lastWait {
			wait = firstWait
		}
		if pause.For(ctx, wait/2+mrand.N(wait/2)) != nil {
			return
		}
		wait = min(2*wait, lastWait)
	}
}

func (b *Bus) follow(ctx context.Context) error {
	call, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := pgx.ConnectConfig(call, b.pool.Config().ConnConfig)
	if err != nil {
		return err
	}
	defer func() {
		bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = c.Close(bye)
	}()
	if _, err := c.Exec(call, "LISTEN "+channel); err != nil {
		return err
	}
	b.lost() // before this nothing was heard
	for {
		n, err := c.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		if items := b.parse(n.Payload); len(items) > 0 {
			b.on(items)
		}
	}
}

// parse reads a payload; our own has nothing to tell.
func (b *Bus) parse(text string) []Item {
	lines := strings.Split(text, "\n")
	if lines[0] == b.id {
		return nil
	}
	out := make([]Item, 0, len(lines)-1)
	for _, l := range lines[1:] {
		if l != "" {
			out = append(out, Item{Kind(l[0]), l[1:]})
		}
	}
	return out
}
