package store

import (
	"context"
	"strings"
	"time"

	"github.com/theclaw/agents/internal/thread"
)

// Turns is the journal of what happens to inbox events.
//
//	        Begin            Record (failed try)
//	queued ------> claimed <--------------------> waiting
//	                  |  Finish, or Begin past the crash limit
//	                  v
//	                done (fate)
type Turns interface {
	Begin(ctx context.Context, r Ref, f Fence, b Begin) (Begun, error)
	Record(ctx context.Context, r Ref, f Fence, rec Record) (errorAttempts int, err error)
	// Steer adds members to a running turn and returns the step that holds them.
	Steer(ctx context.Context, r Ref, f Fence, s Steer) (Step, error)
	Finish(ctx context.Context, r Ref, f Fence, fin Finish) (Finished, error)
	// ResetCrashes forgets the claims of turns that were given back cleanly.
	ResetCrashes(ctx context.Context, r Ref, keys []string) error
	// Turn answers the account of an inbox event.
	Turn(ctx context.Context, agent string, q TurnQuery) (Turn, error)
	ListTurns(ctx context.Context, agent string, q ListTurns) ([]Turn, error)
	// SumUsage adds up the journalled answers of a thread, by day, turn and model.
	SumUsage(ctx context.Context, r Ref, q SumUsage) ([]UsageSum, error)
	// LastAnswer answers the newest journalled answer of a model in a turn since a time, with its turn; none: the zero
	// value.
	LastAnswer(ctx context.Context, r Ref, since time.Time) (UsageSum, error)
	// ResolveTurn marks a dead turn as retried or dropped and answers its event.
	ResolveTurn(ctx context.Context, agent string, inboxID int64, how string) (thread.Event, string, error)
	// Claimed reports whether thread r has a turn under key.
	Claimed(ctx context.Context, r Ref, key string) (bool, error)
	// SayID answers the event of thread r with the key of a Say; 0: there is none. ErrNotFound.
	SayID(ctx context.Context, r Ref, key string) (eventID int64, err error)
}

// Begin claims an event.
type Begin struct {
	Event        thread.Event // as in the inbox
	Key          string
	Tuple        string // stored in a new thread
	Opening      string // content of the record/decision event that follows the first event of a thread; empty: none
	ReplyContext string
	Alone        bool
	Tail         int      // message events of context to answer, of the epoch
	Turns        int      // of these from so many messages of people before Event on; 0: any number
	Subscribe    bool     // upsert the outbound subscription
	Handler      string   // its handler command
	Layers       []string // memory layers whose marks to answer
	Files        []string // files of the agent to answer with a claim, by an engine that keeps them
	// IfStarted: ErrStopped unless the agent shall work, so that no claim commits
	// after a stop was answered. An engine that only one registry uses leaves it to
	// that.
	IfStarted bool
	// Members follow the event in the same thread and are to be answered with it;
	// they count at the first claim only, and the step [StepCollect] holds them.
	Members []Member
	// GivenBack is how the claim before ended, when the caller had it under the same lease
	// and lives: an attempt, and no crash. nil: it had none.
	GivenBack *FailedTry
	// Session: which epoch the event belongs to is decided before it is recorded, once. nil:
	// the conversation has no session.
	Session *BeginSession
}

// Member is an event that the turn of another event, its leader, answers too.
//
//	alone --Begin, Steer--> member --Finish of the leader--> done (merged)
//	                          |
//	                          +--the leader dies or is aborted--> alone, permanently
type Member struct {
	Event thread.Event // as in the inbox
	Key   string
}

// Steer adds members before the next model call of a running turn.
type Steer struct {
	Key     string // of the turn
	Step    string // key of the step that will hold them
	Seq     int
	Members []Member
}

// MemberMessages is the result of a steer step, as JSON: the members that it added.
type MemberMessages struct {
	Messages []MemberMessage `json:"messages"`
}

// MemberMessage is one member with its content.
type MemberMessage struct {
	Key       string `json:"key"`
	InboxID   int64  `json:"inbox_id"`
	EventID   int64  `json:"event_id"` // in the conversation thread
	CreatedAt string `json:"created_at"`
	Source    string `json:"source"`
	Content   string `json:"content"`
}

// BeginOutcome reports what became of a claim.
type BeginOutcome int

