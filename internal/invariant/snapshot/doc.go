// Package snapshot reads every database of a home for the invariant checker, each in one
// read transaction, into plain values.
//
// It changes nothing: databases are opened read-only, and those of a
// home where nobody works as immutable files, so that no side file appears. A
// database that cannot be read is part of the answer, with its problem as text,
// and does not hide the others. On a home at work an agent's inbox is read
// before its threads, so that what the inbox says is done is done in a thread.
//
// Databases are read by as many at once as there are processors.
//
// It judges nothing and repairs nothing. Contents of events are hashed and
// searched while they pass by, and not kept.
package snapshot

import (
	"slices"
	"strings"
	"time"

	"github.com/theclaw/agents/internal/lease"
)

// Home is everything that was read.
type Home struct {
	Path   string
	Agents []*Agent
	// Leases are the rows of the ledger; LeasesProblem says why there are none.
	Leases        []Lease
	LeasesProblem string
	// Shared: it was read from databases that registries share (package database), each
	// as of one instant; no file is next to them.
	Shared bool
}

// Prompt is what a person was asked for a call: an approval, or a question.
type Prompt struct {
	Kind, ID string // approval or question
	Key      string // of the call: of its turn and its step
	State    string
}

// Agent is one agent of a home.
type Agent struct {
	ID      string
	Prompts []Prompt // read after the journals
	Dir     string
	Inbox   *DB
	Threads []*DB
	// Of shared databases: the settings, nil when there are none, and whether the agent
	// stands among those who have work.
	Config []byte
	Due    bool
}

// All answers the inbox and then the threads.
func (a *Agent) All() []*DB { return append([]*DB{a.Inbox}, a.Threads...) }

// Lease is a row of the ledger. Alive reports whether its holder's process lives. A
// lease that was held before the databases were read, or after, counts as held.
type Lease struct {
	Resource, Holder string
	Token            uint64
	Expires          time.Time
	TTL              time.Duration
	Released, Alive  bool
}

// DB is one events.db.
type DB struct {
	Agent, Thread string
	Dir           string
	// Absent: there is no such file.
	Absent bool
	// Damage is what SQLite says about the file, a line each. Tables that could
	// not be read to their end are Unread.
	Damage []string
	Unread map[string]bool
	// Missing are the tables and indexes of the schema that are not there. Foreign:
	// none of ours is, since only the external tool has had it open.
	Missing []string
	Foreign bool

	UUID, Desired string
	Sequence      int64 // greatest event id ever given
	Events        []Event
	Links         []Link // of the chain, by event id
	End           []byte // what the last link must be, where that is kept apart
	Fates         []Fate
	Dead          map[int64]bool   // x_dead by inbox id
	Acks          map[string]int64 // x_ack by consumer
	Fences        map[string]uint64
	Outbox        map[string]int64 // delivered up to, by thread
	Dedupe        map[string]Dedupe
	Turns         []Turn // by inbox id
	Steps         []Step
	Asked         []Asked    // without the rows of builds that did not mark errors
	Deliveries    []Delivery // by event id
	Origins       []Origin   // of an inbox, by inbox id
	Processes     []Process  // of an inbox, by id
	Media         []Media    // of an inbox, by hash
	Session       *Session   // of a conversation; nil: it has none
	Listed        []Session  // the list of sessions of an inbox, by thread
	Epochs        []Epoch    // that began with an event of the conversation, by event id
	Subscribed    bool       // the inbox consumer stands
	Sightings     []Sighting

	byID map[int64]int
}

// Lacks are the tables and indexes that should be there: ours come with the first
// opening.
func (d *DB) Lacks() []string {
	if !d.Foreign {
		return d.Missing
	}
	return slices.DeleteFunc(slices.Clone(d.Missing), func(m string) bool { return strings.HasPrefix(m, "x_") })
}

// IsInbox reports whether this is an inbox.
func (d *DB) IsInbox() bool { return d.Thread == "inbox" }

