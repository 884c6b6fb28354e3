package mcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/protobuf/proto"

	"github.com/theclaw/agents/internal/boundary"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/secret"
)

const (
	// idleAfter is how long a server that is not used goes on.
	idleAfter = 10 * time.Minute
	// steadyAfter is how long a server must be up for its earlier failures not to count.
	steadyAfter = 10 * time.Minute
	// downAfter failures within failureWindow make a server down.
	downAfter     = 3
	failureWindow = time.Minute
	// relistEvery bounds how often a server that says so has its tools read.
	relistEvery = time.Second
	// maxTools, maxPages and maxList bound a list of tools: their number, its pages, and the bytes of their
	// descriptions.
	maxTools = 512
	maxPages = 64
	maxList  = 2 << 20
	// maxWhat bounds what is shown of a failure, in bytes.
	maxWhat = 1 << 10
)

// server is one MCP server of one agent.
type server struct {
	o           *Options
	agent, name string

	mu       sync.Mutex
	state    runnerpb.ServerState
	what     string        // what is wrong with it
	changed  chan struct{} // closed with each change of state
	session  *session      // while it is up
	running  *launch       // of the process, while there is one or is to be one
	end      context.CancelFunc
	over     chan struct{} // closed when nothing of it is left
	used     time.Time
	inUse    int // by calls
	calls    int64
	restarts int64
	protocol string
	tools    int
}

func newServer(o *Options, agent, name string) *server {
	return &server{o: o, agent: agent, name: name, state: runnerpb.ServerState_SERVER_STATE_STOPPED, changed: make(chan struct{})}
}

// set changes the state; mu is held.
func (s *server) set(state runnerpb.ServerState, what string) {
	s.o.Meter.ServerState(s.name, stateNames[s.state], stateNames[state])
	s.state = state
	s.what, _ = boundary.Text(what, maxWhat)
	close(s.changed)
	s.changed = make(chan struct{})
}

// offered reports whether the tools of the server are offered.
func (s *server) offered() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state != runnerpb.ServerState_SERVER_STATE_DOWN && s.state != runnerpb.ServerState_SERVER_STATE_AUTH
}

// show is the state for people.
func (s *server) show() *runnerpb.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &runnerpb.Server{
		Name: s.name, State: s.state, Protocol: s.protocol, Tools: int32(s.tools), Calls: s.calls, Restarts: s.restarts, What: s.what,
	}
}

// acquire returns a session for a call, which ends with release. It starts the server if it does not run, or runs with
// other settings; all calls wait for the same start. The error is why there is none.
func (s *server) acquire(ctx context.Context, p launch) (x *session, err error) {
	for {
		s.mu.Lock()
		if s.running != nil && !same(*s.running, p) {
			s.mu.Unlock()
			s.stop()
			continue
		}
		s.used = time.Now()
		switch s.state {
		case runnerpb.ServerState_SERVER_STATE_UP:
			if x = s.session; x.alive() {
				s.inUse++
				s.mu.Unlock()
				return x, nil
			}
		case runnerpb.ServerState_SERVER_STATE_DOWN, runnerpb.ServerState_SERVER_STATE_AUTH:
			err := fmt.Errorf("the MCP server %s cannot be used: %s", s.name, s.what)
			s.mu.Unlock()
			return nil, err
		case runnerpb.ServerState_SERVER_STATE_STOPPED:
			s.begin(p)
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("the MCP server %s was not up in time: %w", s.name, context.Cause(ctx))
		}
	}
}

// count counts a call.
func (s *server) count() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
}

func (s *server) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inUse--
	s.used = time.Now()
}

// same reports whether two starts have the same settings. What is approved is none of them.
func same(a, b launch) bool {
	x, y := proto.CloneOf(a.server), proto.CloneOf(b.server)
	x.Pins, y.Pins = "", ""
	return proto.Equal(x, y) && a.workdir == b.workdir && a.sandboxMode == b.sandboxMode &&
		slices.EqualFunc(a.secrets, b.secrets, func(x, y *registrypb.Secret) bool { return proto.Equal(x, y) })
}

// begin starts the server; mu is held, and it does not run.
func (s *server) begin(p launch) {
	ctx, cancel := context.WithCancel(context.Background())
	s.running, s.end, s.over, s.used = &p, cancel, make(chan struct{}), time.Now()
	s.set(runnerpb.ServerState_SERVER_STATE_STARTING, "")
	go s.run(ctx, p, s.over)
}

// stop ends the server and waits for it. A call that is open fails.
func (s *server) stop() {
	s.mu.Lock()
	end, over := s.end, s.over
	s.mu.Unlock()
	if end != nil {
		end()
		<-over
	}
}

var errIdle = errors.New("it was not used")

