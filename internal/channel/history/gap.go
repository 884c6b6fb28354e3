package history

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/pause"
)

const (
	// maxEach messages are taken of a conversation, maxAll of all.
	maxEach, maxAll = 500, 5000
	// gapTime is how long the first round fetches. maxRounds is how often what could not be fetched is
	// tried again after it.
	gapTime   = 2 * time.Minute
	maxRounds = 20
)

// later is the wait before what could not be fetched is tried again.
var later = pause.Backoff{First: 500 * time.Millisecond, Last: time.Minute}

// Message is one of a history.
type Message struct {
	ID string
	// LastReply is the newest message of the thread that this one began; empty: it began none.
	LastReply string
	// Update makes an update of the message as it is now; false: it says nothing to the account.
	Update func(ctx context.Context) (channel.Update, bool)
}

// Platform reads the histories of an account. Each method is called by one goroutine at a time.
type Platform interface {
	// List returns at most limit of the messages behind a position, the newest first, and the cursor
	// of the next page. An empty cursor names the first page; as next, there is no further one.
	List(ctx context.Context, p Position, cursor string, limit int) (page []Message, next string, err error)
	// Refused says what an error of List means: that the conversation cannot be read later, either, or
	// how long to wait before the next request; 0: it does not say so.
	Refused(err error) (lasting bool, retryAfter time.Duration)
}

// Gap is what was written while no connection was open. It is used by one goroutine at a time.
type Gap struct {
	positions *Positions
	intake    channel.Intake
	page      int
	taken     int
	known     map[string]bool // names of what is, or was, fetched; at most maxConversations
	left      []*missing      // what could not be fetched yet
	open      atomic.Int64    // conversations and messages that are fetched or stored, and the gap itself
	done      func()
}

// missing is what is fetched of a conversation or a thread: the newest messages first.
type missing struct {
	Position        // behind which they are
	cursor   string // of the next page; empty: the first one
	limit    int    // messages of a page
	read     int    // messages
}

// Gap begins to fetch what is behind the positions, in pages of at most page messages. done is called
// once, when all of it was fetched and stored, and not before Fetch.
func (p *Positions) Gap(in channel.Intake, page int, done func()) *Gap {
	g := &Gap{positions: p, intake: in, page: page, known: map[string]bool{}, done: done}
	g.open.Add(1)
	for _, one := range p.newest() {
		g.add(one)
	}
	return g
}

// Fetch takes what the platform answers now, for at most two minutes. A message that arrives meanwhile
// may come over the connection as well, with the same key. more: the rest is to be fetched by Finish.
func (g *Gap) Fetch(ctx context.Context, from Platform) (more bool, err error) {
	defer g.end()
	err = g.round(ctx, from)
	return len(g.left) > 0 && g.taken < maxAll, err
}

// Finish tries again what could not be fetched. What is left after that is fetched by the next start.
func (g *Gap) Finish(ctx context.Context, from Platform) error {
	for n := 0; n < maxRounds && len(g.left) > 0 && g.taken < maxAll; n++ {
		if err := pause.For(ctx, later.Wait(n)); err != nil {
			return err
		}
		if err := g.round(ctx, from); err != nil {
			return err
		}
	}
	return nil
}

// add plans to fetch what is behind a position.
func (g *Gap) add(p Position) {
	if g.known[p.name()] || len(g.known) >= maxConversations {
		return
	}
	g.known[p.name()] = true
	g.begin(p)
	g.left = append(g.left, &missing{Position: p, limit: g.page})
}

// begin holds a conversation for one thing that is fetched or stored of it, finish ends that.
func (g *Gap) begin(p Position) {
	g.positions.hold(p.Conversation)
	g.open.Add(1)
}

func (g *Gap) finish(p Position) {
	g.positions.release(p.Conversation)
	g.end()
}

func (g *Gap) end() {
	if g.open.Add(-1) == 0 {
		g.done()
	}
}

// round fetches each that is left, and leaves what cannot be fetched now.
func (g *Gap) round(ctx context.Context, from Platform) error {
	within, cancel := context.WithTimeout(ctx, gapTime)
	defer cancel()
	var left []*missing
	for len(g.left) > 0 && g.taken < maxAll && within.Err() == nil { // threads are added meanwhile
		p := g.left[0]
		g.left = g.left[1:]
		messages, err := g.list(within, from, p)
		for _, m := range messages {
			if p.Thread == "" && Compare(m.LastReply, p.ID) > 0 {
				g.add(Position{Conversation: p.Conversation, Thread: m.ID, Kind: p.Kind, ID: p.ID})
			}
			if err := g.take(ctx, m, p.Position); err != nil {
				return err
			}
		}
		lasting, _ := from.Refused(err)
		if err == nil && g.taken < maxAll || lasting || errors.Is(err, boundary.ErrTooLarge) {
			g.finish(p.Position)
		} else {
			left = append(left, p)
		}
	}
	g.left = append(left, g.left...)
	return ctx.Err()
}

// list returns the messages behind a position, the oldest first. With an error it returns those of
// the pages before it, and goes on behind them the next time.
func (g *Gap) list(ctx context.Context, from Platform, p *missing) (out []Message, err error) {
	for p.read < maxEach {
		var page []Message
		var next string
		page, next, err = from.List(ctx, p.Position, p.cursor, p.limit)
		if errors.Is(err, boundary.ErrTooLarge) && p.limit > 1 {
			p.limit /= 2 // the texts of a page can be longer than an answer may be
			continue
		}
		if err != nil {
			if _, wait := from.Refused(err); wait > 0 && pause.For(ctx, wait) == nil {
				continue
			}
			break
		}
		page = page[:min(len(page), maxEach-p.read)]
		out, p.read, p.cursor = append(out, page...), p.read+len(page), next
		if next == "" || len(page) == 0 {
			break
		}
	}
	slices.SortStableFunc(out, func(a, b Message) int { return Compare(a.ID, b.ID) })
	return out, err
}

// take passes a message on.
func (g *Gap) take(ctx context.Context, m Message, p Position) error {
	if Compare(m.ID, p.ID) <= 0 || m.ID == p.Thread || g.taken >= maxAll { // a thread is listed with what began it
		return nil
	}
	u, ok := m.Update(ctx)
	if !ok {
		return ctx.Err()
	}
	g.taken++
	g.begin(p)
	return g.intake.Take(ctx, u, func() {
		g.positions.Stored(u)
		g.finish(p)
	})
}
