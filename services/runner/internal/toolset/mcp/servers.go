package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/pause"
	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/internal/toolpolicy"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/secret"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// Sandbox runs the process of a server; [sandbox.Sandbox] does.
type Sandbox interface {
	Run(ctx context.Context, c sandbox.Command) (sandbox.Result, error)
}

// Pins is the part of the registry's PinService that a runner needs.
type Pins interface {
	ReportTools(ctx context.Context, in *registrypb.ReportToolsRequest, opts ...grpc.CallOption) (*registrypb.ReportToolsResponse, error)
	ListPins(ctx context.Context, in *registrypb.ListPinsRequest, opts ...grpc.CallOption) (*registrypb.ListPinsResponse, error)
}

// Meter has the metrics of servers.
type Meter interface {
	// ServerState notes that a server of an agent has another state; empty: it does not run.
	ServerState(server, from, to string)
	// AddServerRestart counts a restart.
	AddServerRestart(server string)
	// AddEgressRefused counts a connection of a server to a host that is not allowed.
	AddEgressRefused()
}

// stateNames are the states of a server that runs, or is to run, for metrics.
var stateNames = map[runnerpb.ServerState]string{
	runnerpb.ServerState_SERVER_STATE_STARTING: "starting", runnerpb.ServerState_SERVER_STATE_UP: "up",
	runnerpb.ServerState_SERVER_STATE_RETRYING: "retrying", runnerpb.ServerState_SERVER_STATE_DOWN: "down", runnerpb.ServerState_SERVER_STATE_AUTH: "auth",
}

// Options of [Servers]. Sandbox, Pins, Root, Logger and Meter are required.
type Options struct {
	// Sandbox returns the sandbox of a mode.
	Sandbox func(mode string) (Sandbox, error)
	Pins    Pins
	// Values reads what the settings refer to.
	Values secret.Source
	// Root is the directory below which servers have theirs, by agent and name.
	Root   string
	Logger *slog.Logger
	Meter  Meter
	// Backoff is how long to wait before a start after the first two; the zero value takes 1 s, doubled up to 60 s.
	Backoff pause.Backoff
	// Wait waits; nil: [pause.For].
	Wait func(context.Context, time.Duration) error
}

// Servers are the MCP servers of a runner. It implements [toolset.Servers].
type Servers struct {
	o      Options
	closed atomic.Bool

	mu      sync.Mutex
	servers map[string]map[place]*server // by agent
	pinned  map[string]pins              // by server
}

// place is what a server of an agent belongs to: its name, the working directory where it is started in that, which the
// scope of the sandbox may make one for each conversation, and the mode of its sandbox.
type place struct{ name, workdir, sandboxMode string }

// pins are the approved tools of a server.
type pins struct {
	digest string // by which the registry names them
	tools  []pin
}

// pin is an approved tool.
type pin struct {
	description
	sha     string // of the description
	offered string // name under which it is offered
}

// New starts no server: the first call of each does.
func New(o Options) *Servers {
	if o.Backoff == (pause.Backoff{}) {
		o.Backoff = pause.Backoff{First: time.Second, Last: time.Minute}
	}
	if o.Wait == nil {
		o.Wait = pause.For
	}
	return &Servers{o: o, servers: map[string]map[place]*server{}, pinned: map[string]pins{}}
}

// Close ends all servers and waits for them.
func (s *Servers) Close() {
	s.closed.Store(true)
	s.mu.Lock()
	var ending sync.WaitGroup
	for _, of := range s.servers {
		for _, one := range of {
			ending.Go(one.stop)
		}
	}
	s.mu.Unlock()
	ending.Wait()
}

// server returns the server of an agent.
func (s *Servers) server(agent string, p launch) *server {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.servers[agent] == nil {
		s.servers[agent] = map[place]*server{}
	}
	of, key := s.servers[agent], place{p.server.GetName(), p.workdir, p.sandboxMode}
	if of[key] == nil {
		of[key] = newServer(&s.o, &s.closed, agent, key.name)
	}
	return of[key]
}

// launchOf is what the settings say about a start. A server has a setting of its own that takes it out of the sandbox.
func launchOf(c *registrypb.TurnConfig, m *registrypb.McpServer) launch {
	p := launch{server: m, secrets: c.GetSecrets(), sandboxMode: string(sandbox.Required)}
	if m.GetInWorkdir() {
		p.workdir = c.GetWorkdir()
	}
	switch {
	case m.GetUnconfined():
		p.sandboxMode = string(sandbox.Off)
	case c.GetSandboxMode() == string(sandbox.Reduced):
		p.sandboxMode = string(sandbox.Reduced)
	}
	return p
}