// Outcomes of Begin.
const (
	BeginGo BeginOutcome = iota + 1
	BeginFinished
	BeginAlone
	BeginWait
	BeginExhausted
)

// Begun is the answer to a claim.
type Begun struct {
	Outcome       BeginOutcome
	Wait          time.Duration
	Waited        time.Duration
	Inbound       thread.Event
	Steps         []Step
	Tail          []thread.Event
	CrashAttempts int
	ErrorAttempts int
	Error         string            // of the last attempt that failed
	Memory        []MemoryMark      // of Begin.Layers, in their order
	Files         map[string][]byte // those of Begin.Files that are there; nil: the engine keeps none
	Finished      Finished          // for BeginFinished and BeginExhausted
	Session       *Session          // nil: the conversation has none
}

// StepState and kinds as stored.
const (
	StepIntent  = "intent"
	StepDone    = "done"
	StepInDoubt = "in_doubt"

	StepModel = "model"
	StepTool  = "tool"
	// StepSteer is the kind of a step that holds members; its key is steer:i.
	StepSteer = "steer"
	// StepCollect is the key of the steer step that a claim writes.
	StepCollect = "steer:1"

	StepCompaction = "compaction"
	// StepBlock is the kind of a part of an answer that was sent before the answer was complete; its
	// key is block:i:n.
	StepBlock = "block"
	// StepTranscript is the kind of the text of what was said in a file of a message; its key is transcribe:i. Its class
	// is empty where a provider made it, which is counted as an answer.
	StepTranscript = "transcript"

	ClassRead       = "read"
	ClassIdempotent = "idempotent"
	ClassEffect     = "effect"
)

// Usage counts tokens: CachedInput and CacheWrite are parts of Input, Reasoning
// is one of Output.
type Usage struct{ Input, Output, CachedInput, Reasoning, CacheWrite int64 }

// Add adds what another answer has cost.
func (u *Usage) Add(o Usage) {
	u.Input += o.Input
	u.Output += o.Output
	u.CachedInput += o.CachedInput
	u.Reasoning += o.Reasoning
	u.CacheWrite += o.CacheWrite
}

// SumUsage chooses model answers of a thread and how they are put together;
// those of different models are always apart.
type SumUsage struct {
	Since        time.Time // zero: from the beginning
	ByDay, ByRun bool
	Turns        []string // keys; nil: all turns
}

// UsageSum is what some answers have cost together.
type UsageSum struct {
	Model   string // as journalled: provider/model
	Day     string // 2006-01-02 in UTC; empty unless asked for
	Turn    string // key; empty unless asked for
	Answers int64
	Usage   Usage
}

// Step is a row of the journal.
type Step struct {
	Seq           int
	Kind, Key     string
	RequestSHA256 []byte
	Class, State  string
	Name, CallID  string
	Arguments     string
	Result        []byte
	Usage         Usage
	Duration      time.Duration
	RecordedAt    time.Time
	Asks          bool   // a person is asked before the tool begins
	Summary       string // of a tool's call, in one line
	IsError       bool   // its result says why nothing was done
	External      bool   // its result holds what neither the owner nor this runtime wrote
}

// Record journals progress of a turn.
type Record struct {
	Key   string
	Steps []Step
	// Records holds the content of the record event of each step that has one, by step key:
	// record/toolcall of a tool that is done or in doubt, record/transcript of a transcript.
	Records map[string]string
	Failed  *FailedTry
	// Says are messages to the peer before the turn has ended: each is appended,
	// with its delivery, once and together with its step. Deliver, Console and
	// BootID are as in Finish.
	Says             []Say
	Deliver, Console bool
	BootID           string
	// Waits means that a call begins to wait for a person. That is progress: what ended the
	// claims before is not the message, and the next claim comes to the same wait.
	Waits bool
	// InboxID is the turn's inbox event: an engine that has the inbox in the same database
	// settles it in the same transaction (Finished.Settled). 0: it must not.
	InboxID int64
}

// Say is a message to the peer that a step of a turn makes.
type Say struct {
	Step    string // key of the step
	Content string // of the message event
	Action  bool   // it changes an earlier message, or goes to another conversation
}

