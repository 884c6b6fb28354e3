package history

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/theclaw/agents/internal/channel"
)

const (
	// activeLimit is how long a conversation is known in which, and in whose threads, no message is
	// stored.
	activeLimit = 7 * 24 * time.Hour
	// maxConversations are fetched after an outage, and noted at a time while older messages of them are.
	maxConversations = 200
	// Positions are kept under several names, each with a value of at most maxPositions bytes.
	positionNames, maxPositions = 4, 4 << 10
)

var (
	conversationRule = regexp.MustCompile(`^[A-Za-z0-9]{1,64}$`)
	kindRule         = regexp.MustCompile(`^(dm|group|channel)$`)
	messageRule      = regexp.MustCompile(`^[0-9]{1,20}(\.[0-9]{1,9})?$`)
)

// Position is how far a conversation, or a thread in it, was read.
type Position struct {
	Conversation, Thread string // Thread is the message that it began with; empty: none
	Kind                 string // of the conversation: dm, group or channel
	ID                   string // of the last message that was stored
}

func (p Position) name() string { return p.Conversation + "/" + p.Thread }

func (p Position) String() string { return fmt.Sprintf("%s %s %s", p.name(), p.Kind, p.ID) }

// readPosition reads what String prints; false: it is something else.
func readPosition(line string) (p Position, ok bool) {
	f := strings.Fields(line)
	if len(f) != 3 {
		return p, false
	}
	p.Kind, p.ID = f[1], f[2]
	p.Conversation, p.Thread, _ = strings.Cut(f[0], "/")
	thread := p.Thread == "" || messageRule.MatchString(p.Thread)
	return p, thread && kindRule.MatchString(p.Kind) && conversationRule.MatchString(p.Conversation) && messageRule.MatchString(p.ID)
}

// Positions are how far the conversations of an account were read. They are safe for concurrent use.
type Positions struct {
	mu   sync.Mutex
	list [positionNames]map[string]Position // each is one value that is kept
	held map[string]*held                   // by conversation
	keep func(name, value string)
	date func(id string) time.Time
}

// held is a conversation of which older messages are still fetched or stored: until then it stays
// where it is, so that the next start fetches again what this one did not.
type held struct {
	open int                 // what is fetched or stored
	seen map[string]Position // of what is stored meanwhile; at most maxConversations
}

// Load reads what was kept before for the account of an intake. date returns when a message was written.
func Load(ctx context.Context, in channel.Intake, date func(id string) time.Time) (*Positions, error) {
	p := &Positions{keep: in.Keep, held: map[string]*held{}, date: date}
	for n := range p.list {
		p.list[n] = map[string]Position{}
		kept, err := in.Cursor(ctx, listName(n))
		if err != nil {
			return nil, fmt.Errorf("read a cursor: %w", err)
		}
		for line := range strings.Lines(kept) {
			if one, ok := readPosition(line); ok && listOf(one.Conversation) == n {
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
func (p *Positions) hold(conversation string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.held[conversation]
	if h == nil {
		h = &held{seen: map[string]Position{}}
		p.held[conversation] = h
	}
	h.open++
}

func (p *Positions) release(conversation string) {
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

// Stored notes that a message, which is neither an edit nor a pressed button, is on disk or refused.
func (p *Positions) Stored(u channel.Update) {
	one := Position{Conversation: u.SessionID, Thread: u.Thread, Kind: u.Kind, ID: u.MessageID}
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.held[one.Conversation]
	if h == nil {
		p.move(one)
		return
	}
	if old, ok := h.seen[one.name()]; Compare(old.ID, one.ID) < 0 && (ok || len(h.seen) < maxConversations) {
		h.seen[one.name()] = one
	}
}

// move notes how far a conversation was read. What does not fit any more is forgotten, the
// conversation first that had no message for the longest time. The lock is held.
func (p *Positions) move(one Position) {
	n := listOf(one.Conversation)
	list := p.list[n]
	if Compare(list[one.name()].ID, one.ID) >= 0 {
		return
	}
	list[one.name()] = one
	kept := map[string]Position{}
	var b strings.Builder
	for _, other := range p.used(list) {
		if line := other.String() + "\n"; b.Len()+len(line) <= maxPositions {
			kept[other.name()] = other
			b.WriteString(line)
		}
	}
	p.list[n] = kept
	p.keep(listName(n), b.String())
}

// newest returns the conversations that are fetched, the last used first.
func (p *Positions) newest() []Position {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[string]Position{}
	for _, list := range p.list {
		maps.Copy(all, list)
	}
	out := p.used(all)
	return out[:min(len(out), maxConversations)]
}

// used returns what was used within the limit, the last used first. A conversation is used when one
// of its threads is: its own position may be far older.
func (p *Positions) used(list map[string]Position) (out []Position) {
	last := map[string]string{}
	for _, one := range list {
		last[one.Conversation] = slices.MaxFunc([]string{last[one.Conversation], one.ID}, Compare)
	}
	use := func(one Position) string {
		if one.Thread == "" {
			return last[one.Conversation]
		}
		return one.ID
	}
	for _, one := range list {
		if time.Since(p.date(use(one))) < activeLimit {
			out = append(out, one)
		}
	}
	slices.SortFunc(out, func(a, b Position) int {
		return cmp.Or(Compare(use(b), use(a)), cmp.Compare(a.name(), b.name()))
	})
	return out
}

// Compare compares two ids of messages, each a number, which may have a fraction of fixed length.
func Compare(a, b string) int {
	as, an, _ := strings.Cut(a, ".")
	bs, bn, _ := strings.Cut(b, ".")
	return cmp.Or(cmp.Compare(len(as), len(bs)), cmp.Compare(as, bs), cmp.Compare(an, bn))
}
