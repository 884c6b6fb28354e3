package shell

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/sandbox"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/registrycall"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// maxTail is how much of the output the registry keeps, in bytes.
const maxTail = 2 << 10

// Journal is the part of the registry's TurnService that processes need.
type Journal interface {
	RecordProcess(ctx context.Context, in *registrypb.RecordProcessRequest, opts ...grpc.CallOption) (*registrypb.RecordProcessResponse, error)
	ListProcesses(ctx context.Context, in *registrypb.ListProcessesRequest, opts ...grpc.CallOption) (*registrypb.ListProcessesResponse, error)
}

// Held is the lease of an agent that is kept while a process runs.
type Held struct {
	// Ctx ends with the lease, and Trusted returns nil while it is held.
	Ctx     context.Context //nolint:containedctx // of the lease, not of a call
	Trusted func(context.Context) error
	// Fence is resource=token of the lease.
	Fence string
	// Stop is closed when the process has to end before the lease is given back.
	Stop <-chan struct{}
	// Release gives the hold back.
	Release func()
}

// Processes are the programs that tool calls of this runner have left in the background.
//
//	call --> starting (recorded) --> started --> running (recorded) --> ends --> exited, killed (recorded)
//	call --> runs longer than the agent waits --------> running (recorded) --^
//
// The registry has a row before a program is in the background. The first record of its end
// pushes a message to the agent, in one transaction, unless a call of the tool process was
// waiting for the end and reports it. What this runner does not record any more, because it was
// killed, the registry gives up with the next lease: the program has ended with its runner.
//
// A process keeps the lease of its agent and ends with it: after the age of the settings, when a
// person stops the agent or ends the run, when the runner drains, and when the lease is lost.
type Processes struct {
	journal Journal
	hold    func(ctx context.Context, agentID string) (Held, error)
	log     *slog.Logger
	// Meter counts; nil: nothing is counted.
	Meter Meter

	mu      sync.Mutex
	running map[string][]*process // by agent, the oldest first
}

// NewProcesses makes none; hold keeps the lease of an agent.
func NewProcesses(j Journal, hold func(ctx context.Context, agentID string) (Held, error), log *slog.Logger) *Processes {
	return &Processes{journal: j, hold: hold, log: log, running: map[string][]*process{}}
}

// Why a process is ended.
var (
	errByCall   = errors.New("ended by a call of process")
	errByPerson = errors.New("ended by a person")
	errByStop   = errors.New("ended because its runner gives the agent back")
	errTooLong  = errors.New("it took too long")
)

// process is one program.
type process struct {
	id      string
	call    toolset.Call
	what    string // the command line, for people and the model
	begun   time.Time
	out     recent
	in      *input // nil: nothing can be written
	noInput bool   // because it runs in a container
	cancel  context.CancelCauseFunc
	started chan struct{} // closed when it may run
	exited  chan struct{} // closed when it has ended; then result, err and cause are set
	result  sandbox.Result
	err     error
	cause   error
	// done is closed when its end is recorded, or cannot be.
	done chan struct{}
	held Held // while it is in the background

	mu       sync.Mutex
	progress func(text string)
	// watchers are calls that wait for the end; ending: it was decided whether one has seen it.
	watchers int
	ending   bool
	state    registrypb.ProcessState // at the end
}

// idOf is the id of the process of a call: the same when the call is recorded again.
func idOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "p-" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:8]
}

// wants is what a call says about the background.
type wants struct {
	background bool          // at once
	yield      time.Duration // after this time; 0: never
	limited    bool          // the call names how long the program may run
	contained  bool          // it runs in a container, and has no input
	shown      string        // what people are shown of the program
}

// run runs a command that may go on in the background.
func (ps *Processes) run(ctx context.Context, box Sandbox, command sandbox.Command, c toolset.Call, w wants, after func(context.Context) error) toolset.Result {
	limits := c.Place.Config.GetProcesses()
	patience, age := command.Timeout, limits.GetMaxAge().AsDuration()
	if command.Timeout = max(age, patience); w.limited && w.background {
		command.Timeout = min(age, patience)
	} else if w.limited {
		command.Timeout = patience
	}
	p := &process{
		id: idOf(c.Key), call: c, noInput: w.contained, what: firstLine(w.shown), begun: time.Now(), progress: c.Progress,
		started: make(chan struct{}), exited: make(chan struct{}), done: make(chan struct{}),
	}
	if w.background {
		p.progress = nil
		if !w.contained {
			p.in = newInput()
			command.Stdin = p.in
		}
	}
	command.Log = p.id + ".log"
	command.OnStart = sync.OnceFunc(func() { close(p.started) })
	command.OnStdout, command.OnStderr = p.print, p.print
	runCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	p.cancel = cancel
	if w.background {
		return ps.background(ctx, runCtx, p, box, command, after)
	}
	go p.run(runCtx, box, command)
	yield, limit := time.NewTimer(w.yield), time.NewTimer(patience)
	defer yield.Stop()
	defer limit.Stop()
	for {
		select {
		case <-p.exited:
		case <-ctx.Done():
			cancel(context.Cause(ctx))
			<-p.exited
		case <-limit.C:
			cancel(errTooLong)
			<-p.exited
			p.result.TimedOut, p.result.Canceled = p.result.Canceled, false
		case <-yield.C:
			if h, err := ps.keep(ctx, p, limits.GetMax()); err != nil {
				ps.log.InfoContext(ctx, "command not put into the background", "agent_id", c.Place.AgentID, "tool", c.Name, "call_key", c.Key, "error", fault.Chain(err))
				continue // it is waited for
			} else if err := ps.record(h, p, registrypb.ProcessState_PROCESS_STATE_RUNNING, "", false); err != nil {
				ps.release(h, p)
				continue
			}
			p.mu.Lock()
			p.progress = nil
			p.mu.Unlock()
			go ps.live(p, false, after)
			return toolset.Result{Text: p.title() + ". It goes on in the background after " + w.yield.String() + "; its output so far:\n" + sandbox.Text(p.out.last(maxTail))}
		}
		cancel(nil)
		return p.foreground(ctx, command, patience, after)
	}
}