// Tools implements [toolset.Servers].
func (s *Servers) Tools(ctx context.Context, agentID string, c *registrypb.TurnConfig) (out []toolset.Tool, err error) {
	s.forget(agentID, c.GetMcp())
	for _, m := range c.GetMcp() {
		if m.GetPins() == "" {
			continue
		}
		launch := launchOf(c, m)
		if !s.server(agentID, launch).offered(launch) {
			continue
		}
		pinned, err := s.pins(ctx, m.GetName(), m.GetPins())
		if err != nil {
			return nil, err
		}
		for _, p := range pinned {
			if !matches(m.GetDeny(), p.Name) && (len(m.GetAllow()) == 0 || matches(m.GetAllow(), p.Name)) {
				out = append(out, &tool{servers: s, agent: agentID, launch: launch, pin: p})
			}
		}
	}
	return out, nil
}

// forget ends the servers of an agent that its settings do not have any more, and forgets those that were not used for
// long.
func (s *Servers) forget(agentID string, names []*registrypb.McpServer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, one := range s.servers[agentID] {
		named := slices.ContainsFunc(names, func(m *registrypb.McpServer) bool { return m.GetName() == key.name })
		switch {
		case !named:
			go one.stop()
			delete(s.servers[agentID], key)
		case one.unused():
			delete(s.servers[agentID], key)
		}
	}
}

// matches reports whether one of the patterns of the settings matches the name of a tool at its server.
func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return toolpolicy.Match(p, name) })
}

// pins returns the approved tools of a server. They are read when the settings name others than those that are
// held.
func (s *Servers) pins(ctx context.Context, server, digest string) ([]pin, error) {
	s.mu.Lock()
	held, ok := s.pinned[server]
	s.mu.Unlock()
	if ok && held.digest == digest {
		return held.tools, nil
	}
	r, err := s.o.Pins.ListPins(ctx, &registrypb.ListPinsRequest{Server: server})
	if err != nil {
		return nil, err
	}
	held = pins{digest: digest}
	var names []string
	for _, p := range r.GetPins() {
		var d description
		if p.GetState() == registrypb.PinState_PIN_STATE_APPROVED && json.Unmarshal([]byte(p.GetApproved()), &d) == nil && d.Name == p.GetTool() {
			names = append(names, d.Name)
			held.tools = append(held.tools, pin{description: d, sha: sum([]byte(p.GetApproved()))})
		}
	}
	offered := offeredNames(server, names)
	for n := range held.tools {
		held.tools[n].offered = offered[held.tools[n].Name]
	}
	slices.SortFunc(held.tools, func(a, b pin) int { return strings.Compare(a.offered, b.offered) })
	if r.GetApproved() == digest { // else they have changed since the settings were read
		s.mu.Lock()
		defer s.mu.Unlock()
		s.pinned[server] = held
	}
	return held.tools, nil
}

// List returns the servers of an agent, by name.
func (s *Servers) List(agentID string, c *registrypb.TurnConfig) []*runnerpb.Server {
	out := make([]*runnerpb.Server, 0, len(c.GetMcp()))
	for _, m := range c.GetMcp() {
		out = append(out, s.server(agentID, launchOf(c, m)).show())
	}
	return out
}

// Start starts a server of an agent, if it does not run or restart is set, and returns its state when its tools
// were read and reported. The error is that the settings have no such server, or that what they refer to is missing.
func (s *Servers) Start(ctx context.Context, agentID string, c *registrypb.TurnConfig, name string, restart bool) (*runnerpb.Server, error) {
	n := slices.IndexFunc(c.GetMcp(), func(m *registrypb.McpServer) bool { return m.GetName() == name })
	if n < 0 {
		return nil, fault.New(codes.NotFound, fault.McpServerNotFound, fmt.Sprintf("there is no MCP server %q", name), "see 'agentctl mcp list'")
	}
	p := launchOf(c, c.GetMcp()[n])
	one := s.server(agentID, p)
	if restart || !one.offered(p) {
		one.stop()
		one.mu.Lock()
		if one.end == nil { // down or auth
			one.set(runnerpb.ServerState_SERVER_STATE_STOPPED, "")
		}
		one.mu.Unlock()
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit+5*time.Second)
	defer cancel()
	before := one.show().GetState() == runnerpb.ServerState_SERVER_STATE_UP
	x, err := one.acquire(ctx, p)
	if why := one.credentials(); err != nil && why != nil {
		return nil, fault.New(why.Code, why.Reason, fmt.Sprintf("the MCP server %s was not started: %s", name, why.What),
			fmt.Sprintf("%s; after that run 'agentctl mcp restart %s --agent %s'", why.Fix, name, agentID))
	}
	if err != nil {
		return one.show(), nil // it says why
	}
	defer one.release()
	if before { // its start has reported its tools, which the registry may have forgotten since
		if err := one.list(ctx, x, p.server); err != nil {
			return nil, err
		}
	}
	return one.show(), nil
}
