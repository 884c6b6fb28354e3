// Package routing decides which agent and which conversation a message from a chat platform
// belongs to, by the bindings of the home, and implements RoutingService.
//
//	settings of the home ---> Router: a table and its revision, and the earlier ones
//	                            |
//	     Push(message)          v
//	       resolve  ->  was it stored under an earlier revision?  ->  store it
//
// Each state of the bindings that routes are resolved with is a revision, stored before its
// first use. It promises that a message that is delivered again is found where the first
// delivery sent it, whatever has changed in the 48 hours since and at whichever registry
// that happened: Push looks into the inbox of each agent that a recent revision would have
// chosen, and no push commits under a revision that another registry knows to be old.
//
// Which messages an agent takes is decided by package channels, where a thread is by
// package sessionkey.
package routing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/binding"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/services/registry/internal/state"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

const (
	// remembered is how long after a change a message may be delivered again and is still
	// found where it was.
	remembered = 48 * time.Hour
	// kept are the most revisions that are stored.
	kept = 33
	// standardFor is how long the default agent is not looked for again.
	standardFor = time.Second
	// tries are how often bindings that change meanwhile are read again.
	tries = 5
)

// Home reads and changes the settings of a home.
type Home interface {
	// HomeSettings returns those in force now, of which the version changes with each change.
	// It is called for each message.
	HomeSettings(ctx context.Context) (layer.HomeSettings, error)
	// SetBindings replaces the bindings of the settings that have a version, and
	// returns the new version; store.ErrMoved when they have another one.
	SetBindings(ctx context.Context, list []binding.Binding, version string) (string, error)
}

// Agents gives access to the agents of the registry.
type Agents interface {
	Get(id string) (*state.Agent, error)
	Settings(ctx context.Context, a *state.Agent) (*agentdir.Agent, error)
	// Missing reports whether an agent does not exist.
	Missing(id string) bool
	// List returns a page of the agents in order.
	List(ctx context.Context, after string, limit int) (page []*state.Agent, next string, err error)
}

// Store finds what was pushed before.
type Store interface {
	Pushed(ctx context.Context, r store.Ref, key string) (store.Appended, bool, error)
}

// Deps are the dependencies of a Router.
type Deps struct {
	wire.Faults
	Home      Home
	Agents    Agents
	Store     Store
	Revisions store.Revisions
}

// Router resolves routes. It is safe for concurrent use. The zero value is not usable; see
// NewRouter.
type Router struct {
	Deps
	// mu is held shared from the resolution of a message to its commit, and alone while the
	// table is replaced: no message is stored by a table that another message found to be old.
	mu  sync.RWMutex
	now *current

	standardMu sync.Mutex
	standardIs string // the default agent
	standardOf string // by the settings of this version
	standardAt time.Time
}

// NewRouter returns a router, which reads the bindings when they are first needed.
func NewRouter(d Deps) *Router { return &Router{Deps: d} }

// current is a state of the bindings that is in force.
type current struct {
	settings layer.HomeSettings
	standard string // the default agent
	table    *binding.Table
	revision int64
	earlier  []earlier // the newest first
}

// earlier is a state of the bindings that was in force until a time.
type earlier struct {
	table *binding.Table
	until time.Time
}

// Decision is where a message belongs.
type Decision struct {
	binding.Result
	Revision int64
	MainKey  string // the main session key of the agent
	// Settings are those of the home by which it was decided.
	Settings layer.HomeSettings
}

// Account returns an entry of the settings that receives messages. Errors: CHANNEL_NOT_FOUND.
func (r *Router) Account(ctx context.Context, name string) (layer.Account, error) {
	s, err := r.Home.HomeSettings(ctx)
	if err != nil {
		return layer.Account{}, err
	}
	if i := slices.IndexFunc(s.Accounts, func(a layer.Account) bool { return a.Name == name }); i >= 0 {
		return s.Accounts[i], nil
	}
	return layer.Account{}, fault.New(codes.NotFound, fault.ChannelNotFound, fmt.Sprintf("there is no channel account %.80q", name),
		"add it below channels in theclaw.yaml; 'agentctl config status' says which file is in force")
}

// Stored is where a message was stored: in the inbox of an agent, or, when it has no keys of an inbox, as
// context in a conversation.
type Stored struct {
	store.Appended
	Agent, Key, Thread string // Key and Thread are of the conversation
}

// In returns what an inbox has of a message.
func In(agent string, out store.Appended) Stored {
	s := Stored{Appended: out, Agent: agent}
	if len(out.Origins) > 0 && out.Origins[0] != nil {
		s.Key, s.Thread = out.Origins[0].Key, out.Origins[0].Thread
	}
	return s
}

