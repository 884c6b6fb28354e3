// Package stream follows runs for clients of the gateway: what an agent says in a run, while it
// says it, at a rate that a client and its network can take.
//
//	runner: StreamRun --> receive --> waiting: state, void, text --Next--> client
//	                        ^                            |
//	                        '--- full: not received <----'
//
// It promises: the first text comes at once and then at most one text frame in 150 ms, however
// the runner cuts the text; the frames of a run come in their order and none twice, whichever
// runners work on it; the text frames behind the last void are the beginning of what the agent
// says last. A client that takes no frames costs others nothing: what waits for it is at most one
// frame of each type, with the texts joined, and when that is full the runner is not read until
// the client has taken it, which the runner does not wait for. For each client there is
// one goroutine, and without clients there is neither a goroutine nor a timer.
//
// A frame holds what the peer of a conversation may see: no reasoning, and of a tool that it was
// called, as a void. What a run comes to is not a frame: the caller takes it from the registry,
// so that a client gets it once and complete whatever became of the stream.
package stream

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/pause"
	runnerv1 "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

const (
	// interval is the least time between two text frames of a client.
	interval = 150 * time.Millisecond
	// maxClients is how many clients follow runs at a time.
	maxClients = 64
	// maxText is how much text waits for a client, in bytes, until its run is not read any more.
	maxText = 256 << 10
)

// again says when a run is followed again after the registry could not be reached.
var again = pause.Backoff{First: 200 * time.Millisecond, Last: 5 * time.Second}

// Type of a frame: its name in a stream of events.
type Type string

// The types.
const (
	Text  Type = "text"  // the next piece of what the agent says
	Void  Type = "void"  // the text so far is no part of the reply: a tool is called, or it is said again
	State Type = "state" // the run is in another state, which Text names
)

// Running is the state of a run that a runner works on.
const Running = "running"

// Frame is a part of what happens in a run.
type Frame struct {
	Type Type
	// Seq is the position of the frame in its run: a client that has it continues after it.
	Seq  uint64
	Text string
}

// Client is who follows a run, as the owner sees it.
type Client struct {
	Kind    string // the surface by which it came, such as webhook
	Account string // the account by which it came
	Since   time.Time
}

// Runs streams runs, from runner to runner; [runs.Client] does.
type Runs interface {
	StreamRun(ctx context.Context, in *runnerv1.StreamRunRequest, opts ...grpc.CallOption) (grpc.ServerStreamingClient[runnerv1.StreamRunResponse], error)
}

// Streams are the clients of a gateway that follow runs. It is safe for concurrent use.
type Streams struct {
	runs Runs

	mu      sync.Mutex
	clients map[*Reader]Client
}

// New returns Streams without clients.
func New(runs Runs) *Streams { return &Streams{runs: runs, clients: map[*Reader]Client{}} }

// Clients returns the clients, at most 64, who follows the longest first.
func (s *Streams) Clients() (list []Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clients {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b Client) int { return a.Since.Compare(b.Since) })
	return list
}

// Follow begins to follow a run for a client, after the frame that has the position after; 0: from
// the beginning. It ends with ctx; the caller closes the reader. ok is false when too many clients
// follow runs.
func (s *Streams) Follow(ctx context.Context, c Client, agent, run string, after uint64) (r *Reader, ok bool) {
	r = newReader(after)
	c.Since = time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.clients) >= maxClients {
		return nil, false
	}
	s.clients[r] = c
	ctx, cancel := context.WithCancel(ctx)
	r.close = func() {
		cancel()
		<-r.over
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.clients, r)
	}
	go func() { r.end(r.receive(ctx, s.runs, agent, run)) }()
	return r, true
}

// Reader is what one client gets of one run.
type Reader struct {
	close func()
	over  chan struct{} // closed when nothing more is received
	more  chan struct{} // has an element when there is something new to take
	room  chan struct{} // has an element when text was taken

	mu    sync.Mutex
	seq   uint64 // the position up to which the run was received
	state Frame  // waits, if it has a type
	void  Frame  // waits, if it has a type
	text  []byte // waits
	upto  uint64 // the position of text
	shown bool   // the client has text that a void takes back
	at    time.Time
	err   error // why nothing more is received; after over
}

