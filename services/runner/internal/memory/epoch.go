package memory

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/theclaw/agents/internal/thread"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// InEpoch returns the layers of a conversation as an epoch has them that begins behind an
// event; 0: it is the whole thread. A digest of the thread from an earlier epoch becomes
// one that is empty and reaches up to that event, so that the next digest begins there.
func InEpoch(layers []*registrypb.MemoryState, from int64) []*registrypb.MemoryState {
	i := slices.IndexFunc(layers, func(s *registrypb.MemoryState) bool {
		return s.GetLayer() == registrypb.MemoryLayer_MEMORY_LAYER_THREAD
	})
	if i < 0 || !ofEarlier(layers[i], from) {
		return layers
	}
	layers = slices.Clone(layers)
	state := proto.CloneOf(layers[i])
	state.DigestedId, state.Content = from, ""
	layers[i] = state
	return layers
}

// ofEarlier reports whether a layer of a thread was digested before an epoch, or not at all.
func ofEarlier(s *registrypb.MemoryState, from int64) bool {
	return from > 0 && s.GetDigestedId() <= from
}

// LimitToEpoch makes a claim one of its epoch alone: the file of a digest from an earlier one is
// left out. The registry leaves it out too, but one that was stopped between the event that
// begins the epoch and the move of the file may have brought it.
func LimitToEpoch(claim *registrypb.BeginTurnResponse) {
	from := claim.GetEpochFromId()
	if state := Layer(claim.GetMemory(), registrypb.MemoryLayer_MEMORY_LAYER_THREAD); state != nil && ofEarlier(state, from) {
		claim.Files = slices.DeleteFunc(claim.GetFiles(), func(f *registrypb.ContextFile) bool { return f.GetName() == state.GetName() })
	}
	claim.Memory = InEpoch(claim.GetMemory(), from)
}

// EpochFrom is the event that begins the epoch which an event of a conversation belongs to; 0
// of upto is the newest event, and 0 is returned when the epoch begins with the thread.
func EpochFrom(ctx context.Context, threads Threads, agentID, threadID string, upto int64) (int64, error) {
	only := thread.EpochFilter
	if upto > 0 {
		only += fmt.Sprintf(" AND id <= %d", upto)
	}
	page, err := threads.PeekEvents(ctx, &registrypb.PeekEventsRequest{
		Thread: &registrypb.ThreadRef{AgentId: agentID, ThreadId: threadID}, Filter: only, Tail: true, Limit: 1,
	})
	if err != nil {
		return 0, fmt.Errorf("read where the epoch of %s begins: %w", threadID, err)
	}
	if list := page.GetEvents(); len(list) > 0 {
		return list[0].GetId(), nil
	}
	return 0, nil
}
