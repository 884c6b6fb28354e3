//go:build proof

package inject_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// plain passes bytes on as they are, so that a text may be no UTF-8.
type plain struct{}

func (plain) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (plain) Unmarshal(b mem.BufferSlice, v any) error {
	*v.(*[]byte) = b.Materialize()
	return nil
}

func (plain) Name() string { return "proto" }

var _ encoding.CodecV2 = plain{}

// caller makes calls with one field hostile and the others as they should be.
type caller struct {
	t      testing.TB
	count  *count
	conns  map[string]*grpc.ClientConn // by package of the service
	leases map[registryv1.LeaseKind]*registryv1.Lease
	turn   *registryv1.PendingEvent // of the agent "held", under way
	fresh  int
}

// walk sends every id through every field of every method.
func (c *caller) walk(ids []string) {
	for _, pkg := range []string{"theclaw.registry.v1", "theclaw.runner.v1", "theclaw.deliverer.v1"} {
		protoregistry.GlobalFiles.RangeFilesByPackage(protoreflect.FullName(pkg), func(f protoreflect.FileDescriptor) bool {
			for i := range f.Services().Len() {
				for j := range f.Services().Get(i).Methods().Len() {
					c.method(f.Services().Get(i).Methods().Get(j), ids)
				}
			}
			return true
		})
	}
}

func (c *caller) method(m protoreflect.MethodDescriptor, ids []string) {
	in, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
	if err != nil {
		c.t.Fatal(err)
	}
	for _, path := range leaves(m.Input(), nil) {
		c.count.fields++
		for _, id := range ids {
			c.fresh++
			msg := in.New()
			c.fill(msg, m)
			c.call(m, path, send(c.t, msg, path, id), id)
		}
	}
}

// leaves are the ways to the texts and bytes of a message.
func leaves(d protoreflect.MessageDescriptor, above []protoreflect.FieldDescriptor) (out [][]protoreflect.FieldDescriptor) {
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		path := append(append([]protoreflect.FieldDescriptor{}, above...), f)
		switch {
		case f.IsMap(): // of texts by texts
			out = append(out, path)
		case f.Kind() == protoreflect.StringKind || f.Kind() == protoreflect.BytesKind:
			out = append(out, path)
		case f.Message() != nil && strings.HasPrefix(string(f.Message().FullName()), "theclaw."):
			out = append(out, leaves(f.Message(), path)...)
		}
	}
	return out
}

// fill makes a message that is right, as far as one can be without knowing more
// of a call than its names.
func (c *caller) fill(msg protoreflect.Message, m protoreflect.MethodDescriptor) {
	fields := msg.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.IsMap() {
			continue // those of a message are optional
		}
		if f.Message() != nil {
			switch name := f.Message().FullName(); {
			case name == "google.protobuf.Duration":
				d := durationpb.New(time.Millisecond)
				if f.Name() == "ttl" {
					d = durationpb.New(100 * time.Millisecond)
				}
				msg.Set(f, protoreflect.ValueOfMessage(d.ProtoReflect()))
			case strings.HasPrefix(string(name), "theclaw.") && f.IsList():
				c.fill(msg.Mutable(f).List().AppendMutable().Message(), m)
			case strings.HasPrefix(string(name), "theclaw.") && f.Name() != "create_agent":
				c.fill(msg.Mutable(f).Message(), m)
			}
			continue
		}
		v := c.value(f, m)
		switch {
		case !v.IsValid():
		case f.IsList():
			msg.Mutable(f).List().Append(v)
		default:
			msg.Set(f, v)
		}
	}
}

// value is what a field should hold; none where it is better left out.
func (c *caller) value(f protoreflect.FieldDescriptor, m protoreflect.MethodDescriptor) protoreflect.Value {
	held := m.Parent().Name() == "TurnService" || m.Parent().Name() == "DeliveryService" || m.Name() == "RequestApproval"
	switch f.Kind() {
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(f.Enum().Values().Get(1).Number())
	case protoreflect.Int64Kind, protoreflect.Int32Kind, protoreflect.Uint64Kind:
		n := int64(1)
		switch f.Name() {
		case "after_id", "page_size", "max_new", "steer_seq", "max_chars", "compactions", "digested_id", "at_event":
			n = 0
		case "seq":
			n = int64(c.fresh)
		case "token":
			n = int64(c.leases[registryv1.LeaseKind_LEASE_KIND_RUN].GetToken())
		}
		switch f.Kind() {
		case protoreflect.Int32Kind:
			return protoreflect.ValueOfInt32(int32(n))
		case protoreflect.Uint64Kind:
			return protoreflect.ValueOfUint64(uint64(n))
		}
		return protoreflect.ValueOfInt64(n)
	case protoreflect.BytesKind:
		if f.Name() == "request_sha256" {
			return protoreflect.ValueOfBytes(make([]byte, 32))
		}
		return protoreflect.ValueOfBytes([]byte("{}"))
	case protoreflect.StringKind:
		if text := c.text(f, m, held); text != "" {
			return protoreflect.ValueOfString(text)
		}
	}
	return protoreflect.Value{}
}