func newReader(after uint64) *Reader {
	return &Reader{
		over: make(chan struct{}), more: make(chan struct{}, 1), room: make(chan struct{}, 1),
		seq: after, shown: after > 0,
	}
}

// Close ends following the run, and returns when that has ended. It may be called once.
func (r *Reader) Close() { r.close() }

// Next waits for the next frame until ctx ends. It returns io.EOF at the end of the run, and the
// error of a run that cannot be followed. What was said last and is not due yet is left out
// then: the reply, which follows, has it.
func (r *Reader) Next(ctx context.Context) (Frame, error) {
	for {
		f, wait := r.take()
		if f.Type != "" {
			return f, nil
		}
		select {
		case <-r.over:
			if f, _ := r.take(); f.Type != "" { // it came with the end
				return f, nil
			}
			return Frame{}, r.err
		default:
		}
		var due <-chan time.Time
		if wait > 0 {
			due = time.After(wait)
		}
		select {
		case <-r.more:
		case <-r.over:
		case <-due:
		case <-ctx.Done():
			return Frame{}, ctx.Err()
		}
	}
}

// take returns a frame that is due, or else when there is one; 0: that is not known.
func (r *Reader) take() (f Frame, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.state.Type != "":
		f, r.state = r.state, Frame{}
	case r.void.Type != "":
		f, r.void = r.void, Frame{}
	case len(r.text) == 0:
	default:
		if wait = interval - time.Since(r.at); wait > 0 {
			return f, wait
		}
		f = Frame{Type: Text, Seq: r.upto, Text: string(r.text)}
		r.text, r.at, r.shown = nil, time.Now(), true
		notify(r.room)
	}
	return f, 0
}

// notify leaves an element for who waits.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// receive takes over what happens in a run; io.EOF: to its end.
func (r *Reader) receive(ctx context.Context, runs Runs, agent, run string) error {
	for try := 0; ; try++ {
		had := r.seq
		err := r.read(ctx, runs, &runnerv1.StreamRunRequest{AgentId: agent, RunId: run, AfterSeq: had})
		if errors.Is(err, io.EOF) || ctx.Err() != nil || fault.From(err).Code != codes.Unavailable {
			return err
		}
		if r.seq > had {
			try = 0
		}
		if err := pause.For(ctx, again.Wait(try)); err != nil {
			return err
		}
	}
}

// read takes over one stream of a run.
func (r *Reader) read(ctx context.Context, runs Runs, req *runnerv1.StreamRunRequest) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in, err := runs.StreamRun(ctx, req)
	if err != nil {
		return err
	}
	for {
		i, err := in.Recv()
		if err != nil {
			return err
		}
		full, ended := r.add(i)
		if ended {
			return io.EOF
		}
		if !full {
			continue
		}
		select {
		case <-r.room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// add takes over one item; full: no more is to be added before a client has taken the text.
func (r *Reader) add(i *runnerv1.StreamRunResponse) (full, ended bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i.GetSeq() <= r.seq {
		return false, false
	}
	r.seq = i.GetSeq()
	phase := i.GetPhase()
	switch i.GetStream() {
	case runnerv1.RunStream_RUN_STREAM_ASSISTANT:
		if len(r.text) == 0 {
			notify(r.more)
		}
		r.text, r.upto = append(r.text, i.GetText()...), r.seq
		if full = len(r.text) >= maxText; full {
			select {
			case <-r.room: // of an earlier text
			default:
			}
		}
	case runnerv1.RunStream_RUN_STREAM_TOOL:
		if phase == "start" {
			r.voided()
		}
	case runnerv1.RunStream_RUN_STREAM_LIFECYCLE:
		switch phase {
		case "start":
			r.state = Frame{Type: State, Seq: r.seq, Text: Running}
			notify(r.more)
		case "restart":
			r.voided()
		case "end", "error":
			ended = true
		}
	default:
	}
	return full, ended
}

// voided drops the text so far; mu is held.
func (r *Reader) voided() {
	r.text = nil
	if r.shown {
		r.void, r.shown = Frame{Type: Void, Seq: r.seq}, false
		notify(r.more)
	}
}

// end notes why nothing more is received.
func (r *Reader) end(err error) {
	r.err = err
	close(r.over)
}
