package slack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/pause"
)

const (
	// gapLimit is how old a message may be that is fetched after an outage.
	gapLimit = 24 * time.Hour
	// activeLimit is how long a conversation without a message is known.
	activeLimit = 7 * 24 * time.Hour
	// maxConversations are asked for at a start, maxEach messages taken of one, maxAll of all.
	maxConversations, maxEach, maxAll = 200, 500, 5000
	// pageSize is how many messages an answer has.
	pageSize = 200
	// gapTime is how long a start fetches: what arrives meanwhile waits behind it. maxRounds is how
	// often what could not be fetched is tried again after it.
	gapTime   = 2 * time.Minute
	maxRounds = 20
	// Positions are kept under several names, each with a value of at most maxPositions bytes.
	positionNames, maxPositions = 4, 4 << 10
)

// later is the wait before what could not be fetched is tried again.
var later = pause.Backoff{First: 500 * time.Millisecond, Last: time.Minute}

// position is how far a conversation, or a thread in it, was read.
type position struct {
	channel, thread string
	kind            string
	ts              string
}

func (p position) name() string { return p.channel + "/" + p.thread }

func (p position) String() string { return fmt.Sprintf("%s %s %s", p.name(), p.kind, p.ts) }

// statedTypes are the platform's words for kinds.
var statedTypes = map[string]string{kindDM: "im", kindGroup: "mpim", kindChannel: "channel"}

func readPosition(line string) (position, bool) {
	f := strings.Fields(line)
	if len(f) != 3 {
		return position{}, false
	}
	p := position{kind: f[1], ts: f[2]}
	p.channel, p.thread, _ = strings.Cut(f[0], "/")
	_, known := statedTypes[p.kind]
	thread := p.thread == "" || tsRule.MatchString(p.thread)
	return p, known && thread && idRule.MatchString(p.channel) && tsRule.MatchString(p.ts)
}

// positions are how far the conversations of an account were read. It is safe for concurrent use.
type positions struct {
	mu   sync.Mutex
	list [positionNames]map[string]position // each is one value that is kept
	held map[string]*held                   // by conversation
	keep func(name, value string)
}

// held is a conversation of which older messages are still fetched or stored: until then it stays
// where it is, so that the next start fetches again what this one did not.
type held struct {
	open int                 // what is fetched or stored
	seen map[string]position // of what is stored meanwhile; at most maxConversations
}

// loadPositions reads what was kept before.
func loadPositions(ctx context.Context, in channel.Intake) (*positions, error) {
	p := &positions{keep: in.Keep, held: map[string]*held{}}
	for n := range p.list {
		p.list[n] = map[string]position{}
		kept, err := in.Cursor(ctx, listName(n))
		if err != nil {
			return nil, fmt.Errorf("read a cursor: %w", err)
		}
		for line := range strings.Lines(kept) {
			if one, ok := readPosition(line); ok && listOf(one.channel) == n {
				p.list[n][one.name()] = one
			}
		}
	}
	return p, nil
}

// listName is the name of a value that is kept, listOf which one has a conversation.
func listName(n int) string { return "positions-" + strconv.Itoa(n) }

func listOf(conversation string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(conversation)) // never fails
	return int(h.Sum32() % positionNames)
}

// hold keeps the positions of a conversation where they are, until release was called as often.
func (p *positions) hold(conversation string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.held[conversation]
	if h == nil {
		h = &held{seen: map[string]position{}}
		p.held[conversation] = h
	}
	h.open++
}

func (p *positions) release(conversation string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.held[conversation]
	if h == nil {
		return
	}
	if h.open--; h.open > 0 {
		return
	}
	delete(p.held, conversation)
	for _, one := range h.seen {
		p.move(one)
	}
}

// stored notes that a message is on disk, or refused.
func (p *positions) stored(u channel.Update) {
	one := position{channel: u.SessionID, thread: u.Thread, kind: u.Kind, ts: u.MessageID}
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.held[one.channel]
	if h == nil {
		p.move(one)
		return
	}
	if old, ok := h.seen[one.name()]; compareTS(old.ts, one.ts) < 0 && (ok || len(h.seen) < maxConversations) {
		h.seen[one.name()] = one
	}
}

// move notes how far a conversation was read. What does not fit any more is forgotten, the
// conversation first that had no message for the longest time. The lock is held.
func (p *positions) move(one position) {
	n := listOf(one.channel)
	list := p.list[n]
	if compareTS(list[one.name()].ts, one.ts) >= 0 {
		return
	}
	list[one.name()] = one
	var b strings.Builder
	for _, other := range slices.SortedFunc(maps.Values(list), newestFirst) {
		line := other.String() + "\n"
		if b.Len()+len(line) > maxPositions || time.Since(date(other.ts)) > activeLimit {
			delete(list, other.name())
			continue
		}
		b.WriteString(line)
	}
	p.keep(listName(n), b.String())
}

// newest returns the conversations that are asked for, the last used first.
func (p *positions) newest() (all []position) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, list := range p.list {
		for _, one := range list {
			if time.Since(date(one.ts)) < activeLimit {
				all = append(all, one)
			}
		}
	}
	slices.SortFunc(all, newestFirst)
	return all[:min(len(all), maxConversations)]
}

func newestFirst(a, b position) int {
	if n := compareTS(b.ts, a.ts); n != 0 {
		return n
	}
	return cmp.Compare(a.name(), b.name())
}

