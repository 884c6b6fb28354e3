// Package state caches what the registry knows of each agent: where its files are, whether
// it is started, how far its inbox is acknowledged, what it has to deliver, and its
// settings.
//
//	          scan                load (first need)
//	(absent) ------> known, empty ------------------> known, loaded
//	    ^                                                 |
//	    +------------- directory gone: forget ------------+
//
// The files and the databases are authoritative; everything here can be read from them
// again. An agent that cannot be read stays listed, with the problem as its text, and does
// not affect the others. The package opens no database: its callers pass in what they have
// read.
package state

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store"
)

// Agents holds the agents of one home.
type Agents struct {
	home *agentdir.Home

	mu     sync.RWMutex
	agents map[string]*Agent
}

// Usage is the USAGE.md of an agent.
type Usage struct{ Agent, Text string }

// Handler is the text of the inbox subscription: what an external dispatcher
// runs when a message arrives.
func Handler(agentID string) string { return "agent run " + agentID }

// New returns the agents of home, empty until Scan.
func New(home *agentdir.Home) *Agents {
	return &Agents{home: home, agents: map[string]*Agent{}}
}

// Scan reads the names of the agents and returns those that are new and those
// that are gone since the last scan.
func (d *Agents) Scan() (fresh, gone []string, err error) {
	ids, err := d.home.IDs()
	if err != nil {
		return nil, nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	seen := make(map[string]bool, len(ids))
	for _, id := range ids {
		seen[id] = true
		if d.agents[id] == nil {
			d.agents[id] = NewAgent(id)
			fresh = append(fresh, id)
		}
	}
	for id := range d.agents {
		if !seen[id] && d.Missing(id) { // it may have been made since the names were read
			delete(d.agents, id)
			gone = append(gone, id)
		}
	}
	return fresh, gone, nil
}

// ScanOne does for one agent what Scan does for all: it reports whether the agent is new or
// gone.
func (d *Agents) ScanOne(id string) (fresh, gone bool) {
	if layout.ValidID(id) != nil {
		return false, false
	}
	info, err := os.Lstat(d.home.AgentDir(id))
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.agents[id] != nil
	fresh = err == nil && info.IsDir() && !known
	gone = errors.Is(err, fs.ErrNotExist) && known
	if fresh {
		d.agents[id] = NewAgent(id)
	} else if gone {
		delete(d.agents, id)
	}
	return fresh, gone
}

// IDs returns the names of all known agents in order.
func (d *Agents) IDs() []string {
	d.mu.RLock()
	defer d.mu.RUnlock()
	ids := make([]string, 0, len(d.agents))
	for id := range d.agents {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Get returns a known agent, and finds one that was made since the last scan.
// Errors: INVALID_ARGUMENT for a name that is none, AGENT_NOT_FOUND.
func (d *Agents) Get(id string) (*Agent, error) {
	d.mu.RLock()
	a := d.agents[id]
	d.mu.RUnlock()
	if a != nil {
		return a, nil
	}
	dir, err := d.home.Agent(id)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(dir.Path); errors.Is(err, fs.ErrNotExist) {
		return nil, d.notFound(id)
	} else if err != nil {
		return nil, agentdir.Fault(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.agents[id] == nil {
		d.agents[id] = NewAgent(id)
	}
	return d.agents[id], nil
}

func (d *Agents) notFound(id string) error {
	dir, err := d.home.Agent(id)
	if err != nil {
		return err
	}
	if err := dir.Check(); err != nil {
		return err
	}
	// It came while we looked.
	return fault.New(codes.NotFound, fault.AgentNotFound, "Agent '"+id+"' not found", "try again")
}

// Forget drops an agent whose directory is gone.
func (d *Agents) Forget(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.agents, id)
}

// Path returns the directory of a thread.
func (d *Agents) Path(r store.Ref) (string, error) {
	dir, err := d.home.Agent(r.Agent)
	if err != nil {
		return "", err
	}
	if !r.IsInbox() {
		return dir.Thread(r.Thread)
	}
	a, err := d.Get(r.Agent)
	if err != nil {
		return "", err
	}
	return a.Inbox(d.home)
}

// Missing reports whether the directory of an agent is gone.
func (d *Agents) Missing(id string) bool {
	dir, err := d.home.Agent(id)
	if err != nil {
		return true
	}
	_, err = os.Stat(dir.Path)
	return errors.Is(err, fs.ErrNotExist)
}

// ForEach calls fn for every known agent until the context ends.
func (d *Agents) ForEach(ctx context.Context, fn func(*Agent)) {
	for _, id := range d.IDs() {
		if ctx.Err() != nil {
			return
		}
		d.mu.RLock()
		a := d.agents[id]
		d.mu.RUnlock()
		if a != nil {
			fn(a)
		}
	}
}