// background starts a program in the background.
func (ps *Processes) background(ctx, runCtx context.Context, p *process, box Sandbox, command sandbox.Command, after func(context.Context) error) toolset.Result {
	h, err := ps.keep(ctx, p, p.call.Place.Config.GetProcesses().GetMax())
	if err != nil {
		p.cancel(nil)
		return toolset.Failed("nothing was run: " + reason(err))
	}
	if err := ps.record(h, p, registrypb.ProcessState_PROCESS_STATE_STARTING, "", false); err != nil {
		ps.release(h, p)
		p.cancel(nil)
		return toolset.Failed("nothing was run, the process could not be recorded: " + reason(err))
	}
	go p.run(runCtx, box, command)
	go ps.live(p, true, after)
	select {
	case <-p.started:
	case <-p.done: // it could not be started
	case <-ctx.Done():
	}
	return toolset.Result{Text: p.title()}
}

func (p *process) title() string {
	return "process " + p.id + ", output " + filepath.Join(SpillDir, p.id+".log")
}

// print takes a piece of the output.
func (p *process) print(b []byte) {
	p.out.add(b)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.progress != nil {
		p.progress(toolset.OutputText(b))
	}
}

// run runs the program to its end.
func (p *process) run(ctx context.Context, box Sandbox, command sandbox.Command) {
	defer close(p.exited)
	defer p.cancel(nil)
	if p.err = makeWorkdir(cmp.Or(command.Workspace, command.Workdir)); p.err != nil {
		return
	}
	p.result, p.err = runIn(ctx, box, command)
	p.cause = context.Cause(ctx)
}

// foreground is the result of a program that has ended while it was waited for. Its log is needed
// only where the result does not have all of the output.
func (p *process) foreground(ctx context.Context, command sandbox.Command, timeout time.Duration, after func(context.Context) error) toolset.Result {
	if !p.result.Truncated && p.err == nil {
		if root, err := os.OpenRoot(filepath.Dir(command.SpillDir)); err == nil {
			_ = root.Remove(filepath.Join(SpillDir, command.Log)) // pruning takes it otherwise
			_ = root.Close()
		}
		p.result.Spill = ""
	}
	command.Timeout = timeout
	result := output(p.result, p.err, command)
	return saved(ctx, result, after)
}

// keep takes a place among the processes of an agent and keeps the lease of the call.
func (ps *Processes) keep(ctx context.Context, p *process, most int32) (Held, error) {
	at := p.call.Place
	ps.mu.Lock()
	n := len(ps.running[at.AgentID])
	if n < int(most) {
		ps.running[at.AgentID] = append(ps.running[at.AgentID], p)
	}
	ps.mu.Unlock()
	if n >= int(most) {
		return Held{}, fmt.Errorf("%d processes run in the background, and no more may: end one with the tool process, or wait", n)
	}
	h, err := ps.hold(ctx, at.AgentID)
	if err == nil && h.Fence != at.Fence {
		h.Release()
		err = errors.New("the lease is another one now")
	}
	if err != nil {
		ps.remove(p)
		return h, err
	}
	p.held = h
	return h, nil
}

func (ps *Processes) release(h Held, p *process) {
	ps.remove(p)
	h.Release()
}

func (ps *Processes) remove(p *process) {
	id := p.call.Place.AgentID
	ps.mu.Lock()
	defer ps.mu.Unlock()
	var left []*process
	for _, other := range ps.running[id] {
		if other != p {
			left = append(left, other)
		}
	}
	if ps.running[id] = left; len(left) == 0 {
		delete(ps.running, id)
	}
}

func (ps *Processes) count(from, to string) {
	if ps.Meter != nil {
		ps.Meter.ProcessState(from, to)
	}
}

