// Package direct makes calls between services that share a process: a unary call
// goes to the handler itself, in the goroutine of its caller.
//
//	caller --> Conn --> Server --> the server's chain --> handler
//	             |
//	             +--> Far: streams, and what the server does not have
//
// It promises that a direct call differs from one over a socket only by the time it takes.
// It passes the same interceptors: it is counted, checked by the same access table, given
// the same deadline and validated by the same rules. Messages are copied, in both
// directions, and refused when they are not valid text or too large, as over a socket. Of
// the caller's context a handler sees the deadline, the cancellation and the metadata, and
// nothing else. A server that drains refuses new calls and waits for those under way.
//
// There is no token: code in the process could read it anyway. The caller's identity is
// what the program set when it made the Conn.
//
// A direct call is not retried when the service is unavailable, and appears in no trace;
// a program that traces does not use the package.
package direct

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/theclaw/agents/internal/rpc"
)

// Server accepts the calls of its own process for a gRPC server. Safe for concurrent use; of a
// nil one a server has none.
type Server struct {
	mu      sync.Mutex
	methods map[string]method
	chain   grpc.UnaryServerInterceptor
	calls   map[*call]context.CancelFunc // under way
	state   state
	idle    chan struct{} // closed when it is closed and no call is under way
}

type state int

const (
	unopened state = iota
	open
	closed
)

type method struct {
	service any
	handler grpc.MethodHandler
}

// NewServer returns a Server for [serve.Options]; calls go over the socket until it is open.
func NewServer() *Server {
	return &Server{methods: map[string]method{}, calls: map[*call]context.CancelFunc{}, idle: make(chan struct{})}
}

// RegisterService notes the unary methods of a service.
func (d *Server) RegisterService(desc *grpc.ServiceDesc, service any) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range desc.Methods {
		d.methods["/"+desc.ServiceName+"/"+m.MethodName] = method{service, m.Handler}
	}
}

// Open begins to take calls, through the chain of a server, outermost first.
func (d *Server) Open(chain ...grpc.UnaryServerInterceptor) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.chain, d.state = Chained(chain), open
}

// Close refuses new calls.
func (d *Server) Close() {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state != closed && len(d.calls) == 0 {
		close(d.idle)
	}
	d.state = closed
}

// Wait answers when a closed direct server has no call under way.
func (d *Server) Wait() {
	if d != nil {
		<-d.idle
	}
}

// End ends the contexts of all calls under way.
func (d *Server) End() {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, cancel := range d.calls {
		cancel()
	}
}

// enter takes a call; false when the direct server has no such method or does not take calls yet.
func (d *Server) enter(c *call, name string, cancel context.CancelFunc) (method, bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m, ok := d.methods[name]
	switch {
	case !ok || d.state == unopened:
		return m, false, nil
	case d.state == closed:
		return m, true, status.Error(codes.Unavailable, "the service is going down")
	}
	d.calls[c] = cancel
	return m, true, nil
}

func (d *Server) leave(c *call) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.calls, c)
	if d.state == closed && len(d.calls) == 0 {
		close(d.idle)
	}
}

// Chained is one interceptor made of several, each of which calls the next at most once.
// It makes one thing for a call; gRPC's own chain makes one for each step.
func Chained(all []grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, last grpc.UnaryHandler) (any, error) {
		w := &way{left: all, info: info, last: last}
		w.next = w.step
		return w.step(ctx, req)
	}
}

// way is how far a call has come.
type way struct {
	left []grpc.UnaryServerInterceptor
	info *grpc.UnaryServerInfo
	last grpc.UnaryHandler
	next grpc.UnaryHandler // step
}

func (w *way) step(ctx context.Context, req any) (any, error) {
	if len(w.left) == 0 {
		return w.last(ctx, req)
	}
	at := w.left[0]
	w.left = w.left[1:]
	return at(ctx, req, w.info, w.next)
}

// Conn is a connection of a service to a direct server of its process.
type Conn struct {
	Server  *Server
	As      rpc.Identity             // who calls
	Far     grpc.ClientConnInterface // a connection to the same server, for the rest
	Timeout time.Duration            // of calls without a deadline; 0: 10 s
}

const defaultTimeout = 10 * time.Second

// NewStream opens a stream over the socket.
func (c *Conn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return c.Far.NewStream(ctx, desc, method, opts...)
}

// Invoke calls the method of the direct server.
func (c *Conn) Invoke(ctx context.Context, name string, args, reply any, opts ...grpc.CallOption) error {
	in, ok1 := args.(proto.Message)
	out, ok2 := reply.(proto.Message)
	if !ok1 || !ok2 {
		return status.Errorf(codes.Internal, "call %s: %T and %T are not both messages", name, args, reply)
	}
	call := &call{Context: ctx, as: c.As}
	var inside context.Context
	var cancel context.CancelFunc
	if _, ok := ctx.Deadline(); ok {
		inside, cancel = context.WithCancel(call)
	} else {
		inside, cancel = context.WithTimeout(call, c.timeout())
	}
	defer cancel()
	m, here, err := c.Server.enter(call, name, cancel)
	if !here {
		return c.Far.Invoke(ctx, name, args, reply, opts...)
	}
	if err != nil {
		return err
	}
	defer c.Server.leave(call)
	resp, err := m.handler(m.service, metadata.NewIncomingContext(inside, sent(ctx)), func(req any) error { return pass(req.(proto.Message), in) }, c.Server.chain)
	if err != nil {
		return status.Convert(err).Err()
	}
	return pass(out, resp.(proto.Message))
}

func (c *Conn) timeout() time.Duration {
	if c.Timeout == 0 {
		return defaultTimeout
	}
	return c.Timeout
}

// sent is the metadata that a call carries, with the id of the request it belongs to.
func sent(ctx context.Context) metadata.MD {
	md, _ := metadata.FromOutgoingContext(ctx) // a copy
	id := rpc.RequestID(ctx)
	if id == "" {
		return md
	}
	if md == nil {
		md = metadata.MD{}
	}
	md.Set(rpc.MetaRequestID, id)
	return md
}

var buffers = sync.Pool{New: func() any { return new([]byte) }}

// pass copies a message as a socket would, which is where one is refused that has text
// that is no text, or that is too large.
func pass(to, from proto.Message) error {
	b := buffers.Get().(*[]byte)
	defer buffers.Put(b)
	var err error
	if *b, err = (proto.MarshalOptions{}).MarshalAppend((*b)[:0], from); err != nil {
		return status.Errorf(codes.Internal, "pass message: %v", err)
	}
	if n := len(*b); n > rpc.MaxMessage {
		return status.Errorf(codes.ResourceExhausted, "pass message: %d bytes; the limit is %d", n, rpc.MaxMessage)
	}
	if cap(*b) > keptBuffer {
		*b = nil
	}
	proto.Merge(to, from)
	return nil
}

// keptBuffer is the largest buffer that is used again.
const keptBuffer = 256 << 10

// call is the context of a call on its way in.
type call struct {
	context.Context // the caller's: its deadline and its end
	as              rpc.Identity
}

type callKey struct{}

// Value hides what the caller's context carries.
func (c *call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return nil
}

// AfterFunc lets a context that is made of this one learn of its end without a
// goroutine for each.
func (c *call) AfterFunc(f func()) func() bool { return context.AfterFunc(c.Context, f) }

// Caller is who makes the call being handled; false when it came over a socket.
func Caller(ctx context.Context) (rpc.Identity, bool) {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return rpc.Identity{}, false
	}
	return c.as, true
}