// run keeps the server up until ctx ends, it is idle, or it refuses its credentials.
func (s *server) run(ctx context.Context, p launch, over chan struct{}) {
	defer close(over)
	finish := func(state runnerpb.ServerState, what string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.end()
		s.running, s.end, s.session = nil, nil, nil
		s.set(state, what)
	}
	var failures []time.Time
	for failed := 0; ; failed++ {
		began := time.Now()
		err := s.once(ctx, p)
		switch {
		case ctx.Err() != nil || errors.Is(err, errIdle):
			finish(runnerpb.ServerState_SERVER_STATE_STOPPED, "")
			return
		case errors.Is(err, errAuth):
			finish(runnerpb.ServerState_SERVER_STATE_AUTH, err.Error())
			return
		case time.Since(began) >= steadyAfter:
			failed, failures = 0, nil
		}
		now := time.Now()
		failures = append(slices.DeleteFunc(failures, func(t time.Time) bool { return now.Sub(t) >= failureWindow }), now)
		s.o.Logger.Warn("MCP server has ended", "agent_id", s.agent, "server", s.name, "error", err)
		s.mu.Lock()
		state := runnerpb.ServerState_SERVER_STATE_RETRYING
		if len(failures) >= downAfter || s.state == runnerpb.ServerState_SERVER_STATE_DOWN {
			state = runnerpb.ServerState_SERVER_STATE_DOWN
		}
		idle := s.inUse == 0 && now.Sub(s.used) >= idleAfter
		s.session = nil
		s.set(state, err.Error())
		s.mu.Unlock()
		if idle {
			finish(runnerpb.ServerState_SERVER_STATE_STOPPED, err.Error())
			return
		}
		if failed > 0 {
			_ = s.o.Wait(ctx, s.o.Backoff.Wait(failed-1)) // when ctx ends, so does once
		}
		s.mu.Lock()
		s.restarts++
		s.mu.Unlock()
		s.o.Meter.AddServerRestart(s.name)
	}
}

// once starts the server and serves it to its end.
func (s *server) once(ctx context.Context, p launch) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	p.sent = secret.Sent{}
	x, err := s.connect(ctx, p)
	if err != nil {
		return err
	}
	defer x.close()
	if err := s.list(ctx, x, p.server); err != nil {
		return x.reason(err)
	}
	s.mu.Lock()
	s.session, s.protocol = x, x.protocol
	s.set(runnerpb.ServerState_SERVER_STATE_UP, s.what)
	s.mu.Unlock()
	return s.serve(ctx, x, p.server)
}

// reason is why a session could not be used: its end, when it has ended.
func (x *session) reason(err error) error {
	_ = x.client.Close() // Wait has the error
	<-x.ended
	if errors.Is(x.err, errStopped) || strings.HasPrefix(x.err.Error(), errStopped.Error()) {
		return err
	}
	return x.err
}

// serve waits for the end of a session, and reads its tools when they change.
func (s *server) serve(ctx context.Context, x *session, cfg *registrypb.McpServer) error {
	idle := time.NewTimer(idleAfter)
	defer idle.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-x.ended:
			return x.err
		case <-x.changed:
			if err := s.list(ctx, x, cfg); err != nil {
				return err
			}
			if err := s.o.Wait(ctx, relistEvery); err != nil {
				return err
			}
		case <-idle.C:
			s.mu.Lock()
			rest := idleAfter - time.Since(s.used)
			if s.inUse > 0 {
				rest = idleAfter
			}
			s.mu.Unlock()
			if rest <= 0 {
				return errIdle
			}
			idle.Reset(rest)
		}
	}
}

// list reads the tools of a server and reports them to the registry.
func (s *server) list(ctx context.Context, x *session, cfg *registrypb.McpServer) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	tools, problems, err := read(ctx, x)
	if err != nil {
		return err
	}
	known, reported := map[string]string{}, []*registrypb.ReportedTool{}
	for _, d := range tools {
		b := encode(d)
		known[d.Name] = sum(b)
		reported = append(reported, &registrypb.ReportedTool{Name: d.Name, Description: string(b), Class: className(d.class(cfg))})
	}
	x.mu.Lock()
	x.tools = known
	x.mu.Unlock()
	what := ""
	if len(problems) > 0 {
		what = fmt.Sprintf("%d tools are left out: %s", len(problems), strings.Join(problems[:min(len(problems), 3)], "; "))
	}
	s.mu.Lock()
	s.tools, s.what = len(tools), what
	s.mu.Unlock()
	if _, err := s.o.Pins.ReportTools(ctx, &registrypb.ReportToolsRequest{Server: s.name, Tools: reported}); err != nil {
		// What is approved can be called; what is new is reported by the next start.
		s.o.Logger.WarnContext(ctx, "tools of MCP server not reported", "agent_id", s.agent, "server", s.name, "error", err)
	}
	return nil
}

// read reads the tools of a server, by name. problems are why tools are left out.
func read(ctx context.Context, x *session) (tools []description, problems []string, err error) {
	params, seen, size := &sdk.ListToolsParams{}, map[string]bool{}, 0
	for page := 0; ; page++ {
		r, err := x.client.ListTools(ctx, params)
		if err != nil {
			return nil, nil, fmt.Errorf("its tools cannot be read: %s", clean(err.Error()))
		}
		for _, t := range r.Tools {
			if t == nil {
				continue
			}
			d, err := describe(t)
			size += len(d.Description) + len(d.Schema)
			switch {
			case err != nil:
			case seen[d.Name]:
				err = errors.New("there are two of this name")
			case len(tools) >= maxTools || size > maxList:
				err = fmt.Errorf("there are more than %d tools, or their descriptions have more than %d MiB", maxTools, maxList>>20)
			default:
				seen[d.Name] = true
				tools = append(tools, d)
			}
			if err != nil {
				problems = append(problems, boundary.Name(t.Name)+": "+err.Error())
			}
		}
		if r.NextCursor == "" {
			break
		}
		if page+1 == maxPages {
			problems = slices.Insert(problems, 0, fmt.Sprintf("the list has more than %d pages", maxPages))
			break
		}
		params.Cursor = r.NextCursor
	}
	slices.SortFunc(tools, func(a, b description) int { return strings.Compare(a.Name, b.Name) })
	return tools, problems, nil
}