// live waits for the end of a process that is recorded, and records that.
func (ps *Processes) live(p *process, starting bool, after func(context.Context) error) {
	h := p.held
	defer ps.release(h, p)
	defer close(p.done)
	defer context.AfterFunc(h.Ctx, func() { p.cancel(context.Cause(h.Ctx)) })()
	state := "running"
	if starting {
		state = "starting"
	}
	ps.count("", state)
	defer func() { ps.count(state, "") }()
	if starting {
		select {
		case <-p.started:
			ps.count(state, "running")
			state = "running"
			if err := ps.record(h, p, registrypb.ProcessState_PROCESS_STATE_RUNNING, "", false); err != nil {
				ps.log.Warn("start of a process not recorded", "agent_id", p.call.Place.AgentID, "tool", p.call.Name, "call_key", p.call.Key, "process", p.id, "error", fault.Chain(err))
			}
		case <-p.exited:
		case <-h.Stop:
		}
	}
	select {
	case <-p.exited:
	case <-h.Stop:
		p.cancel(errByStop)
		<-p.exited
	}
	how, tail := p.end()
	if err := after(h.Ctx); err != nil {
		tail = p.note(err.Error())
	}
	p.mu.Lock()
	seen := p.watchers > 0
	p.ending, p.state = true, how
	p.mu.Unlock()
	if err := ps.record(h, p, how, tail, seen); err != nil { // the registry gives it up with the next lease
		ps.log.Warn("end of a process not recorded", "agent_id", p.call.Place.AgentID, "tool", p.call.Name, "call_key", p.call.Key, "process", p.id, "error", fault.Chain(err))
	}
}

// end is how the program has ended, and its last words.
func (p *process) end() (state registrypb.ProcessState, tail string) {
	switch {
	case p.err != nil:
		p.result.ExitCode = -1
		return registrypb.ProcessState_PROCESS_STATE_EXITED, p.note("it could not be run: " + reason(p.err))
	case p.result.TimedOut:
		return registrypb.ProcessState_PROCESS_STATE_KILLED, p.note("ended because it ran for too long")
	case p.result.Canceled:
		why := errByStop.Error()
		if errors.Is(p.cause, errByCall) || errors.Is(p.cause, errByPerson) {
			why = p.cause.Error()
		}
		return registrypb.ProcessState_PROCESS_STATE_KILLED, p.note(why)
	}
	return registrypb.ProcessState_PROCESS_STATE_EXITED, p.note("")
}

// note is the end of the output with a line of ours behind it.
func (p *process) note(line string) string {
	if line != "" {
		line, _ = boundary.Text(line, maxTail/2)
		line = "\n[" + line + "]"
	}
	text := toolset.WithoutPictures(sandbox.Text(p.out.last(maxTail)))
	text = text[max(len(text)+len(line)-maxTail, 0):]
	for len(text) > 0 && !utf8.RuneStart(text[0]) {
		text = text[1:]
	}
	return text + line
}

// record records how far a process got, and again while the registry is away.
func (ps *Processes) record(h Held, p *process, state registrypb.ProcessState, tail string, seen bool) error {
	at := p.call.Place
	req := &registrypb.RecordProcessRequest{
		AgentId: at.AgentID, Key: at.Turn, InboxId: at.InboxID,
		Process: &registrypb.Process{
			Id: p.id, ThreadId: at.ThreadID, StepKey: p.call.Key, State: state, Tail: tail,
			Seen: seen || !at.Config.GetProcesses().GetNotify(),
		},
	}
	if state == registrypb.ProcessState_PROCESS_STATE_EXITED {
		req.Process.Exit = int32(p.result.ExitCode)
	}
	_, err := registrycall.Call(h.Ctx, h.Trusted, func(ctx context.Context) (*registrypb.RecordProcessResponse, error) {
		ctx, cancel := context.WithTimeout(ctx, recordTime)
		defer cancel()
		return ps.journal.RecordProcess(ctx, req)
	})
	return err
}

// recordTime bounds one call to the registry.
const recordTime = 10 * time.Second

// find returns a process of the conversation that runs here; nil: there is none.
func (ps *Processes) find(at toolset.Place, id string) *process {
	for _, p := range ps.of(at.AgentID) {
		if p.id == id && p.call.Place.ThreadID == at.ThreadID {
			return p
		}
	}
	return nil
}

func (ps *Processes) of(agentID string) []*process {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return append([]*process(nil), ps.running[agentID]...)
}

// End ends the processes of a conversation of an agent, or, where run is not empty, those that the
// turn of that key has started, because a person wants it. It waits until they have ended, or ctx
// has, and returns how many there were.
func (ps *Processes) End(ctx context.Context, agentID, threadID, run string) (n int) {
	var ended []*process
	for _, p := range ps.of(agentID) {
		if at := p.call.Place; at.ThreadID == threadID && (run == "" || at.Turn == run) {
			p.cancel(errByPerson)
			ended = append(ended, p)
		}
	}
	for _, p := range ended {
		select {
		case <-p.exited:
		case <-ctx.Done():
		}
	}
	return len(ended)
}

// reason is an error for the model.
func reason(err error) string {
	e := fault.From(err)
	if e.Fix != "" {
		return e.What + " - " + e.Fix
	}
	return e.What
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	line, _ = boundary.Text(line, 200)
	return line
}
