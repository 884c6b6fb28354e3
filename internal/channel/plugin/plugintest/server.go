package plugintest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	channelv1 "github.com/theclaw/agents/proto/gen/theclaw/channel/v1"
)

// maxOpen is how many updates are sent that are not confirmed.
const maxOpen = 200

// Default is a plugin that can do everything.
func Default() *channelv1.DescribeResponse {
	return &channelv1.DescribeResponse{
		Identity: "bot-1", Name: "@demo_bot", MaxText: 500, TextUnit: channelv1.TextUnit_TEXT_UNIT_UTF16, Guarantee: channelv1.Guarantee_GUARANTEE_KEYED,
		Capabilities: &channelv1.Capabilities{Edit: true, Delete: true, React: true, Find: true, Buttons: true, TypingEvery: durationpb.New(2 * time.Second)},
	}
}

// Message is a message that the account sent, as its session shows it now.
type Message struct {
	ID, Session, Thread, Key, Text, Mark string
	Buttons                              []*channelv1.Button
	Part                                 int32
	More, MaybeDuplicate                 bool
}

// Stats are what a server counted.
type Stats struct {
	Updates   int // that people caused
	Confirmed int
	Lost      int // confirmed and never sent
	Streams   int
	Sends     int // calls of Send, also those that failed
	Probes    int
	Typing    int
}

// Fault makes calls of a method fail.
type Fault struct {
	Method     string // such as Send
	Code       codes.Code
	Message    string
	RetryAfter time.Duration // with a RetryInfo; 0: without
	After      bool          // the call has its effect
	Hang       bool          // the call is not answered
	Times      int           // negative: always
}

// Server is a plugin. It is safe for concurrent use.
type Server struct {
	channelv1.UnimplementedChannelPluginServiceServer

	dir string // to remove

	mu       sync.Mutex
	server   *grpc.Server // nil: it is stopped
	served   chan struct{}
	changed  chan struct{} // closed and replaced at each change
	describe *channelv1.DescribeResponse
	next     int
	queue    []*channelv1.ReceiveResponse // that are not confirmed
	sent     int                          // the greatest position that was sent
	first    []string                     // positions with which streams began
	takeover chan struct{}                // closed when another stream begins
	sessions map[string]bool
	messages []*Message
	made     int // messages
	files    map[string][]byte
	faults   []*Fault
	stats    Stats
}

// Start serves a plugin until Close; nil: [Default].
func Start(d *channelv1.DescribeResponse) (*Server, error) {
	dir, err := os.MkdirTemp("", "plugin")
	if err != nil {
		return nil, err
	}
	if d == nil {
		d = Default()
	}
	s := &Server{
		dir: dir, changed: make(chan struct{}), describe: d, takeover: make(chan struct{}), sessions: map[string]bool{}, files: map[string][]byte{},
	}
	if err := s.Serve(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

// Address is the socket, for the setting plugin.
func (s *Server) Address() string { return "unix:" + filepath.Join(s.dir, "s") }

// Serve starts it again after Stop.
func (s *Server) Serve() error {
	l, err := net.Listen("unix", filepath.Join(s.dir, "s"))
	if err != nil {
		return fmt.Errorf("serve a plugin: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	server, served := grpc.NewServer(grpc.ChainUnaryInterceptor(s.unary), grpc.ChainStreamInterceptor(s.stream)), make(chan struct{})
	channelv1.RegisterChannelPluginServiceServer(server, s)
	s.server, s.served = server, served
	go func() {
		defer close(served)
		_ = server.Serve(l) // ends with Stop
	}()
	return nil
}

// Stop ends all calls, as a kill does. What is not confirmed stays.
func (s *Server) Stop() {
	s.mu.Lock()
	server, served := s.server, s.served
	s.server = nil
	s.mu.Unlock()
	if server != nil {
		server.Stop()
		<-served
	}
}

// Close ends it.
func (s *Server) Close() {
	s.Stop()
	_ = os.RemoveAll(s.dir) // a temporary directory
}

// touch wakes those who wait for a change. The lock is held.
func (s *Server) touch() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Set changes what the plugin says about itself.
func (s *Server) Set(d *channelv1.DescribeResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.describe = d
}

// Say makes a person write. Position, and message_id where it is empty, are chosen here. It returns
// the message_id.
func (s *Server) Say(u *channelv1.ReceiveResponse) string {
	return s.say(u, true)
}

// SayNameless makes a person write a message to which the plugin gives no message_id, which is against the rules.
func (s *Server) SayNameless(u *channelv1.ReceiveResponse) { s.say(u, false) }

func (s *Server) say(u *channelv1.ReceiveResponse, named bool) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	u = proto.CloneOf(u)
	s.next++
	u.Position = strconv.Itoa(s.next)
	if u.GetMessageId() == "" && named {
		u.MessageId = "m" + u.GetPosition()
	}
	s.sessions[u.GetConversation().GetSessionId()] = true
	s.queue = append(s.queue, u)
	s.stats.Updates++
	s.touch()
	return u.GetMessageId()
}

// Direct is a message of a person in the direct conversation with the account, which has another id
// than the person.
func Direct(peer, text string) *channelv1.ReceiveResponse {
	return &channelv1.ReceiveResponse{
		Conversation: &channelv1.Conversation{Kind: channelv1.Kind_KIND_DM, SessionId: DirectOf(peer)}, PeerId: peer, PeerName: "Person " + peer, Text: text,
	}
}

// DirectOf is the id of the direct conversation with a person.
func DirectOf(peer string) string { return "dm-" + peer }

// AddFile makes the data of an attachment known.
func (s *Server) AddFile(id string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[id] = data
}

// Fail makes calls fail from now on.
func (s *Server) Fail(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &f)
}

// Heal ends all faults.
func (s *Server) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// Messages are what the account sent, in their order; empty: in all sessions.
func (s *Server) Messages(session string) (list []Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.messages {
		if session == "" || m.Session == session {
			list = append(list, *m)
		}
	}
	return list
}

// Stats returns the counts.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// First are the positions with which streams began.
func (s *Server) First() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.first)
}

