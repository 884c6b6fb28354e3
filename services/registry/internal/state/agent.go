package state

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store"
)

// Agent caches what is known of one agent. Its methods are safe for concurrent use.
type Agent struct {
	ID string

	// Life is held shared while an event is claimed and alone while the desired
	// state changes, so that no claim follows the answer to a stop.
	Life sync.RWMutex

	mu        sync.Mutex
	loaded    bool
	started   bool
	head      int64
	acked     int64
	dead      int64
	fences    map[string]uint64
	outbox    map[string]int64            // thread -> newest event to deliver
	claims    map[string]map[string]Claim // by thread and key
	read      map[string]store.Pending    // by key
	lastAt    string                      // when the newest event came, as of the head lastOf
	lastOf    int64
	signature string
	closed    string // the signature of our last close
	problem   string
	degraded  bool
	damaged   map[string]string // what is wrong, by thread
	processes bool              // one runs in the background, as far as it was recorded here

	memoryTerm uint64 // in which the agent's own layer was found to be in its file

	aside    atomic.Int64 // until when its runner leaves it alone, ns since 1970
	follows  atomic.Int32 // batches that wait for what comes to the inbox
	wrote    atomic.Int64 // when we last wrote the inbox, ns
	settings atomic.Pointer[settings]
	inbox    atomic.Pointer[place]
	good     atomic.Pointer[agentdir.Files] // the last good files of the settings
}

// place is the path of the inbox while the settings' files have a signature. It is all
// that is cached of the settings of an idle agent.
type place struct {
	signature, path string
	kept            bool // by the last good settings: the files' are not
}

type settings struct {
	signature string
	agent     *agentdir.Agent
	err       error
}

// NewAgent makes an agent of which nothing is known.
func NewAgent(id string) *Agent { return &Agent{ID: id} }

// Known is a copy of what is known of an agent now.
type Known struct {
	Loaded, Started   bool
	Head, Acked, Dead int64
	Outbound          int // threads with something to deliver
	Problem           string
	Degraded          bool
}

// Known returns a copy.
func (a *Agent) Known() Known {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := Known{a.loaded, a.started, a.head, a.acked, a.dead, len(a.outbox), a.problem, a.degraded}
	for _, t := range slices.Sorted(maps.Keys(a.damaged)) {
		k.Problem, k.Degraded = a.damaged[t], false
	}
	return k
}

// Load sets the state read from the inbox. The desired state only counts
// the first time: from then on it changes here, and a reading that was made
// before a change must not undo it.
func (a *Agent) Load(s store.InboxState, signature string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.loaded {
		a.started = s.Started
	}
	a.loaded, a.dead, a.signature = true, s.Dead, signature
	a.head, a.acked = max(a.head, s.Head), max(a.acked, s.Acked)
	a.lastAt, a.lastOf = s.LastAt, s.Head
	a.problem, a.degraded = "", false
	for r, t := range s.Fences {
		if a.fences == nil {
			a.fences = map[string]uint64{}
		}
		a.fences[r] = max(a.fences[r], t)
	}
	for _, t := range s.Outbox {
		if _, ok := a.outbox[t]; !ok {
			a.putOutbox(t, 0)
		}
	}
}

// SetState sets the state read from a database that others change too: it may be out of
// date, and no decision depends on it.
func (a *Agent) SetState(s store.InboxState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.loaded, a.started, a.head, a.acked, a.dead = true, s.Started, s.Head, s.Acked, s.Dead
	a.outbox = nil
	for _, t := range s.Outbox {
		a.putOutbox(t, 0)
	}
}

// Signature of the inbox files at the last load.
func (a *Agent) Signature() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.signature
}

// SetSignature sets the signature of the inbox files.
func (a *Agent) SetSignature(signature string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.signature = signature
}

// SetStarted changes the desired state.
func (a *Agent) SetStarted(started bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.started = started
}

// Started returns the desired state.
func (a *Agent) Started() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.started
}

// Pushed raises the inbox head and reports whether it was new.
func (a *Agent) Pushed(head int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if head <= a.head {
		return false
	}
	a.head = head
	return true
}

// Acked raises the ack.
func (a *Agent) Acked(id int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.acked = max(a.acked, id)
}

// CountDead changes the number of dead letters.
func (a *Agent) CountDead(delta int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dead = max(a.dead+delta, 0)
}

// HasWork reports whether a started, undamaged agent has events without a fate.
func (a *Agent) HasWork() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.started && a.head > a.acked && len(a.damaged) == 0
}

// Outbox returns the threads with something to deliver.
func (a *Agent) Outbox() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]string, 0, len(a.outbox))
	for t := range a.outbox {
		if _, bad := a.damaged[t]; !bad {
			out = append(out, t)
		}
	}
	slices.Sort(out)
	return out
}

// ToDeliver notes that a thread has something to deliver up to head.
func (a *Agent) ToDeliver(thread string, head int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.putOutbox(thread, head)
}

