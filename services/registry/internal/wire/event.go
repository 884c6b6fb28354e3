package wire

import (
	"fmt"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Bad is the answer to an argument that cannot be used.
func Bad(what, fix string) error {
	return fault.New(codes.InvalidArgument, fault.InvalidArgument, what, fix)
}

// ErrNotText refuses an event that no answer could carry.
var ErrNotText = fault.New(codes.InvalidArgument, fault.InvalidArgument, "the event is not valid UTF-8", "encode it as UTF-8")

// TooLarge refuses the content of an event for its size.
func TooLarge(content string) error {
	return fault.New(codes.InvalidArgument, fault.EventTooLarge, fmt.Sprintf("the event has %d bytes; the limit is %d", len(content), thread.MaxEvent), "send less, or put it into a file and send its name")
}

// Events are events as an answer carries them.
func Events(in []thread.Event) []*registryv1.Event {
	out := make([]*registryv1.Event, len(in))
	for i, e := range in {
		out[i] = Event(e)
	}
	return out
}

// Event is one.
func Event(e thread.Event) *registryv1.Event {
	out := &registryv1.Event{Id: e.ID, CreatedAt: Text(e.CreatedAt), Source: Text(e.Source), Type: Text(e.Type), Content: Text(e.Content)}
	if e.Subtype != nil {
		out.Subtype = new(Text(*e.Subtype))
	}
	return out
}