// Push stores a message where it belongs, unless it was stored under its key before: then
// the answer says what became of it, with the agent that has it. put stores it, with the
// revision for its options.
func (r *Router) Push(ctx context.Context, req binding.Request, key string, put func(d Decision) (Stored, error)) (out Stored, err error) {
	stale := int64(0)
	for range tries {
		out, stale, err = r.push(ctx, req, key, stale, put)
		if !errors.Is(err, store.ErrRevision) {
			return out, err
		}
	}
	f := fault.New(codes.Unavailable, fault.RegistryUnavailable, "the bindings change too often now", "try again")
	f.RetryAfter = time.Second
	return Stored{}, fault.Wrap(f, err)
}

func (r *Router) push(ctx context.Context, req binding.Request, key string, stale int64, put func(d Decision) (Stored, error)) (out Stored, revision int64, err error) {
	c, done, err := r.hold(ctx, stale)
	if err != nil {
		return out, 0, err
	}
	defer done()
	chosen := c.table.AgentOf(req)
	asked := []string{chosen}
	for _, e := range c.earlier {
		if time.Since(e.until) > remembered {
			break
		}
		before := e.table.AgentOf(req)
		if before == "" || slices.Contains(asked, before) {
			continue
		}
		asked = append(asked, before)
		out, found, err := r.earlier(ctx, before, req, key)
		if err != nil || found {
			return out, c.revision, err
		}
	}
	d, err := r.decide(ctx, c, req)
	if err != nil {
		return out, c.revision, err
	}
	out, err = put(d)
	return out, c.revision, err
}

// earlier finds what an agent has of a message that an earlier state of the bindings sent to it.
func (r *Router) earlier(ctx context.Context, agent string, req binding.Request, key string) (Stored, bool, error) {
	out, found, err := r.Pushed(ctx, store.Inbox(agent), key)
	switch {
	case fault.Is(err, fault.AgentNotFound): // what it had was removed with it
		return Stored{}, false, nil
	case err != nil || found:
		return In(agent, out), found, err
	}
	a, err := r.agent(ctx, agent)
	if err != nil {
		return Stored{}, false, nil // it was deleted, or cannot be read: it takes nothing now
	}
	k := binding.KeyOf(a, req)
	out, found, err = r.Pushed(ctx, store.Ref{Agent: agent, Thread: k.Thread()}, key)
	return Stored{Appended: out, Agent: agent, Key: k.String(), Thread: k.Thread()}, found, err
}

// Pushed finds what a thread has of a message.
func (r *Router) Pushed(ctx context.Context, at store.Ref, key string) (store.Appended, bool, error) {
	out, found, err := r.Store.Pushed(ctx, at, key)
	if err != nil {
		return out, false, r.Fault(at.Agent, at.Thread, err)
	}
	out.Duplicate = found
	return out, found, nil
}

// Decide returns where a message belongs now. Errors: ROUTE_BROKEN, AGENT_NOT_FOUND.
func (r *Router) Decide(ctx context.Context, req binding.Request) (Decision, error) {
	c, done, err := r.hold(ctx, 0)
	if err != nil {
		return Decision{}, err
	}
	defer done()
	return r.decide(ctx, c, req)
}

// decide resolves over a state of the bindings. Errors: ROUTE_BROKEN when the agent of the binding
// was deleted, AGENT_NOT_FOUND when there is none at all.
func (r *Router) decide(ctx context.Context, c *current, req binding.Request) (Decision, error) {
	var broken error
	d := Decision{Revision: c.revision, Settings: c.settings}
	out, ok := c.table.Resolve(req, func(id string) (binding.Agent, bool) {
		var a binding.Agent
		a, broken = r.agent(ctx, id)
		d.MainKey = a.MainSessionKey()
		return a, broken == nil
	})
	d.Result = out
	switch {
	case ok:
		return d, nil
	case out.Agent == "":
		return d, fault.New(codes.NotFound, fault.AgentNotFound, "this home has no agent", "make one with 'agentctl init NAME'")
	case fault.Is(broken, fault.AgentNotFound) && out.Binding > 0:
		return d, fault.New(codes.FailedPrecondition, fault.RouteBroken, fmt.Sprintf("binding %d names the agent '%s', which was deleted", out.Binding, out.Agent),
			fmt.Sprintf("run 'agentctl bindings remove %d', or make the agent again", out.Binding))
	}
	return d, broken
}

// agent returns what scopes depend on.
func (r *Router) agent(ctx context.Context, id string) (binding.Agent, error) {
	a, err := r.Agents.Get(id)
	if err != nil {
		return binding.Agent{}, err
	}
	set, err := r.Agents.Settings(ctx, a)
	if err != nil {
		return binding.Agent{}, r.Fault(id, store.Inbox(id).Thread, err)
	}
	return binding.Agent{ID: id, MainKey: set.Config.Session.MainKey, DM: set.Config.DMScope(), Shared: set.Config.SharesGroups(true)}, nil
}