// Key is the dedupe key of the event, given that of the turn.
func (s Say) Key(turn string) string { return SayKey(turn + ":" + s.Step) }

// SayKey is the dedupe key of what a step has said, given the key of its turn, a colon and its own.
func SayKey(step string) string { return step + ":say" }

// FailedTry is an attempt that ended without an answer.
type FailedTry struct {
	Class   string // in words; empty: Error says it all
	Error   string
	Wait    time.Duration
	Counted bool
	Tries   int  // it stands for; 0: one
	Held    bool // no call was made: it is no attempt
	// N is its number among those that were counted, from 1; 0: not known. One that the journal has is not counted again.
	N int
}

// Attempt is a FailedTry as the account of its event shows it.
type Attempt struct {
	N            int // from 1; those that are missing are not kept
	At           time.Time
	Class, Error string
	Counted      bool
	Wait         time.Duration
}

// ClassCrash is the class of an attempt whose process ended silently.
const ClassCrash = "crash"

// Failure is an error with its class in front of it, once.
func Failure(class, err string) string {
	if class == "" || strings.HasPrefix(err, class) {
		return err
	}
	return class + ": " + err
}

// Exhausted is the error of a turn whose claims all ended with their process; last is the
// last error known before, empty for none.
func Exhausted(last string) string {
	const why = "the process died each time this message was worked on"
	if last == "" {
		return why
	}
	return why + "; the last error before: " + last
}

// Finish gives a turn its fate.
type Finish struct {
	Key      string
	Fate     Fate
	Reply    string // content of the reply event (replied)
	Command  bool   // the reply answers a chat command: its event is of that subtype
	Apology  string // content of the apology event (dead); empty: none
	Error    string // one line (dead, aborted)
	Record   string // content of the record/error event (dead)
	Decision string // content of the record/decision event of a fate that says nothing (silent, aborted); empty: none
	Steps    []Step
	Records  map[string]string
	// Deliver reports whether replies of this thread have a channel; Console that
	// the channel is a client that watches, so that nothing is left to send.
	Deliver, Console bool
	BootID           string
	// InboxID is the turn's inbox event: an engine that has the inbox in the same database
	// settles it in the same transaction (Finished.Settled). 0: it must not.
	InboxID int64
	// Failed is the attempt that ends the turn, when no record has it; nil: none.
	Failed *FailedTry
}

// Finished is the fate that stands.
type Finished struct {
	Fate         Fate
	ReplyID      int64
	OutboxHead   int64 // newest event that waits for delivery; 0: none
	Already      bool
	InboundID    int64
	ErrorEventID int64
	Error        string         // with which it ended (dead, aborted)
	Merged       []MergedMember // members that were answered with it
	Settled      bool           // the inbox has it all, as after Settle; Acked is its ack
	Acked        int64
}

// MergedMember names a member that the turn of its leader has answered.
type MergedMember struct {
	InboxID int64
	Key     string
}

// Turn is the account of one inbox event.
type Turn struct {
	Agent         string
	InboxID       int64
	Key, Thread   string
	State         string // queued, claimed, waiting, done
	Fate          Fate
	Settled       bool // the inbox has the fate: with the turn done and this not yet, it follows
	Source        string
	CrashAttempts int
	ErrorAttempts int
	Error         string
	InboundID     int64
	ReplyID       int64
	ErrorEventID  int64
	QueuedAt      time.Time
	ClaimedAt     time.Time
	FinishedAt    time.Time
	NextAt        time.Time
	Usage         Usage
	Resolved      string
	Leader        string // key of the turn that answers it too
	Origin        *Origin
	Attempts      []Attempt
	Steps         []Step
	Delivery      *Delivery
}

// States of a turn as stored.
const (
	TurnQueued  = "queued"
	TurnClaimed = "claimed"
	TurnWaiting = "waiting"
	TurnDone    = "done"
)

// TurnQuery names an inbox event by its id; Key, when set, must be its key.
// Route finds the thread of an event that has no fate yet, and no origin.
type TurnQuery struct {
	InboxID int64
	Key     string
	Route   func(e thread.Event, mode string) (string, error)
}

// ListTurns selects turns, newest inbox event first.
type ListTurns struct {
	Fate       Fate
	Before     int64 // inbox ids below it; 0: from the head
	Limit      int
	Unresolved bool
}
