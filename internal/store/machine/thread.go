package machine

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// Change reports what to do with a row when the transaction commits.
type Change int

// Changes of a row.
const (
	Unchanged Change = iota
	Inserted
	Updated
	Deleted
)

// Turn is a row of the journal of turns. Times are milliseconds since 1970, 0 for none.
type Turn struct {
	Key                          string
	InboxID                      int64
	State                        string // claimed, waiting, done
	Fate                         store.Fate
	CrashAttempts, ErrorAttempts int
	Error                        string
	NotBefore                    int64 // a waiting turn is not claimed earlier
	WaitingSince                 int64 // a provider has been unavailable since
	Leader                       string
	InboundID, ReplyID, ErrorID  int64  // events of the thread
	Token                        uint64 // of the last claim; an engine may leave it out
	FinishedAt                   int64
	ReplyContext                 string // written with a new row, not loaded
	ClaimedAt                    int64  // written with a new row; a transition does not read it
	Attempts                     string // that failed, as JSON: see attempt.go
	Change                       Change
}

// Step is a row of the journal of steps. When only its state was asked for, just Seq,
// Kind, Key, State and RecordedAt are loaded, and Result of a steer step.
type Step struct {
	Turn string
	store.Step
	Change Change
}

// Event is an event to append, and the key that keeps it from being appended again.
type Event struct {
	thread.Event
	Key string
}

// usedKey is a deduplication key with the event committed under it.
type usedKey struct {
	key string
	id  int64
}

// Thread is a conversation thread as a transition finds and leaves it: the rows that
// its Needs named, and no others.
type Thread struct {
	UUID    string
	Head    int64     // greatest event id
	NextID  int64     // id of the next event, greater than Head
	Tuple   string    // whom the thread was made for
	Token   uint64    // fencing token of the caller's lease
	Now     time.Time // of the transaction
	Stopped bool      // its agent shall not work; an engine may leave that to the caller

	Turns      []Turn
	Steps      []Step // in the order of the journal
	Deliveries []Delivery
	used       []usedKey

	Session *store.Session // that of the conversation; nil: it has none
	// LastAt is when the newest event was stored but for those that start no turn (record/context): what others say in a
	// group does not keep an epoch open. Zero: there is none.
	LastAt time.Time

	Acked     int64 // outbound events up to here are sent or given up
	FirstOpen int64 // first event after Acked that is neither; 0: none
	OpenHead  int64 // newest event that waits for delivery; 0: none
	Dead      int64 // unresolved dead letters

	// Appended are the events to store, in this order.
	Appended []Event
	// AckMoved, TupleSet and SessionSet tell that Acked, Tuple and Session must be stored.
	AckMoved, TupleSet, SessionSet bool
}

// Needs names the rows that a transition reads. An engine loads these and, so that the
// cost does not grow with the thread, no others.
type Needs struct {
	Turns    []string // turns by key
	Leader   string   // key of a turn whose members are needed
	Turn     string   // whose steps
	AllSteps bool     // all of them, completely
	Steps    []string // else the states of these
	Steers   bool     // and the steer steps with their results
	Keys     []string // deduplication keys: Thread.Use
	OpenHead bool
	// Session asks for Session and LastAt.
	Session bool
	// FirstOpen asks for Acked and FirstOpen, which leaves the event Except out.
	FirstOpen bool
	Except    int64
	// Delivery asks for the row of one event, if there is one.
	Delivery int64
	// Due asks for so many open events in the order of their ids, each with its row or
	// as Foreign: those after Acked, and rows that were made open again below it.
	Due int
	// Dead asks for the number of dead letters without the event Except.
	Dead bool
	// Runs asks for Delivery.Run too.
	Runs bool
}

// Use enters an event id that was committed under a deduplication key.
func (t *Thread) Use(key string, id int64) { t.used = append(t.used, usedKey{key, id}) }