// hold returns the state in force, which stays in force until done is called. stale is the
// revision that was found to be old; 0: none was.
func (r *Router) hold(ctx context.Context, stale int64) (c *current, done func(), err error) {
	for range tries {
		s, err := r.Home.HomeSettings(ctx)
		if err != nil {
			return nil, nil, err
		}
		standard, err := r.freshStandard(ctx, s)
		if err != nil {
			return nil, nil, err
		}
		valid := func() bool {
			return r.now != nil && r.now.settings.Version == s.Version && r.now.standard == standard && r.now.revision > stale
		}
		r.mu.RLock()
		if valid() {
			return r.now, r.mu.RUnlock, nil
		}
		r.mu.RUnlock()
		r.mu.Lock()
		if !valid() {
			err = r.load(ctx)
		}
		r.mu.Unlock()
		if err != nil && !errors.Is(err, store.ErrMoved) {
			return nil, nil, r.Fault("", "", err)
		}
	}
	f := fault.New(codes.Unavailable, fault.RegistryUnavailable, "the bindings change too often now", "try again")
	f.RetryAfter = time.Second
	return nil, nil, f
}

// load makes the settings the state in force, and stores them as a revision; store.ErrMoved when
// another registry stored one meanwhile. The settings are read after the newest revision:
// older ones than those of it are never stored as the next.
func (r *Router) load(ctx context.Context) error {
	was, err := r.Revisions.Revisions(ctx, kept)
	if err != nil {
		return err
	}
	s, err := r.Home.HomeSettings(ctx)
	if err != nil {
		return err
	}
	standard, err := r.freshStandard(ctx, s)
	if err != nil {
		return err
	}
	snapshot := snapshotOf(s.Bindings, s.Accounts, standard)
	table, err := binding.New(snapshot)
	if err != nil {
		return err
	}
	body, err := json.Marshal(snapshot)
	if err != nil {
		return err
	}
	newest := int64(0)
	if len(was) > 0 {
		newest = was[0].Rev
	}
	rev, err := r.Revisions.PutRevision(ctx, newest, body, kept)
	if err != nil {
		return err
	}
	next := &current{settings: s, standard: standard, table: table, revision: rev.Rev}
	until := rev.At
	for _, old := range was {
		if old.Rev == rev.Rev {
			until = old.At
			continue
		}
		t, err := tableOf(old.Body)
		if err != nil {
			return fmt.Errorf("revision %d of the bindings: %w", old.Rev, err)
		}
		next.earlier = append(next.earlier, earlier{t, until})
		until = old.At
	}
	r.now = next
	return nil
}

// snapshotOf is what routes are resolved over.
func snapshotOf(list []binding.Binding, accounts []layer.Account, standard string) binding.Snapshot {
	out := binding.Snapshot{Bindings: list, Default: standard}
	for _, a := range accounts {
		out.Accounts = append(out.Accounts, binding.Account{Name: a.Name, Type: a.Type, Default: a.Default})
	}
	return out
}

func tableOf(body []byte) (*binding.Table, error) {
	var s binding.Snapshot
	if err := json.Unmarshal(body, &s); err != nil {
		return nil, err
	}
	return binding.New(s)
}

// freshStandard is standard, asked for once in a while: which agents there are changes rarely,
// and a binding names its agent.
func (r *Router) freshStandard(ctx context.Context, s layer.HomeSettings) (string, error) {
	r.standardMu.Lock()
	defer r.standardMu.Unlock()
	if r.standardOf == s.Version && time.Since(r.standardAt) < standardFor {
		return r.standardIs, nil
	}
	id, err := r.standard(ctx, s)
	if err == nil {
		r.standardIs, r.standardOf, r.standardAt = id, s.Version, time.Now()
	}
	return id, err
}

// standard is the default agent: an entry of agents.list, or main, admin, or the first; empty:
// there is none.
func (r *Router) standard(ctx context.Context, s layer.HomeSettings) (string, error) {
	var ids []string
	for _, id := range candidates(s) {
		if !r.Agents.Missing(id) {
			ids = append(ids, id)
		}
	}
	if id := agentdir.DefaultAgent(s, ids); id != "" {
		return id, nil
	}
	page, _, err := r.Agents.List(ctx, "", 1)
	if err != nil || len(page) == 0 {
		return "", err
	}
	return page[0].ID, nil
}

// candidates are the agents that are chosen before the first one of the home.
func candidates(s layer.HomeSettings) []string {
	var ids []string
	for _, e := range s.Agents {
		ids = append(ids, e.ID)
	}
	return append(ids, agentdir.MainAgent, "admin")
}