func (c *caller) text(f protoreflect.FieldDescriptor, m protoreflect.MethodDescriptor, held bool) string {
	lease := c.leases[registryv1.LeaseKind_LEASE_KIND_RUN]
	switch f.Name() {
	case "agent_id", "agent_ids":
		switch {
		case m.Name() == "CreateAgent": // one in eight is made
			return fmt.Sprintf("n%d", c.fresh/8)
		case held:
			return "held"
		}
		return "a1"
	case "thread_id":
		if held {
			return c.turn.GetThreadId()
		}
		return "inbox"
	case "key":
		switch {
		case m.Name() == "SetAgentConfig":
			return "pai.model"
		case f.ContainingMessage().Name() == "Step":
			return fmt.Sprintf("s%d", c.fresh)
		}
		return c.turn.GetKey()
	case "source":
		return world.Peer("p1")
	case "content":
		return world.Message("hello")
	case "name":
		if m.Name() == "ReadAgentFile" || m.Name() == "WriteAgentFile" {
			return "IDENTITY.md"
		}
		return "offline"
	case "idempotency_key", "request_id":
		return fmt.Sprintf("k%d", c.fresh)
	case "holder":
		return lease.GetHolder()
	case "resource":
		return lease.GetResource()
	case "type":
		return "message"
	case "level":
		return "INFO"
	case "peer":
		return "p1"
	case "arguments":
		return "{}"
	case "thinking":
		return "off"
	case "digest":
		return strings.Repeat("0", 64)
	case "page_token", "filter", "if_version", "base_version", "new_agent_id", "steer_key", "provider", "model", "subtype", "address":
		return ""
	}
	return "x1"
}

// send is the message with the text in its place. A text that is no UTF-8 is put
// there by hand, over another of the same length.
func send(t testing.TB, msg protoreflect.Message, path []protoreflect.FieldDescriptor, id string) []byte {
	text := id
	if !utf8.ValidString(id) {
		text = strings.Repeat("Zq", len(id)/2) + strings.Repeat("Z", len(id)%2)
	}
	at, last := msg, path[len(path)-1]
	for _, f := range path[:len(path)-1] {
		if f.IsList() {
			at = at.Mutable(f).List().Get(0).Message()
		} else {
			at = at.Mutable(f).Message()
		}
	}
	v := protoreflect.ValueOfString(text)
	if last.Kind() == protoreflect.BytesKind {
		v = protoreflect.ValueOfBytes([]byte(text))
	}
	switch {
	case last.IsMap():
		v = protoreflect.ValueOfString(text)
		at.Mutable(last).Map().Set(v.MapKey(), v)
	case last.IsList():
		list := at.NewField(last).List()
		list.Append(v)
		at.Set(last, protoreflect.ValueOfList(list))
	default:
		at.Set(last, v)
	}
	b, err := proto.Marshal(msg.Interface())
	if err != nil {
		t.Fatal(err)
	}
	if text != id {
		b = bytes.Replace(b, []byte(text), []byte(id), 1)
	}
	return b
}

func (c *caller) call(m protoreflect.MethodDescriptor, path []protoreflect.FieldDescriptor, request []byte, id string) {
	ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
	defer cancel()
	kind := registryv1.LeaseKind_LEASE_KIND_RUN
	if m.Parent().Name() == "DeliveryService" {
		kind = registryv1.LeaseKind_LEASE_KIND_DELIVER
	}
	if l := c.leases[kind]; m.Parent().Name() != "ThreadService" {
		ctx = rpc.WithFence(ctx, l.GetResource(), l.GetToken(), l.GetHolder())
	}
	name := fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name())
	conn := c.conns[string(m.ParentFile().Package())]
	var answer []byte
	var err error
	if m.IsStreamingServer() || m.IsStreamingClient() {
		answer, err = stream(ctx, conn, name, request)
	} else {
		err = conn.Invoke(ctx, name, request, &answer, grpc.ForceCodecV2(plain{}))
	}
	c.count.judge(c.t, fmt.Sprintf("%s %s", name, path[len(path)-1].Name()), id, answer, err)
}

// stream makes a call with a stream and reads what comes soon.
func stream(ctx context.Context, conn *grpc.ClientConn, name string, request []byte) (answer []byte, err error) {
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, name, grpc.ForceCodecV2(plain{}))
	if err != nil {
		return nil, err
	}
	if err := s.SendMsg(request); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := s.CloseSend(); err != nil {
		return nil, err
	}
	for range 3 { // the start of what may have no end
		var part []byte
		if err := s.RecvMsg(&part); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return answer, err
		}
		answer = append(answer, part...)
	}
	return answer, nil
}

// unread is how gRPC itself refuses a message that is no message: none of our code
// has seen it.
func unread(err error) bool {
	return status.Code(err) == codes.Internal && strings.Contains(err.Error(), "contains invalid UTF-8")
}