// Wait waits until a condition holds, which is checked after each change. The condition may call the
// methods of s.
func (s *Server) Wait(ctx context.Context, holds func() bool) error {
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		if holds() {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the account: %w", ctx.Err())
		case <-changed:
		}
	}
}

// fault is the failure of a call now; nil: none.
func (s *Server) fault(method string) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.faults {
		if f.Method == method && f.Times != 0 {
			f.Times--
			return f
		}
	}
	return nil
}

func (f *Fault) error(ctx context.Context) error {
	if f.Hang {
		<-ctx.Done()
		return ctx.Err()
	}
	st := status.New(f.Code, f.Message)
	if f.RetryAfter > 0 {
		st, _ = st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(f.RetryAfter)})
	}
	return st.Err()
}

func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	method := path.Base(info.FullMethod)
	s.mu.Lock()
	switch method {
	case "Send":
		s.stats.Sends++
	case "Probe":
		s.stats.Probes++
	}
	s.touch()
	s.mu.Unlock()
	f := s.fault(method)
	if f == nil {
		return next(ctx, req)
	}
	if f.After {
		if r, err := next(ctx, req); err != nil {
			return r, err
		}
	}
	return nil, f.error(ctx)
}

func (s *Server) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if f := s.fault(path.Base(info.FullMethod)); f != nil {
		return f.error(ss.Context())
	}
	return next(srv, ss)
}

// Describe implements the service.
func (s *Server) Describe(context.Context, *channelv1.DescribeRequest) (*channelv1.DescribeResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.describe, nil
}