// compareTS compares two times of the platform: seconds, a period and a number of fixed length.
func compareTS(a, b string) int {
	as, an, _ := strings.Cut(a, ".")
	bs, bn, _ := strings.Cut(b, ".")
	return cmp.Or(cmp.Compare(len(as), len(bs)), cmp.Compare(as, bs), cmp.Compare(an, bn))
}

// gap fetches what was written while no connection was open. It is used by one goroutine.
type gap struct {
	reader *reader
	seen   *positions
	in     channel.Intake
	taken  int
	known  map[string]bool // names of what is, or was, fetched; at most maxConversations
	left   []*missing      // what could not be fetched yet
}

// missing is what is fetched of a conversation or a thread: the newest messages first.
type missing struct {
	position        // behind which they are
	cursor   string // of the next page; empty: the first one
	limit    int    // messages of a page
	read     int    // messages
}

// fetch takes the messages behind the positions. One that arrives meanwhile may come over the
// connection as well, with the same key. What the platform refuses is left out.
func (g *gap) fetch(ctx context.Context) error {
	g.known = map[string]bool{}
	edge := strconv.FormatInt(time.Now().Add(-gapLimit).Unix(), 10) + ".000000"
	for _, p := range g.seen.newest() {
		if compareTS(p.ts, edge) < 0 {
			p.ts = edge
		}
		g.add(p)
	}
	return g.round(ctx)
}

// finish tries again what could not be fetched. What is left after that is fetched by the next start.
func (g *gap) finish(ctx context.Context) error {
	for n := 0; n < maxRounds && len(g.left) > 0 && g.taken < maxAll; n++ {
		if err := pause.For(ctx, later.Wait(n)); err != nil {
			return err
		}
		if err := g.round(ctx); err != nil {
			return err
		}
	}
	return nil
}

// add plans to fetch what is behind a position.
func (g *gap) add(p position) {
	if g.known[p.name()] || len(g.known) >= maxConversations {
		return
	}
	g.known[p.name()] = true
	g.seen.hold(p.channel)
	g.left = append(g.left, &missing{position: p, limit: pageSize})
}

// round fetches each that is left, and leaves what cannot be fetched now.
func (g *gap) round(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, gapTime)
	defer cancel()
	var left []*missing
	for len(g.left) > 0 && g.taken < maxAll && within.Err() == nil { // threads are added meanwhile
		p := g.left[0]
		g.left = g.left[1:]
		messages, err := g.list(within, p)
		for _, m := range messages {
			if p.thread == "" && compareTS(m.LatestReply, p.ts) > 0 {
				g.add(position{channel: p.channel, thread: m.TS, kind: p.kind, ts: p.ts})
			}
			if err := g.take(ctx, &m.message, p.position); err != nil {
				return err
			}
		}
		if err == nil && g.taken < maxAll || g.lasting(err) {
			g.seen.release(p.channel)
		} else {
			left = append(left, p)
		}
	}
	g.left = append(left, g.left...)
	return ctx.Err()
}

// lasting reports whether a conversation cannot be fetched later, either.
func (g *gap) lasting(err error) bool {
	r, ok := errors.AsType[*refusal](err)
	return ok && (r.code == "missing_scope" || g.reader.client.down(r).Class == channel.Rejected) || errors.Is(err, boundary.ErrTooLarge)
}

// listed is a message of the history.
type listed struct {
	message
	LatestReply string `json:"latest_reply"` // in the thread that it began
}

// list returns the messages behind a position, the oldest first. With an error it returns those of
// the pages before it, and goes on behind them the next time.
func (g *gap) list(ctx context.Context, p *missing) (out []listed, err error) {
	c := g.reader.client
	params := url.Values{"channel": {p.channel}, "oldest": {p.ts}}
	method := "conversations.history"
	if p.thread != "" {
		method = "conversations.replies"
		params.Set("ts", p.thread)
	}
	for p.read < maxEach {
		var a struct {
			Messages []listed `json:"messages"`
			Next     struct {
				Cursor string `json:"next_cursor"`
			} `json:"response_metadata"`
		}
		params.Set("limit", strconv.Itoa(p.limit))
		if p.cursor != "" {
			params.Set("cursor", p.cursor)
		}
		err = c.read(ctx, g.reader.token, method, params, &a)
		if r, ok := errors.AsType[*refusal](err); ok && r.retryAfter > 0 {
			if err = pause.For(ctx, r.retryAfter); err == nil {
				continue
			}
		}
		if errors.Is(err, boundary.ErrTooLarge) && p.limit > 1 {
			p.limit /= 2 // the texts of a page can be longer than an answer may be
			continue
		}
		if err != nil {
			break
		}
		page := a.Messages[:min(len(a.Messages), maxEach-p.read)]
		out, p.read, p.cursor = append(out, page...), p.read+len(page), a.Next.Cursor
		if p.cursor == "" || len(page) == 0 {
			break
		}
	}
	slices.SortStableFunc(out, func(a, b listed) int { return compareTS(a.TS, b.TS) })
	return out, err
}

// take passes a message on. An edited one is taken as it is now: its first text is not known.
func (g *gap) take(ctx context.Context, m *message, p position) error {
	if compareTS(m.TS, p.ts) <= 0 || m.TS == p.thread || g.taken >= maxAll { // a thread is listed with what began it
		return nil
	}
	m.Edited = nil
	u, ok := g.reader.readMessage(ctx, m, p.channel, statedTypes[p.kind], g.reader.who.Team)
	if !ok {
		return ctx.Err()
	}
	g.taken++
	g.seen.hold(p.channel)
	return g.in.Take(ctx, u, func() {
		g.seen.stored(u)
		g.seen.release(p.channel)
	})
}
