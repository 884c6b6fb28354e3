package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/protobuf/proto"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/fault"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/secret"
)

const (
	// idleAfter is how long a server that is not used keeps running.
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
	maxList  = 1 << 20
	// shownProblems is how many reasons are shown for tools that are left out.
	shownProblems = 3
	// maxWhat bounds what is shown of a failure, in bytes.
	maxWhat = 1 << 10
)

// server is one MCP server of one agent.
type server struct {
	o           *Options
	closed      *atomic.Bool // no server is started any more
	agent, name string

	mu       sync.Mutex
	state    runnerpb.ServerState
	what     string             // what is wrong with it
	unsent   *fault.Error       // why its credentials could not be sent; nil: they were, or it was not started
	changed  chan struct{}      // closed with each change of state
	session  *session           // while it is up
	last     *launch            // of the last start; nil: there was none
	end      context.CancelFunc // nil: it does not run, and is not to
	over     chan struct{}      // closed when nothing of it is left
	used     time.Time
	inUse    int // by calls
	calls    int64
	restarts int64
	protocol string
	tools    int
}

func newServer(o *Options, closed *atomic.Bool, agent, name string) *server {
	return &server{o: o, closed: closed, agent: agent, name: name, state: runnerpb.ServerState_SERVER_STATE_STOPPED, changed: make(chan struct{})}
}

// set changes the state; mu is held.
func (s *server) set(state runnerpb.ServerState, what string) {
	s.o.Meter.ServerState(s.name, stateNames[s.state], stateNames[state])
	s.state = state
	s.what, _ = boundary.Text(what, maxWhat)
	close(s.changed)
	s.changed = make(chan struct{})
}

// offered reports whether the tools of the server are offered to a turn with these settings: those that have made it
// fail may be others.
func (s *server) offered(p launch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state != runnerpb.ServerState_SERVER_STATE_DOWN && s.state != runnerpb.ServerState_SERVER_STATE_AUTH || !same(*s.last, p)
}

// unused reports whether the server does not run and was not used for long.
func (s *server) unused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end == nil && s.inUse == 0 && !s.used.IsZero() && time.Since(s.used) >= idleAfter
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
		if s.closed.Load() {
			s.mu.Unlock()
			return nil, errors.New("the runner ends")
		}
		if s.end != nil && !same(*s.last, p) {
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
			if s.end == nil && !same(*s.last, p) {
				s.begin(p)
				break
			}
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

// credentials is why the credentials of the server could not be sent at its last start; nil: they were.
func (s *server) credentials() *fault.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unsent
}

// count notes a call, for people.
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

// same reports whether two starts in the same place have the same settings. What is approved, offered and waited for is
// none of them.
func same(a, b launch) bool {
	x, y := proto.CloneOf(a.server), proto.CloneOf(b.server)
	for _, m := range []*registrypb.McpServer{x, y} {
		m.Pins, m.Allow, m.Deny, m.Classes, m.Timeout = "", nil, nil, nil, nil
	}
	return proto.Equal(x, y) && slices.EqualFunc(a.secrets, b.secrets, func(x, y *registrypb.Secret) bool { return proto.Equal(x, y) })
}

