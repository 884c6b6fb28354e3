// Package notify reports between registries that share a database that something has
// changed, never what.
//
//	Publish (after a commit here) --> pending, each item once --one NOTIFY--> the others
//	the others --NOTIFY--> On(items)           all of it over one connection that listens
//
// One NOTIFY is under way at a time. A caller that has an item while there is none sends it
// at once; items that gather meanwhile are sent with the next, so that under load each
// NOTIFY carries many. Items that only observers at another registry wait for are sent with
// the next NOTIFY too, or after some milliseconds: each NOTIFY wakes every registry, and the
// registry near an agent knows already. It is outside of every transaction that does work,
// because committing a NOTIFY takes a lock that all who do so share.
//
// Delivery is not guaranteed: a connection breaks, a pooler drops LISTEN, a server fails
// over. Waiters poll after a while, and Lost reports that it is worth polling now. No
// decision depends on a notification.
package notify

import (
	"context"
	"crypto/rand"
	"log/slog"
	mrand "math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/theclaw/agents/internal/pause"
	"github.com/theclaw/agents/internal/store"
)

// mayWait tells of a kind that nobody's work begins with.
func mayWait(k store.NoticeKind) bool {
	return k == store.NoticeThread || k == store.NoticeFate || k == store.NoticeDelivered || k == store.NoticeRead
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
)

// Bus is one registry's connection to the others.
type Bus struct {
	pool *pgxpool.Pool
	log  *slog.Logger
	id   string
	on   func([]store.Notice) // of others
	lost func()

	mu       sync.Mutex
	line     *line  // nil: there is none
	underWay string // what is said, until it is answered
	pending  map[store.Notice]struct{}
	order    []store.Notice
	hurry    bool // something is pending that may not wait
	ahead    bool // a look at what may wait
}

// Options of a bus. On and Lost must not block.
type Options struct {
	Pool   *pgxpool.Pool // the caller's
	Logger *slog.Logger
	On     func([]store.Notice) // what others published
	Lost   func()               // something may have been published meanwhile
}

// New makes a bus; Run must run for it to carry anything.
func New(o Options) *Bus {
	return &Bus{pool: o.Pool, log: o.Logger, id: rand.Text(), on: o.On, lost: o.Lost, pending: map[store.Notice]struct{}{}}
}

// Publish notifies the others soon. It does not wait.
func (b *Bus) Publish(items ...store.Notice) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, i := range items {
		if _, there := b.pending[i]; !there && len(b.order) < maxPending && !strings.ContainsAny(i.Name, "\n\x00") {
			b.pending[i] = struct{}{}
			b.order = append(b.order, i)
			b.hurry = b.hurry || !mayWait(i.Kind)
		}
	}
	switch {
	case b.hurry:
		b.say()
	case !b.ahead && len(b.order) > 0:
		b.ahead = true
		time.AfterFunc(gather, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.ahead, b.hurry = false, true
			b.say()
		})
	}
}

// say says what is pending, unless something is under way. mu is locked.
func (b *Bus) say() {
	if b.line == nil || b.underWay != "" {
		return
	}
	if b.underWay = b.payload(); b.underWay != "" {
		b.line.say(b.underWay)
	}
}

// answered takes the answer to what was under way, and says what has gathered.
func (b *Bus) answered(err error) {
	if err != nil {
		b.log.Warn("other registries are not notified of changes", "error", err) // they look by themselves
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.underWay = ""
	if b.hurry {
		b.say()
	}
}

// Run publishes and receives until ctx ends.
func (b *Bus) Run(ctx context.Context) {
	wait := firstWait
	for ctx.Err() == nil {
		began := time.Now()
		err := b.connected(ctx)
		if ctx.Err() != nil {
			return
		}
		b.log.Warn("notifications between registries do not work", "error", err) // they look by themselves
		if time.Since(began) > 2*lastWait {
			wait = firstWait
		}
		if pause.For(ctx, wait/2+mrand.N(wait/2)) != nil {
			return
		}
		wait = min(2*wait, lastWait)
	}
}

// connected says and hears while one connection holds. What the one before may not have
// told is said again: it is heard twice rather than never.
func (b *Bus) connected(ctx context.Context) error {
	l, err := dial(ctx, &b.pool.Config().ConnConfig.Config)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, l.stop)()
	b.lost() // before this nothing was heard
	b.mu.Lock()
	b.line = l
	if b.underWay != "" {
		l.say(b.underWay)
	} else {
		b.say()
	}
	b.mu.Unlock()
	err = l.hear(b.answered, func(payload string) {
		if items := b.parse(payload); len(items) > 0 {
			b.on(items)
		}
	})
	b.mu.Lock()
	b.line = nil
	b.mu.Unlock()
	l.bye()
	return err
}

// payload takes as much of what is pending as one NOTIFY carries; mu is locked.
func (b *Bus) payload() string {
	var s strings.Builder
	s.WriteString(b.id)
	n := 0
	for _, i := range b.order {
		if len(i.Name)+2 > maxPayload-len(b.id) {
			n++ // nobody can be told of it
			continue
		}
		if s.Len()+2+len(i.Name) > maxPayload {
			break
		}
		n++
		s.WriteByte('\n')
		s.WriteByte(byte(i.Kind))
		s.WriteString(i.Name)
	}
	for _, i := range b.order[:n] {
		delete(b.pending, i)
	}
	b.order = b.order[n:]
	b.hurry = len(b.order) > 0 // the rest has waited
	if s.Len() == len(b.id) {
		return ""
	}
	return s.String()
}

// parse reads a payload; our own has nothing to tell.
func (b *Bus) parse(text string) []store.Notice {
	lines := strings.Split(text, "\n")
	if lines[0] == b.id {
		return nil
	}
	out := make([]store.Notice, 0, len(lines)-1)
	for _, l := range lines[1:] {
		if l != "" {
			out = append(out, store.Notice{Kind: store.NoticeKind(l[0]), Name: l[1:]})
		}
	}
	return out
}