// Receive implements the service.
func (s *Server) Receive(stream grpc.BidiStreamingServer[channelv1.ReceiveRequest, channelv1.ReceiveResponse]) error {
	begin, err := stream.Recv()
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.first = append(s.first, begin.GetPosition())
	close(s.takeover)
	s.takeover = make(chan struct{})
	mine := s.takeover
	s.stats.Streams++
	s.touch()
	s.mu.Unlock()
	ended := make(chan error, 1)
	go func() {
		for {
			r, err := stream.Recv()
			if err == nil {
				err = s.confirm(r.GetPosition())
			}
			if err != nil {
				ended <- err
				return
			}
		}
	}()
	for sent := 0; ; {
		s.mu.Lock()
		changed := s.changed
		var u *channelv1.ReceiveResponse
		open := 0
		for _, q := range s.queue {
			n, _ := strconv.Atoi(q.GetPosition())
			if n <= sent {
				open++
				continue
			}
			if open < maxOpen {
				u, sent = q, n
				s.sent = max(s.sent, n)
			}
			break
		}
		s.mu.Unlock()
		if u != nil {
			if err := stream.Send(u); err != nil {
				return err
			}
			continue
		}
		select {
		case <-changed:
		case err := <-ended:
			return err
		case <-mine:
			return status.Error(codes.Aborted, "another program reads for the same bot")
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// confirm removes what is stored.
func (s *Server) confirm(position string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	upTo, err := strconv.Atoi(position)
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "%q is no position", position)
	}
	for len(s.queue) > 0 {
		n, _ := strconv.Atoi(s.queue[0].GetPosition())
		if n > upTo {
			break
		}
		if n > s.sent {
			s.stats.Lost++
		}
		s.stats.Confirmed++
		s.queue = s.queue[1:]
	}
	s.touch()
	return nil
}

// ReadAttachment implements the service.
func (s *Server) ReadAttachment(r *channelv1.ReadAttachmentRequest, stream grpc.ServerStreamingServer[channelv1.ReadAttachmentResponse]) error {
	s.mu.Lock()
	data, ok := s.files[r.GetId()]
	s.mu.Unlock()
	if !ok {
		return status.Error(codes.NotFound, "there is no such file")
	}
	for piece := range slices.Chunk(data, 256<<10) {
		if err := stream.Send(&channelv1.ReadAttachmentResponse{Data: piece}); err != nil {
			return err
		}
	}
	return nil
}

// check refuses what a platform refuses. The lock is held.
func (s *Server) check(to *channelv1.Target, text string, able bool) error {
	n := utf8.RuneCountInString(text)
	if s.describe.GetTextUnit() == channelv1.TextUnit_TEXT_UNIT_UTF16 {
		n = len(utf16.Encode([]rune(text)))
	}
	switch session := to.GetConversation().GetSessionId(); {
	case !able:
		return status.Error(codes.Unimplemented, "the platform cannot do this")
	case !s.sessions[session]:
		return status.Errorf(codes.NotFound, "there is no session %q", session)
	case n > int(s.describe.GetMaxText()):
		return status.Errorf(codes.InvalidArgument, "the text has %d units", n)
	}
	return nil
}

// Send implements the service.
func (s *Server) Send(_ context.Context, r *channelv1.SendRequest) (*channelv1.SendResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.check(r.GetTarget(), r.GetText(), true); err != nil {
		return nil, err
	}
	if g := s.describe.GetGuarantee(); g == channelv1.Guarantee_GUARANTEE_KEYED || g == channelv1.Guarantee_GUARANTEE_QUERY && r.GetMaybeDuplicate() {
		if i := slices.IndexFunc(s.messages, func(m *Message) bool { return m.Key == r.GetKey() }); i >= 0 {
			return &channelv1.SendResponse{MessageId: s.messages[i].ID}, nil
		}
	}
	s.made++
	m := &Message{
		ID: fmt.Sprint("b", s.made), Session: r.GetTarget().GetConversation().GetSessionId(), Thread: r.GetTarget().GetConversation().GetThread(),
		Key: r.GetKey(), Text: r.GetText(), Buttons: r.GetButtons(), Part: r.GetPart(), More: r.GetMore(), MaybeDuplicate: r.GetMaybeDuplicate(),
	}
	s.messages = append(s.messages, m)
	s.touch()
	return &channelv1.SendResponse{MessageId: m.ID}, nil
}

// message is one of a session. The lock is held.
func (s *Server) message(to *channelv1.Target, id string) (*Message, error) {
	i := slices.IndexFunc(s.messages, func(m *Message) bool { return m.ID == id && m.Session == to.GetConversation().GetSessionId() })
	if i < 0 {
		return nil, status.Errorf(codes.NotFound, "there is no message %q", id)
	}
	return s.messages[i], nil
}

// Edit implements the service.
func (s *Server) Edit(_ context.Context, r *channelv1.EditRequest) (*channelv1.EditResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.check(r.GetTarget(), r.GetText(), s.describe.GetCapabilities().GetEdit()); err != nil {
		return nil, err
	}
	m, err := s.message(r.GetTarget(), r.GetMessageId())
	if err != nil {
		return nil, err
	}
	m.Text = r.GetText()
	s.touch()
	return &channelv1.EditResponse{}, nil
}

// Delete implements the service.
func (s *Server) Delete(_ context.Context, r *channelv1.DeleteRequest) (*channelv1.DeleteResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.check(r.GetTarget(), "", s.describe.GetCapabilities().GetDelete()); err != nil {
		return nil, err
	}
	s.messages = slices.DeleteFunc(s.messages, func(m *Message) bool { return m.ID == r.GetMessageId() })
	s.touch()
	return &channelv1.DeleteResponse{}, nil
}

// SetTyping implements the service.
func (s *Server) SetTyping(_ context.Context, r *channelv1.SetTypingRequest) (*channelv1.SetTypingResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.check(r.GetTarget(), "", s.describe.GetCapabilities().GetTypingEvery() != nil); err != nil {
		return nil, err
	}
	s.stats.Typing++
	s.touch()
	return &channelv1.SetTypingResponse{}, nil
}

// React implements the service: it marks the messages of the account, which are the only ones that a
// test sees.
func (s *Server) React(_ context.Context, r *channelv1.ReactRequest) (*channelv1.ReactResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.check(r.GetTarget(), "", s.describe.GetCapabilities().GetReact()); err != nil {
		return nil, err
	}
	m, err := s.message(r.GetTarget(), r.GetMessageId())
	if err != nil {
		return nil, err
	}
	m.Mark = r.GetMark()
	s.touch()
	return &channelv1.ReactResponse{}, nil
}

// Find implements the service.
func (s *Server) Find(_ context.Context, r *channelv1.FindRequest) (*channelv1.FindResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.describe.GetCapabilities().GetFind() {
		return nil, status.Error(codes.Unimplemented, "the platform cannot do this")
	}
	if session := DirectOf(r.GetPeerId()); s.sessions[session] {
		return &channelv1.FindResponse{SessionId: session}, nil
	}
	return nil, status.Error(codes.NotFound, "there is no such person")
}

// Probe implements the service.
func (s *Server) Probe(context.Context, *channelv1.ProbeRequest) (*channelv1.ProbeResponse, error) {
	return &channelv1.ProbeResponse{}, nil
}
