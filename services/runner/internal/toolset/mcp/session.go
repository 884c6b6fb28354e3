package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/theclaw/agents/internal/boundary"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/secret"
)

const (
	// startLimit bounds a start with the list of tools: programs that fetch themselves take long.
	startLimit = time.Minute
	// pingEvery is the time between two pings; a server that misses maxMissed has ended. From noPings on the
	// protocol has none.
	pingEvery = 15 * time.Second
	maxMissed = 2
	noPings   = "2026-07-28"
	// maxCall bounds a call that reports progress.
	maxCall = 10 * time.Minute
	// answerWait is how long the end of a connection may take to be seen after a call has failed.
	answerWait = 500 * time.Millisecond
	// maxProgress bounds what is shown of one report of progress, in bytes.
	maxProgress = 4 << 10
)

var (
	errAuth    = errors.New("it refuses its credentials")
	errUnsent  = errors.New("its credentials cannot be sent")
	errStopped = errors.New("it was stopped")
	errTimeout = errors.New("it took too long")
)

// endedError is the error of a call whose server has ended.
type endedError struct {
	why   string
	begun bool // the server may have begun the call
}

// Error implements error.
func (e *endedError) Error() string { return e.why }

// unansweredError is the error of a call that its server has not answered, though its session goes on.
type unansweredError struct {
	why   string
	begun bool // the server may have begun the call
	again bool // the same call may be answered a little later
}

// Error implements error.
func (e *unansweredError) Error() string { return e.why }

// launch is what a start needs.
type launch struct {
	server  *registrypb.McpServer
	secrets []*registrypb.Secret
	// workdir is the working directory of the agent where the server starts in it, else empty; sandboxMode is the
	// mode of its sandbox.
	workdir, sandboxMode string
	// sent are the values that the server was given, by their names, which no text of it may show.
	sent secret.Sent
}

// transport is a way to a server: a process of ours, or requests to a URL.
type transport interface {
	sdk.Transport
	// end ends the server's process, or all requests, and does not wait.
	end()
	// failure ends as end does and waits. It returns why the server has failed, where err is what the protocol
	// says, and whether it has refused its credentials.
	failure(err error) (why string, refused bool)
}

// session is a connection to a server whose tools were read.
type session struct {
	client   *sdk.ClientSession
	sent     secret.Sent
	protocol string
	ended    chan struct{} // closed at the end; then err is set
	err      error
	changed  chan struct{} // has one value when the server says that its tools have changed

	transport transport

	mu       sync.Mutex
	tools    map[string]string // the hash of each description, by name, as the server has them now
	next     int               // token of progress
	progress map[string]func(text string)
}

// connect starts a server and connects to it.
func (s *server) connect(ctx context.Context, p launch) (*session, error) {
	x := &session{sent: p.sent, ended: make(chan struct{}), changed: make(chan struct{}, 1), progress: map[string]func(string){}}
	client := sdk.NewClient(&sdk.Implementation{Name: "theclaw", Version: "1"}, &sdk.ClientOptions{
		Capabilities: &sdk.ClientCapabilities{}, MultiRoundTrip: &sdk.MultiRoundTripOptions{Disabled: true},
		ToolListChangedHandler:      func(context.Context, *sdk.ToolListChangedRequest) { x.readAgain() },
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) { x.progressed(r.Params) },
	})
	var err error
	if len(p.server.GetCommand()) > 0 {
		x.transport, err = s.process(p)
	} else {
		x.transport, err = s.remote(p)
	}
	if err != nil {
		return nil, err
	}
	if r, ok := x.transport.(*remote); ok { // Connect waits for the answer to a request for a stream without regard to ctx
		defer context.AfterFunc(ctx, r.end)()
	}
	if x.client, err = client.Connect(ctx, x.transport, nil); err != nil {
		return nil, x.failure(err)
	}
	if r := x.client.InitializeResult(); r != nil {
		x.protocol = clean(r.ProtocolVersion)
	}
	go func() {
		x.err = x.failure(cmp.Or(x.client.Wait(), errStopped))
		close(x.ended)
	}()
	return x, nil
}

// failure ends the server, and returns why it has ended.
func (x *session) failure(err error) error {
	why, refused := x.transport.failure(err)
	if err = errors.New(x.sent.Without(why)); refused {
		return fmt.Errorf("%w: %w", errAuth, err)
	}
	return err
}

// endsSoon reports whether the session has ended, which is seen a moment after what it was used for has failed.
func (x *session) endsSoon() bool {
	wait := time.NewTimer(answerWait)
	defer wait.Stop()
	select {
	case <-x.ended:
		return true
	case <-wait.C:
		return false
	}
}

// alive reports whether the session has not ended.
func (x *session) alive() bool {
	select {
	case <-x.ended:
		return false
	default:
		return true
	}
}

// close ends the session and its process, and waits for it. Open calls fail: to close the session first would wait
// for them.
func (x *session) close() {
	x.transport.end()
	_ = x.client.Close() // Wait has the error
	<-x.ended
}

// progressed passes a report on to its call.
func (x *session) progressed(p *sdk.ProgressNotificationParams) {
	token, _ := p.ProgressToken.(string)
	x.mu.Lock()
	f := x.progress[token]
	x.mu.Unlock()
	if f != nil {
		f(p.Message)
	}
}

// differs is why a tool cannot be called as it was approved; empty: it can.
func (x *session) differs(server, name, sha string) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch now, ok := x.tools[name]; {
	case x.tools == nil:
		return "the tools of its server cannot be read after they have changed; call it again later"
	case !ok:
		return "its server does not offer it any more"
	case now != sha:
		return fmt.Sprintf("its server has changed it since it was approved. A person has to approve it: 'agentctl mcp approve %s'", server)
	}
	return ""
}

// call calls a tool. A report of progress gives it the time of a call again. The error is an [*unansweredError], the
// cause of ctx, an [*endedError], a [*jsonrpc.Error] of the server, or that its answer is not understood.
func (x *session) call(ctx context.Context, name string, args json.RawMessage, limit time.Duration, progress func(string)) (*sdk.CallToolResult, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over := func() { cancel(errTimeout) }
	timer, last := time.AfterFunc(limit, over), time.AfterFunc(maxCall, over)
	defer timer.Stop()
	defer last.Stop()
	x.mu.Lock()
	x.next++
	token := strconv.Itoa(x.next)
	x.progress[token] = func(text string) {
		timer.Reset(limit)
		if text, _ = boundary.Text(x.sent.Without(clean(text)), maxProgress); progress != nil && text != "" {
			progress(text + "\n")
		}
	}
	x.mu.Unlock()
	defer func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		delete(x.progress, token)
	}()
	var sent exchange
	ctx = context.WithValue(ctx, exchangeKey{}, &sent)
	params := &sdk.CallToolParams{Name: name, Arguments: args}
	params.SetProgressToken(token)
	r, err := x.client.CallTool(ctx, params)
	_, answered := errors.AsType[*jsonrpc.Error](err)
	failed := sent.failure()
	switch {
	case err == nil:
		return r, nil
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), errTimeout):
		return nil, sent.late()
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case failed != nil:
		failed.why = x.sent.Without(clean(failed.why))
		return nil, failed
	case answered && !sent.lost() && !errors.Is(err, sdk.ErrConnectionClosed):
		return nil, err
	}
	if x.endsSoon() {
		return nil, &endedError{x.err.Error(), !sent.missed()}
	}
	return nil, errors.New("its answer is not understood: " + x.sent.Without(clean(err.Error())))
}