func (a *Agent) putOutbox(thread string, head int64) {
	if a.outbox == nil {
		a.outbox = map[string]int64{}
	}
	a.outbox[thread] = max(a.outbox[thread], head)
}

// Delivered notes how far a thread is; a thread that is done leaves the outbox.
func (a *Agent) Delivered(thread string, acked int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if head, ok := a.outbox[thread]; ok && acked >= head {
		delete(a.outbox, thread)
	}
}

// SetAside notes that the runner of the agent leaves it alone for so long; 0: it works.
func (a *Agent) SetAside(d time.Duration) {
	if d <= 0 {
		a.aside.Store(0)
		return
	}
	a.aside.Store(time.Now().Add(d).UnixNano())
}

// Aside is how long the agent is left alone; 0: it is not.
func (a *Agent) Aside() time.Duration {
	until := a.aside.Load()
	if until == 0 {
		return 0
	}
	return max(time.Until(time.Unix(0, until)), 0)
}

// Fail sets a problem; an empty text clears it.
func (a *Agent) Fail(problem string, degraded bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.problem, a.degraded = problem, degraded
}

// SetError sets the problem of an agent. An agent that cannot be written is only degraded:
// it continues when it can be written again.
func (a *Agent) SetError(err error) {
	f := fault.From(err)
	if f.Reason == fault.Overloaded { // of the process, for this call
		return
	}
	a.Fail(f.What, f.Reason == fault.ReadOnly || f.Reason == fault.DiskFull)
}

// HasProblem reports whether a problem was noted that may pass; damage does not.
func (a *Agent) HasProblem() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.problem != "" && len(a.damaged) == 0
}

// Fence is the greatest token the inbox was sealed with, as of the last load.
func (a *Agent) Fence(resource string) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.fences[resource]
}

// NoteSeal notes the token an inbox was sealed with.
func (a *Agent) NoteSeal(resource string, token uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fences == nil {
		a.fences = map[string]uint64{}
	}
	a.fences[resource] = max(a.fences[resource], token)
}

// Follow counts batches that wait for what comes to the inbox.
func (a *Agent) Follow(n int32) { a.follows.Add(n) }

// HasFollower reports whether there is such a batch.
func (a *Agent) HasFollower() bool { return a.follows.Load() > 0 }

// NoteWrite notes that this process writes the inbox now.
func (a *Agent) NoteWrite() { a.wrote.Store(time.Now().UnixNano()) }

// WroteWithin reports whether this process wrote the inbox within d.
func (a *Agent) WroteWithin(d time.Duration) bool {
	return time.Since(time.Unix(0, a.wrote.Load())) < d
}

// Settings returns the agent's settings, read again when a file has changed. Files that
// cannot be used leave the last good settings in force: see [agentdir.Agent.Problem].
func (a *Agent) Settings(home *agentdir.Home) (*agentdir.Agent, error) {
	dir, err := home.Agent(a.ID)
	if err != nil {
		return nil, err
	}
	sig := settingsStamp(home, dir)
	if s := a.settings.Load(); s != nil && s.signature == sig {
		return s.agent, s.err
	}
	s := &settings{signature: sig}
	s.agent, s.err = a.readSettings(home)
	a.settings.Store(s)
	return s.agent, s.err
}

// readSettings reads the settings and notes the files of good ones.
func (a *Agent) readSettings(home *agentdir.Home) (*agentdir.Agent, error) {
	var last agentdir.Files
	if p := a.good.Load(); p != nil {
		last = *p
	}
	set, err := home.Keep(a.ID, last)
	if err == nil && set.Problem == nil {
		files := set.Files // and not the settings with them
		a.good.Store(&files)
	}
	return set, err
}

// Inbox returns the directory of the agent's inbox, which a setting may move.
func (a *Agent) Inbox(home *agentdir.Home) (string, error) {
	dir, err := home.Agent(a.ID)
	if err != nil {
		return "", err
	}
	sig := settingsStamp(home, dir)
	if p := a.inbox.Load(); p != nil && p.signature == sig {
		if a.good.Load() == nil { // the last run found them to be good
			if files, err := home.Present(a.ID); err == nil && settingsStamp(home, dir) == sig {
				a.good.Store(&files)
			}
		}
		return p.path, nil
	}
	set, err := a.readSettings(home)
	if err != nil {
		return "", err
	}
	a.inbox.Store(&place{sig, set.Dir.Inbox(), set.Problem != nil})
	return set.Dir.Inbox(), nil
}

// InboxPath returns the cached path of the inbox and the signature of the settings, for the
// next run; neither when the files cannot be used.
func (a *Agent) InboxPath() (signature, path string) {
	if p := a.inbox.Load(); p != nil && !p.kept {
		return p.signature, p.path
	}
	return "", ""
}

// SetInboxPath sets what the last run saved; it is valid while the signature is.
func (a *Agent) SetInboxPath(signature, path string) { a.inbox.Store(&place{signature, path, false}) }

// DropSettings drops the cached settings until the agent next has work; the bytes of the
// last good files stay.
func (a *Agent) DropSettings() { a.settings.Store(nil) }
