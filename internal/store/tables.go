package store

import (
	"context"
	"errors"
	"time"

	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/lease/authority"
)

// What several registries that share a database keep in it beside the threads. Its engine
// is package postgres.

// Errors of AgentRows; an agent that is not there is ErrNotFound, a file with another
// version than the expected one ErrMoved.
var (
	ErrAgentExists = errors.New("agent exists")
	ErrNoFile      = errors.New("agent has no such file")
)

// AgentRow is an agent in a list.
type AgentRow struct {
	ID      string
	Started bool
	Config  []byte // config.yaml
	Version string // of it
}

// AgentRows keeps agents and their files.
type AgentRows interface {
	// Create makes an agent with its files; ErrAgentExists.
	Create(ctx context.Context, id string, files map[string][]byte) error
	// Remove forgets an agent with all its rows but the tokens of its leases.
	Remove(ctx context.Context, id string) error
	// Has answers nil, or ErrNotFound.
	Has(ctx context.Context, id string) error
	// List answers the agents after one, at most limit, in order.
	List(ctx context.Context, after string, limit int) ([]AgentRow, error)
	// Threads answers the conversation threads of an agent after one, at most limit, in
	// order.
	Threads(ctx context.Context, id, after string, limit int) ([]string, error)

	// Read answers a file and its version; ErrNoFile.
	Read(ctx context.Context, id, name string) (data []byte, version string, err error)
	// Names answers the names of the files below a prefix, in order.
	Names(ctx context.Context, id, prefix string) ([]string, error)
	// Version answers the version of a file; "" when it is not there.
	Version(ctx context.Context, id, name string) (string, error)
	// Write replaces a file that has the version expect, "" any, agentdir.NoFile none.
	Write(ctx context.Context, id, name string, data []byte, expect string) (version string, err error)
	// ReadAll answers those of several files that are there.
	ReadAll(ctx context.Context, id string, names []string) (map[string][]byte, error)
	// Firsts answers one file of the first agents that have it, by agent.
	Firsts(ctx context.Context, name string, limit int) (map[string][]byte, error)
}

// DueQuery is what a worker wants: agents with work, under leases of its own.
type DueQuery struct {
	Deliver         bool // replies to send; else messages to work on
	Holder, Address string
	// RequestID names the question over its repeats: what it was granted is answered
	// again, as long as it lives.
	RequestID string
	TTL       time.Duration
	MaxNew    int // new leases at most
	// All is to look at all agents; else at Mine, whose leases the worker has, and at
	// Free, which it may have or get.
	All        bool
	Mine, Free []string
}

// DueAgent is an agent with work that the worker has the lease of.
type DueAgent struct {
	Lease   lease.Record
	Agent   string
	Head    int64    // of the inbox
	Threads []string // with replies to send
	Fresh   bool     // granted by this question, or by the same before
	Since   time.Time
}

// Leases judges who may act now, and finds who has work.
type Leases interface {
	authority.Authority
	// Find answers what there is to do for a worker: of agents whose lease it has, what it
	// was not notified of, and new leases up to MaxNew. Waiting is how many more it could have.
	Find(ctx context.Context, q DueQuery) (found []DueAgent, waiting int, err error)
	// Reopen makes a thread of an agent due again: something is to be sent in it of which
	// the inbox does not know yet.
	Reopen(ctx context.Context, agent, threadID string) error
}

// Counts keeps questions, and what agents and their peers have used.
type Counts interface {
	Approvals
	Questions
	Pins
	Channels
	Revisions
	HomeFiles
	// Count, Used and Pace are those of the registry's quota.
	Count(ctx context.Context, day, agent, peer string, decide func(all, one Used) (Used, error)) error
	Used(ctx context.Context, day, agent string) (Used, error)
	Pace(ctx context.Context, from, to string, step, most time.Duration) (over time.Duration, err error)
}

// HomeFiles keeps what a single machine has in the home's own settings, for registries that
// share a database.
type HomeFiles interface {
	// HomeFile answers a file and its version; nil and "" when there is none.
	HomeFile(ctx context.Context, name string) (data []byte, version string, err error)
	// PutHomeFile replaces a file that has the version was, and answers the new one;
	// ErrMoved when it has another.
	PutHomeFile(ctx context.Context, name string, data []byte, was string) (version string, err error)
}

// LogLine is what is said of an agent.
type LogLine struct {
	At    time.Time
	Level string
	Text  string
}

// LogLines keeps the newest lines about each agent.
type LogLines interface {
	// Say keeps lines, soon. It never waits; Flush does.
	Say(agent string, lines ...LogLine)
	Flush()
	// Read answers the newest lines, at most limit, in their order.
	Read(ctx context.Context, agent string, limit int) ([]LogLine, error)
}

// NoticeKind is what changed.
type NoticeKind byte

// The kinds, with what the name is. 'p' is of builds that moved agents between databases.
const (
	NoticeInbox     NoticeKind = 'i' // agent: its inbox has new events
	NoticeHeld      NoticeKind = 'h' // agent and holder, a blank between: the same while the holder has its lease
	NoticeDelivered NoticeKind = 'H' // agent and holder: the same, and the holder was notified already, as it looks
	NoticeRead      NoticeKind = 'r' // agent: the same, and its holder reads it already
	NoticeThread    NoticeKind = 't' // agent/thread: the same of another thread
	NoticeWork      NoticeKind = 'w' // agent: it may be free, or shall work
	NoticeReplies   NoticeKind = 'o' // agent: it has replies to send
	NoticeFate      NoticeKind = 'f' // agent: an event or a delivery finished
	NoticeSettings  NoticeKind = 's' // agent: a file of it was changed
	NoticeApprovals NoticeKind = 'a' // id of an approval or question that was asked or answered; none: any
	NoticePairings  NoticeKind = 'P' // none: people were approved or are so no longer, or were notified of it
	NoticeLapse     NoticeKind = 'l' // holder: a lease of it ran out
	NoticeAbort     NoticeKind = 'x' // agent, run and token, blanks between: who has that lease shall end the run
)

// Notice is one thing that changed.
type Notice struct {
	Kind NoticeKind
	Name string
}

// Notices carries what changed between registries. It promises nothing about delivery.
type Notices interface {
	// Publish notifies the others soon. It does not wait.
	Publish(n ...Notice)
	// Run carries until ctx ends.
	Run(ctx context.Context)
}
