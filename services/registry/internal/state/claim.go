package state

import (
	"encoding/json"

	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/store"
)

// Claim is a turn that runs under a lease, with what FinishTurn needs.
type Claim struct {
	Source       string
	Tuple        route.Tuple
	ReplyContext json.RawMessage
	Session      *store.Session // nil: the conversation has none
	Command      bool           // the turn answers a chat command
	Footer       string         // how much its reply says of its usage; empty: nothing
	Restored     bool           // read again, since it was not noted here: Footer is not set

	used  map[string]store.Usage // by the key of the step that used it
	model string                 // that answered last
}

// Use counts what the steps of a claim have used; a step that is recorded again counts once. A turn that was not
// claimed here counts nothing.
func (a *Agent) Use(thread, key string, steps []store.Step) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c, ok := a.claims[thread][key]
	if !ok {
		return
	}
	for _, s := range steps {
		if s.Usage == (store.Usage{}) {
			continue
		}
		if c.used == nil {
			c.used = map[string]store.Usage{}
			a.claims[thread][key] = c
		}
		c.used[s.Key] = s.Usage
		if s.Kind == store.StepModel && s.Name != c.model {
			c.model = s.Name
			a.claims[thread][key] = c
		}
	}
}

// Used is what the steps of a claim have used, and the model that answered last; false: the turn was not claimed here.
func (a *Agent) Used(thread, key string) (sum store.Usage, model string, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c, ok := a.claims[thread][key]
	for _, u := range c.used {
		sum.Add(u)
	}
	return sum, c.model, ok
}

// maxRead is how many events of batches are cached at once.
const maxRead = 256

// CacheEvent caches an inbox event that a batch returns, so that its claim need not read
// it again.
func (a *Agent) CacheEvent(p store.Pending) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.read == nil || len(a.read) >= maxRead {
		a.read = map[string]store.Pending{}
	}
	a.read[p.Key] = p
}

// TakeEvent removes an event from the cache and returns it.
func (a *Agent) TakeEvent(id int64, key string) (store.Pending, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, ok := a.read[key]
	delete(a.read, key)
	return p, ok && p.Event.ID == id
}

// maxClaims is more than one holder ever has at once.
const maxClaims = 4096

// Claimed returns a claim that was noted here.
func (a *Agent) Claimed(thread, key string) (Claim, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c, ok := a.claims[thread][key]
	return c, ok
}

// Claim notes a turn; Unclaim that it ended.
func (a *Agent) Claim(thread, key string, c Claim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	// Among several registries a claim may end at another one, and is then left here.
	if a.claims == nil || len(a.claims) >= maxClaims || len(a.claims[thread]) >= maxClaims {
		a.claims = map[string]map[string]Claim{}
	}
	if a.claims[thread] == nil {
		a.claims[thread] = map[string]Claim{}
	}
	a.claims[thread][key] = c
}

// NoteSession notes that the session of a conversation was changed while turns of it may run.
func (a *Agent) NoteSession(thread string, s store.Session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, c := range a.claims[thread] {
		c.Session = &s
		a.claims[thread][key] = c
	}
}

// Unclaim notes that a turn ended.
func (a *Agent) Unclaim(thread, key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.claims[thread], key)
	if len(a.claims[thread]) == 0 {
		delete(a.claims, thread)
	}
}

// Working reports whether a turn that was claimed here, or a process that was recorded here, has
// not ended.
func (a *Agent) Working() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.claims) > 0 || a.processes
}

// NoteProcesses notes whether a process runs in the background. What died with its runner is
// noted until the next one ends: its lease then ends at its time.
func (a *Agent) NoteProcesses(run bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.processes = run
}

// TakeClaims removes the turns that have not ended and returns their keys by thread.
func (a *Agent) TakeClaims() map[string][]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[string][]string{}
	for t, keys := range a.claims {
		for k := range keys {
			out[t] = append(out[t], k)
		}
	}
	a.claims = nil
	return out
}

// MemorySettled reports that no digest of the agent's own layer waits for its file, as
// far as this registry knows in this term; one that just started does not know. A
// registry that serves a home alone uses one term.
func (a *Agent) MemorySettled(term uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.memoryTerm == term
}

// SettleMemory notes that for a term; 0 withdraws it.
func (a *Agent) SettleMemory(term uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.memoryTerm = term
}