// begin starts the server; mu is held, and it does not run.
func (s *server) begin(p launch) {
	ctx, cancel := context.WithCancel(context.Background())
	s.last, s.end, s.over, s.used, s.unsent = &p, cancel, make(chan struct{}), time.Now(), nil
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
	finish := func(state runnerpb.ServerState, err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.end()
		s.end, s.session = nil, nil
		what := ""
		if err != nil {
			what = err.Error()
		}
		if errors.Is(err, errUnsent) {
			s.unsent, _ = errors.AsType[*fault.Error](err)
		}
		s.set(state, what)
	}
	var failures []time.Time
	for failed := 0; ; failed++ {
		began := time.Now()
		err := s.once(ctx, p)
		switch {
		case ctx.Err() != nil || errors.Is(err, errIdle):
			finish(runnerpb.ServerState_SERVER_STATE_STOPPED, nil)
			return
		case errors.Is(err, errUnsent) || errors.Is(err, errAuth):
			finish(runnerpb.ServerState_SERVER_STATE_AUTH, err)
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
			finish(runnerpb.ServerState_SERVER_STATE_STOPPED, err)
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
	starting, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	x, err := s.connect(starting, p)
	if err != nil {
		return err
	}
	defer x.close()
	if err := s.list(starting, x, p.server); err != nil {
		if x.endsSoon() {
			return x.err
		}
		return err
	}
	s.mu.Lock()
	s.session, s.protocol = x, x.protocol
	s.set(runnerpb.ServerState_SERVER_STATE_UP, s.what)
	s.mu.Unlock()
	return s.serve(ctx, x, p.server)
}

// serve waits for the end of a session, and reads its tools when they change.
func (s *server) serve(ctx context.Context, x *session, cfg *registrypb.McpServer) error {
	idle := time.NewTimer(idleAfter)
	defer idle.Stop()
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for missed := 0; ; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-x.ended:
			return x.err
		case <-ping.C:
			if missed = x.ping(ctx, missed); missed >= maxMissed {
				return errors.New("it does not answer")
			}
		case <-x.changed:
			if err := s.list(ctx, x, cfg); err != nil && x.alive() && ctx.Err() == nil {
				// It is asked again. Until then none of its tools is known to be as it was approved.
				s.o.Logger.WarnContext(ctx, "tools of MCP server not read", "agent_id", s.agent, "server", s.name, "error", err)
				x.know(nil)
				x.readAgain()
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

// ping returns how many pings in a row had no answer, of which missed were before.
func (x *session) ping(ctx context.Context, missed int) int {
	if x.protocol >= noPings {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, pingEvery)
	defer cancel()
	if x.client.Ping(ctx, nil) != nil {
		return missed + 1
	}
	return 0
}

// know notes the hashes of the tools of the server, by their names.
func (x *session) know(tools map[string]string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tools = tools
}

// readAgain has the tools of the server read.
func (x *session) readAgain() {
	select {
	case x.changed <- struct{}{}:
	default:
	}
}

// list reads the tools of a server and reports them to the registry.
func (s *server) list(ctx context.Context, x *session, cfg *registrypb.McpServer) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	tools, left, err := read(ctx, x)
	if err != nil {
		return err
	}
	known, reported := map[string]string{}, []*registrypb.ReportedTool{}
	for _, t := range tools {
		known[t.Name] = sum(t.encoded)
		reported = append(reported, &registrypb.ReportedTool{Name: t.Name, Description: string(t.encoded), Class: t.class(cfg).String()})
	}
	x.know(known)
	what := left.text()
	if _, err := s.o.Pins.ReportTools(ctx, &registrypb.ReportToolsRequest{Server: s.name, Tools: reported}); err != nil {
		// What is approved can be called; what is new is reported by the next start.
		s.o.Logger.WarnContext(ctx, "tools of MCP server not reported", "agent_id", s.agent, "server", s.name, "error", err)
		what = "its tools could not be reported: " + fault.From(err).What
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tools, s.what = len(tools), what
	return nil
}

// listed is a tool with its encoded description.
type listed struct {
	description
	encoded []byte
}

// leftOut are the tools that are left out, and why the first of them are.
type leftOut struct {
	n   int
	why []string
}

func (l *leftOut) add(why string) {
	if l.n++; len(l.why) < shownProblems {
		l.why = append(l.why, why)
	}
}

func (l *leftOut) text() string {
	if l.n == 0 {
		return ""
	}
	return fmt.Sprintf("%d tools are left out: %s", l.n, strings.Join(l.why, "; "))
}

// read reads the tools of a server, by name.
func read(ctx context.Context, x *session) (tools []listed, left *leftOut, err error) {
	params, seen, size := &sdk.ListToolsParams{}, map[string]bool{}, 0
	left = &leftOut{}
	for page := 1; ; page++ {
		r, err := x.client.ListTools(ctx, params)
		if err != nil {
			return nil, nil, fmt.Errorf("its tools cannot be read: %s", x.sent.Without(clean(err.Error())))
		}
		for _, t := range r.Tools {
			if t == nil {
				continue
			}
			one, err := x.listed(t)
			switch {
			case err != nil:
			case seen[one.Name]:
				err = errors.New("there are two of this name")
			case len(tools) >= maxTools || size+len(one.encoded) > maxList:
				err = fmt.Errorf("there are more than %d tools, or their descriptions have more than %d MiB", maxTools, maxList>>20)
			default:
				seen[one.Name] = true
				size += len(one.encoded)
				tools = append(tools, one)
			}
			if err != nil {
				left.add(boundary.Name(x.sent.Without(t.Name)) + ": " + err.Error())
			}
		}
		if r.NextCursor == "" {
			break
		}
		if page == maxPages || len(tools) >= maxTools {
			left.n++
			left.why = slices.Insert(left.why, 0, fmt.Sprintf("the list has more than %d pages or %d tools", maxPages, maxTools))
			break
		}
		params.Cursor = r.NextCursor
	}
	slices.SortFunc(tools, func(a, b listed) int { return strings.Compare(a.Name, b.Name) })
	return tools, left, nil
}

// listed is a tool as it is approved, without the values that the server was given.
func (x *session) listed(t *sdk.Tool) (out listed, err error) {
	d, err := describe(t)
	if err != nil {
		return out, err
	}
	out.encoded = encode(d)
	if text := x.sent.Without(string(out.encoded)); text != string(out.encoded) {
		out.encoded = []byte(text)
		if json.Unmarshal(out.encoded, &d) != nil || d.Name != t.Name {
			return out, errors.New("its description has a value that the server was given")
		}
	}
	out.description = d
	return out, nil
}