// Used answers the event committed under a key; 0: none.
func (t *Thread) Used(key string) int64 {
	for _, u := range t.used {
		if u.key == key {
			return u.id
		}
	}
	return 0
}

// turn answers the row under a key; nil: there is none. It is valid until a row is added.
func (t *Thread) turn(key string) *Turn {
	if i := slices.IndexFunc(t.Turns, func(r Turn) bool { return r.Key == key }); i >= 0 {
		return &t.Turns[i]
	}
	return nil
}

func (t *Thread) addTurn(r Turn) {
	r.Change = Inserted
	t.Turns = append(t.Turns, r)
}

func (r *Turn) touch() {
	if r.Change == Unchanged {
		r.Change = Updated
	}
}

// steps are those of a turn.
func (t *Thread) steps(turn string) []store.Step {
	var out []store.Step
	for _, s := range t.Steps {
		if s.Turn == turn && s.Change != Deleted {
			out = append(out, s.Step)
		}
	}
	return out
}

func (t *Thread) step(turn, key string) *Step {
	if i := slices.IndexFunc(t.Steps, func(s Step) bool { return s.Turn == turn && s.Key == key && s.Change != Deleted }); i >= 0 {
		return &t.Steps[i]
	}
	return nil
}

// put journals a step: a new one is inserted, an intent becomes done or in doubt, and
// what is done stays as it is. It reports whether the row changed.
func (t *Thread) put(turn string, s store.Step) bool {
	old := t.step(turn, s.Key)
	if old == nil {
		s.Duration, s.RecordedAt = s.Duration.Truncate(time.Microsecond), store.FromMillis(t.Now.UnixMilli())
		t.Steps = append(t.Steps, Step{Turn: turn, Step: s, Change: Inserted})
		slices.SortStableFunc(t.Steps, func(a, b Step) int {
			return cmp.Or(cmp.Compare(a.Seq, b.Seq), strings.Compare(a.Key, b.Key))
		})
		return true
	}
	if old.State != store.StepIntent || s.State == store.StepIntent {
		return false
	}
	old.State, old.Result, old.Duration, old.RecordedAt = s.State, s.Result, s.Duration, store.FromMillis(t.Now.UnixMilli())
	old.IsError, old.External = s.IsError, s.External
	if old.Change == Unchanged {
		old.Change = Updated
	}
	return true
}

// once appends an event unless its key was used; it answers the id of then or now.
func (t *Thread) once(key string, n store.NewEvent) (id int64, fresh bool) {
	if id := t.Used(key); id != 0 {
		return id, false
	}
	e := thread.Event{ID: t.NextID, CreatedAt: thread.Stamp(t.Now), Source: n.Source, Type: n.Type, Subtype: n.Subtype, Content: n.Content}
	t.Head, t.NextID = e.ID, e.ID+1
	t.Appended = append(t.Appended, Event{e, key})
	t.Use(key, e.ID)
	return e.ID, true
}

// record appends a record event of the agent once.
func (t *Thread) record(key, subtype, content string) int64 {
	id, _ := t.once(key, store.NewEvent{Source: thread.SourceSelf, Type: thread.TypeRecord, Subtype: &subtype, Content: content})
	return id
}

// channelOf says how a message of the agent leaves the thread.
type channelOf struct {
	deliver bool // there is a channel
	console bool // it is a client that watches: nothing is left to send
	bootID  string
	run     string // key of the turn whose reply it is
	subtype string // of the event; empty: none
}

// say appends a message of the agent once, with the delivery that sends it.
func (t *Thread) say(key, content string, c channelOf) int64 {
	e := store.NewEvent{Source: thread.SourceSelf, Type: thread.TypeMessage, Content: content}
	if c.subtype != "" {
		e.Subtype = new(c.subtype)
	}
	id, fresh := t.once(key, e)
	if fresh {
		t.deliver(t.Appended[len(t.Appended)-1].Event, c)
	}
	return id
}