// Event answers the event under an id.
func (d *DB) Event(id int64) (Event, bool) {
	i, ok := d.byID[id]
	if !ok {
		return Event{}, false
	}
	return d.Events[i], true
}

// Head is the greatest event id.
func (d *DB) Head() int64 {
	if len(d.Events) == 0 {
		return 0
	}
	return d.Events[len(d.Events)-1].ID
}

// Event is an event without its content.
type Event struct {
	ID                      int64
	CreatedAt, Source, Type string
	Subtype                 *string
	Key                     string   // as an inbox event
	DeliveryKey             string   // as a message of a conversation
	Said                    [32]byte // the same for the same message, whatever its id and time
	Sum                     [32]byte
	Linked                  [32]byte // the hash that its link must have
	NotText                 string   // a column that does not hold text
	Plain                   bool     // valid UTF-8 throughout: its line in events.jsonl holds it exactly
}

// Link is a row of the chain.
type Link struct {
	ID        int64
	Prev, Sum []byte
}

// Under is the lease under which a key was committed; empty: none is needed.
func Under(agent, key string, token uint64) (resource string) {
	switch {
	case token == 0:
		return ""
	case strings.HasPrefix(key, "delivery:"):
		return lease.DeliverResource(agent)
	}
	return lease.AgentResource(agent)
}

// Accepted are the greatest tokens under which something was committed, by resource.
func (d *DB) Accepted() map[string]uint64 {
	most := map[string]uint64{}
	for key, v := range d.Dedupe {
		if r := Under(d.Agent, key, v.Token); r != "" {
			most[r] = max(most[r], v.Token)
		}
	}
	return most
}

// Fate is a row of x_fate.
type Fate struct {
	ID                int64
	Key, Thread, Fate string
}

// Dedupe is what was committed once.
type Dedupe struct {
	EventID int64
	Token   uint64
}

// Turn is a row of x_turn.
type Turn struct {
	Key                         string
	InboxID                     int64
	State, Fate                 string
	InboundID, ReplyID, ErrorID int64
	Claimed                     time.Time
	Leader                      string // key of the turn that answers it too
}

// Step is a row of x_step.
type Step struct {
	Turn, Key, Kind, Class, State string
}

// Asked is a row of x_step of a call that a person is asked for.
type Asked struct {
	Turn, Key, State string
	IsError          bool // nothing was done
}

// Delivery is a row of x_delivery.
type Delivery struct {
	EventID             int64
	Key, State, Channel string
	ProviderID          string
	Resolved            string
	Created             time.Time
}

// Origin is what was decided about an inbox event when it was pushed.
type Origin struct {
	InboxID     int64
	Thread, Key string // the conversation and its session key
	Account     string // that received it; empty: none
}

// Process is a program that a tool call has left in the background.
type Process struct {
	ID, StepKey, State string
	Seen               bool // no event is due at its end
}

// Media are media of an agent.
type Media struct {
	SHA256  string
	Damaged bool // their data are not there, or do not have the hash
}

// Running reports whether it is not over.
func (p Process) Running() bool { return p.State == "starting" || p.State == "running" }

// Session is what a conversation has next to its events, or an entry of the list of an inbox.
type Session struct {
	Thread     string
	Key, Epoch string
	EpochFrom  int64 // 0 in a list, which does not have it
	Title      string
	Archived   bool
}

// Same reports whether an entry of a list says what the session of the conversation says.
func (s Session) Same(entry Session) bool {
	return s.Key == entry.Key && s.Epoch == entry.Epoch && s.Title == entry.Title && s.Archived == entry.Archived
}

// Epoch is the event that begins an epoch, and the id that it gives it; empty: it gives none,
// or was erased.
type Epoch struct {
	EventID int64
	ID      string
	Erased  bool
}

// Sighting is a searched text that was found.
type Sighting struct {
	Text  int // index into Options.Search
	Where string
}
