package machine

import (
	"time"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
)

// MaxAhead is how many open events beyond the ack may have been begun.
const MaxAhead = 1024

// Inbox is an inbox as a transition finds and leaves it.
type Inbox struct {
	UUID    string
	Head    int64 // greatest event id
	Acked   int64 // every event up to here has a fate
	Now     time.Time
	Stopped bool // its agent shall not work; an engine may leave that to the caller

	Routes []Route        // by rising From
	Open   []thread.Event // events after OpenBatch.After without a fate, as many as were asked for
	More   bool           // there are open events behind them
	// Origins are those of the events in Open that have one, by id.
	Origins map[int64]*store.Origin
	// FirstOpen is the first event after Acked without a fate, those in Fates left out;
	// 0: none. Advance reads it.
	FirstOpen int64
	// Running: a process in the background is not over. Advance reads it.
	Running bool

	// Fates are to be stored; the first fate of an event stands.
	Fates []Fate
	// Changed, when set, is a route to store in place of all those from its From on.
	Changed *Route
	// OutboxHead of OutboxThread is to be stored, unless a greater one is; 0: none.
	OutboxHead   int64
	OutboxThread string
	// AckMoved reports that Acked must be stored.
	AckMoved bool
}

// Route is the routing mode of the events from an id on.
type Route struct {
	From int64
	Mode string
}

// Fate is a row of the fates of inbox events.
type Fate struct {
	InboxID     int64
	Key, Thread string
	Fate        store.Fate
	Error       string // one line, of a dead event
	At          int64  // milliseconds since 1970
}

// ModeAt is the routing mode of an event: the newest that holds for its id.
func (in *Inbox) ModeAt(id int64) string {
	mode := ""
	for _, r := range in.Routes {
		if r.From <= id {
			mode = r.Mode
		}
	}
	return mode
}

func (in *Inbox) fate(id int64, key, thread string, fate store.Fate, why string) {
	if fate != store.FateDead {
		why = ""
	}
	in.Fates = append(in.Fates, Fate{id, key, thread, fate, why, in.Now.UnixMilli()})
}

// Settled are the ids of the events in Fates, which Inbox.FirstOpen leaves out.
func (in *Inbox) Settled() []int64 {
	ids := make([]int64, len(in.Fates))
	for i, f := range in.Fates {
		ids[i] = f.InboxID
	}
	return ids
}

// Begun is the event after the last one that was begun while Mode was the newest mode;
// 0: none was.
type Begun struct {
	Mode string
	From int64
}

// Open answers the events that have no fate, with their threads; events that can have no
// turn get their fate here, and the engine then loads FirstOpen and calls Advance.
//
// A changed routing mode holds from the first event that no earlier mode has begun, so
// that a crash between two modes never moves an event to another thread. When that event
// must be known and is not, nothing is decided and ask is the mode to find it for.
func Open(in *Inbox, o store.OpenBatch, begun *Begun) (b store.Batch, ask string) {
	b = store.Batch{Head: in.Head, Scanned: max(in.Head, o.After), More: in.More, Acked: in.Acked}
	if o.IfStarted && in.Stopped {
		b.Scanned, b.More = o.After, false // what waits now is read after the start
		return b, ""
	}
	newest := ""
	if n := len(in.Routes); n > 0 {
		newest = in.Routes[n-1].Mode
	}
	switch {
	case len(in.Routes) == 0:
		in.change(Route{1, o.Mode})
	case newest == o.Mode:
	case begun == nil || begun.Mode != newest:
		return b, newest
	default:
		in.change(Route{max(begun.From, in.Acked+1), o.Mode})
	}
	for _, e := range in.Open {
		if in.More {
			b.Scanned = e.ID
		}
		key := e.Key(in.UUID)
		if origin := in.Origins[e.ID]; e.Type != thread.TypeMessage {
			in.fate(e.ID, key, "", store.FateNotAMessage, "")
		} else if origin != nil {
			b.Events = append(b.Events, store.Pending{Event: e, Key: key, Thread: origin.Thread, Origin: origin})
		} else if id, problem := o.Route(e, in.ModeAt(e.ID)); problem != nil {
			in.fate(e.ID, key, "", store.FateDead, problem.Error())
		} else {
			b.Events = append(b.Events, store.Pending{Event: e, Key: key, Thread: id})
		}
	}
	b.Settled = len(in.Fates)
	return b, ""
}

// Caught reports whether a batch that found no event may move the ack: what held it back is over.
func (in *Inbox) Caught(o store.OpenBatch) bool {
	return o.After == 0 && len(in.Open) == 0 && in.Acked < in.Head && !in.Running
}

func (in *Inbox) change(r Route) {
	var kept []Route
	for _, old := range in.Routes {
		if old.From < r.From {
			kept = append(kept, old)
		}
	}
	in.Routes, in.Changed = append(kept, r), &r
}

// Settle gives an inbox event, and those that were answered with it, their fates (T8).
// The engine then loads FirstOpen and calls Advance.
func Settle(in *Inbox, s store.Settlement) {
	in.fate(s.InboxID, s.Key, s.Thread, s.Fate, s.Error)
	for _, m := range s.Merged {
		in.fate(m.InboxID, m.Key, s.Thread, store.FateMerged, "")
	}
	in.OutboxHead, in.OutboxThread = s.OutboxHead, s.Thread
}

// Advance moves the ack to the end of the contiguous prefix of events with a fate: before
// the first open event, or to the head when there is none. It never moves back.
//
// While a process runs, the newest event stays behind the ack: should its runner die, the agent
// has work for another one, which then gives the process up.
func Advance(in *Inbox) (acked int64) {
	to := in.Head
	if in.Running {
		to--
	}
	if in.FirstOpen > 0 {
		to = in.FirstOpen - 1
	}
	if to > in.Acked {
		in.Acked, in.AckMoved = to, true
	}
	return in.Acked
}
