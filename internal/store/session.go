package store

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"
)

// Errors about sessions and the bindings they were resolved with.
var (
	ErrNoSession = errors.New("conversation has no session")
	// ErrRevision reports that the bindings changed since a push was resolved.
	ErrRevision = errors.New("bindings changed meanwhile")
)

// Origin is what was decided about a message when it was pushed: its conversation, and what
// the registry alone knows of it. It is stored in the transaction of the push, and no
// later change of bindings or scopes moves the message. A message without one is routed by
// its source and routing.default.
type Origin struct {
	Thread string // of the conversation, as Key gives it
	Key    string // session key
	// Account is the entry of the settings that received it, ProviderID the id that its platform
	// gave it; empty: it came from none.
	Account, ProviderID string
	Rev                 int64  // of the bindings it was resolved with; 0: of none
	Command             string // a chat command, as JSON; empty: a message
	SentAt              time.Time
	Cause               string // what made it, when the registry itself did; empty: a caller
}

// Reasons for which an epoch begins.
const (
	EpochNew     = "new"
	EpochReset   = "reset"
	EpochDaily   = "daily"
	EpochIdle    = "idle"
	EpochArchive = "archive"
)

// Session is what a conversation keeps next to its events: its key, which part of it the model
// sees, and what people set for it.
type Session struct {
	Key   string
	Epoch string // a ULID; it is the session id
	// EpochFrom is the event that begins the epoch: the model sees what is behind it.
	EpochFrom int64
	StartedAt time.Time // of the epoch
	// Pending is the reason with which the next message begins an epoch, and PendingBy who
	// asked for it; empty: it is not asked for.
	Pending, PendingBy string

	// What people set; empty: as the settings say.
	Model, Thinking, Verbose, Reasoning, QueueMode, UsageFooter, Elevated string

	Title    string
	Archived bool
}

// Folded is the alias by which the key is found in another case, as sessionkey.Key has it.
func (s Session) Folded() string { return strings.ToLower(s.Key) }

// BeginSession is what a claim must know of the session of its conversation.
type BeginSession struct {
	Key string // for a conversation that has none
	// A new epoch begins before the message when the last event that is no context is from
	// before Before (daily), or Idle or longer ago (idle); zero: never.
	Before time.Time
	Idle   time.Duration
	// Reason with which the event itself begins an epoch, and who wants it; empty: it does not.
	Reason, By string
	// Patch is what the event itself changes, with its record.
	Patch SessionPatch
}

// SessionPatch changes a session; what is nil stays.
type SessionPatch struct {
	Key                                                                          string // for a conversation that has none
	Model, Thinking, Verbose, Reasoning, QueueMode, UsageFooter, Elevated, Title *string
	Archived                                                                     *bool
	Pending                                                                      *string
	By                                                                           string // with Pending
}

// Apply returns s with the changes of p.
func (p SessionPatch) Apply(s Session) Session {
	for _, f := range []struct{ to, from *string }{
		{&s.Model, p.Model},
		{&s.Thinking, p.Thinking},
		{&s.Verbose, p.Verbose},
		{&s.Reasoning, p.Reasoning},
		{&s.QueueMode, p.QueueMode},
		{&s.UsageFooter, p.UsageFooter},
		{&s.Elevated, p.Elevated},
		{&s.Title, p.Title},
		{&s.Pending, p.Pending},
	} {
		if f.from != nil {
			*f.to = *f.from
		}
	}
	if p.Pending != nil {
		s.PendingBy = p.By
	}
	if p.Archived != nil {
		s.Archived = *p.Archived
	}
	return s
}

// SessionEntry is a session in a list.
type SessionEntry struct {
	Thread, Key, Epoch, Title string
	LastAt                    time.Time // of the last event
	Messages                  int64     // that have a fate
	Archived                  bool
}

// ListSessions selects sessions, the last active first.
type ListSessions struct {
	// Before and BeforeThread are of the last entry of the page before; zero: the first page.
	Before       time.Time
	BeforeThread string
	Limit        int
	Since        time.Time // active since
	Folded       string    // the key in lower case; empty: any
	Archived     bool      // archived ones too
}

// Sessions keeps what belongs to conversations next to their events.
type Sessions interface {
	// Session answers that of a conversation; ErrNoSession, ErrNotFound.
	Session(ctx context.Context, r Ref) (Session, error)
	// PatchSession changes a session, or makes one in a conversation that has none, and
	// answers it; ErrNotFound.
	PatchSession(ctx context.Context, r Ref, p SessionPatch) (Session, error)
	// NoteSession keeps a session in the list of its agent, where that is another database than the
	// conversation's: after PatchSession, and when fsck rebuilds the list.
	NoteSession(ctx context.Context, r Ref, s Session) error
	// ListSessions answers sessions of an agent.
	ListSessions(ctx context.Context, agent string, q ListSessions) ([]SessionEntry, error)
}

// Revision is a state of the bindings of a home.
type Revision struct {
	Rev  int64
	At   time.Time
	Body []byte // as package routing of the registry writes it
}

// NextRevision decides what PutRevision stores: the newest state itself when it has the body, else
// the next one, which is to be added. newest is the newest state, if there is one; ErrMoved when the
// caller does not know it.
func NextRevision(newest []Revision, was int64, body []byte, now time.Time) (next Revision, add bool, err error) {
	next = Revision{Rev: 1, At: FromMillis(now.UnixMilli()), Body: append([]byte{}, body...)}
	if len(newest) > 0 {
		if bytes.Equal(newest[0].Body, body) {
			return newest[0], false, nil
		}
		next.Rev = newest[0].Rev + 1
	}
	if was != next.Rev-1 {
		return Revision{}, false, ErrMoved
	}
	return next, true, nil
}

// Revisions keeps the states of the bindings, so that a message that is delivered again after a
// change is found where an earlier state sent it.
type Revisions interface {
	// PutRevision adds a state, unless the newest has the same body, and answers the
	// newest; it is on disk. was is the newest that the caller knows: ErrMoved when there is another.
	// States beyond the keep newest go.
	PutRevision(ctx context.Context, was int64, body []byte, keep int) (Revision, error)
	// Revisions answers the newest, at most limit, the newest first.
	Revisions(ctx context.Context, limit int) ([]Revision, error)
}
