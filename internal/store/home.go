package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/theclaw/agents/internal/lease"
)

// What belongs to no thread and is kept all the same: what was asked of people, and
// what was used today. Its engines are sqlite/homedb, for one registry, and
// postgres/home, for several.

// ErrMoved says that somebody else has changed what was to be changed.
var ErrMoved = errors.New("changed by another meanwhile")

// Approval is a question whether something may happen, such as a command, and its answer. Only
// State, Token, Expires, Decision and By change after it was asked.
type Approval struct {
	ID, Agent, Thread, Key       string // ids rise with time
	Command, Cwd, Reason, Digest string
	State                        string // pending, approved, denied, expired, used
	Token                        uint64 // of the lease under which it was used
	Requested, Expires           time.Time

	Kind     string // exec, elevated, network, tool, agent or plan; empty: exec, of an earlier version
	Tool     string
	Summary  string // one line
	Patterns string // JSON of what the decision always adds to the policy; empty: nothing
	External bool   // text from outside takes part in the conversation
	Decision string // once, always or deny; empty: there is no answer
	By       string // who answered
}

// ExecPolicy is the policy of the installation for commands that leave the sandbox, as JSON.
// Version rises by one with each change; 0 is that there is none.
type ExecPolicy struct {
	Version int64
	Body    []byte // at most 1 MiB
}

// ApprovalsKept is how long questions are remembered after their time.
const ApprovalsKept = 7 * 24 * time.Hour

// Approvals keeps questions. What is put is on disk when the call returns.
type Approvals interface {
	// PutApproval adds a question (was is empty) or changes one that is in state was;
	// ErrMoved when it is not, or when its agent and key have one already. A policy that is
	// not nil is put with it: both change, or neither.
	PutApproval(ctx context.Context, a Approval, was string, policy *ExecPolicy) error
	// ExecPolicy returns the policy for commands.
	ExecPolicy(ctx context.Context) (ExecPolicy, error)
	// PutExecPolicy replaces the policy of the version before p.Version; ErrMoved when it
	// has another.
	PutExecPolicy(ctx context.Context, p ExecPolicy) error
	// Approval answers the question with this id, or of this agent and key when the id
	// is empty; false when there is none.
	Approval(ctx context.Context, id, agent, key string) (Approval, bool, error)
	// Approvals answers questions after an id, of one agent or all, in one state or any.
	Approvals(ctx context.Context, after, agent, state string, limit int) ([]Approval, error)
	// ErasePeer forgets what is kept of a peer outside of threads: approvals, questions, and whatever
	// else of the share lies with them. It may be repeated, and refuses as Erase does.
	ErasePeer(ctx context.Context, agent string, s PeerRecords) error
}

// The states of a question.
const (
	QuestionPending  = "pending"
	QuestionAnswered = "answered"
	QuestionExpired  = "expired"
	QuestionCanceled = "canceled"
)

// Question is a question of an agent to the person it talks to, and the answer. Only State,
// Answer, By and Ended change after it was asked.
type Question struct {
	ID, Agent, Thread, Key string // ids rise with time; the key begins with that of the turn
	Text                   string
	Options                []string
	AllowText              bool
	Peer                   string // the source of the turn's message
	After                  int64  // newest event of the inbox when it was asked
	State                  string
	Answer                 string
	By                     string // owner, or the key of the inbox event that was the answer
	Requested, Expires     time.Time
	Ended                  time.Time // zero while it waits
}

// QuestionsKept is how long questions are remembered after their end.
const QuestionsKept = 7 * 24 * time.Hour

// EncodeOptions returns options as a column holds them.
func EncodeOptions(list []string) (string, error) {
	if len(list) == 0 {
		return "[]", nil
	}
	b, err := json.Marshal(list)
	return string(b), err
}

// DecodeOptions reads the column.
func DecodeOptions(column string) (list []string, err error) {
	if err := json.Unmarshal([]byte(column), &list); err != nil {
		return nil, fmt.Errorf("decode options: %w", err)
	}
	if len(list) == 0 {
		return nil, nil
	}
	return list, nil
}

// Questions keeps questions. What is put is on disk when the call returns.
type Questions interface {
	// PutQuestion adds a question (was is empty) or changes one that is in state was;
	// ErrMoved when it is not, or when its agent and key have one already. Old ones are
	// forgotten.
	PutQuestion(ctx context.Context, q Question, was string) error
	// Question returns the question with this id, or of this agent and key when the id is
	// empty; false when there is none.
	Question(ctx context.Context, id, agent, key string) (Question, bool, error)
	// Questions returns questions after an id in the order of their ids, of one agent or
	// all, in one state or any.
	Questions(ctx context.Context, after, agent, state string, limit int) ([]Question, error)
}

// Home is what one registry keeps outside of the threads of its home.
type Home interface {
	lease.Ledger
	Approvals
	Questions
	Pins
	Channels
	Revisions
	// Usage answers what was used in a day. SaveUsage replaces rows of one day, and
	// forgets the days before.
	Usage(ctx context.Context, day string) ([]Used, error)
	SaveUsage(ctx context.Context, rows []Used) error
	// Inboxes answers what the last run knew of inboxes, by agent. SaveInboxes replaces
	// all of it.
	Inboxes(ctx context.Context) (map[string]KnownInbox, error)
	SaveInboxes(ctx context.Context, all []KnownInbox) error
	// Forget removes what is kept of an agent but the tokens of its leases.
	Forget(ctx context.Context, agent string) error
	Close() error
}

// KnownInbox is what was known of an inbox when its files had Signature.
type KnownInbox struct {
	Agent, Signature string
	// Settings is what the settings' files looked like when the inbox was at Path.
	Settings, Path string
	Started        bool
	Head, Acked    int64
	Dead           int64
	LastAt         string // when the newest event came; empty: not known
}

// Used is what an agent, or with a peer that peer's part of it, used in a day.
type Used struct {
	Day, Agent, Peer         string // day is YYYY-MM-DD
	Messages, Tokens, Micros int64  // micros are millionths of a dollar
}
