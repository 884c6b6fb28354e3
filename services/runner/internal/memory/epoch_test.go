package memory

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// A digest of the thread counts in an epoch only when it reaches into it; other layers
// always do, and so does every digest of a conversation without epochs.
func TestLimitToEpoch(t *testing.T) {
	const ofThread, ofPeer = registrypb.MemoryLayer_MEMORY_LAYER_THREAD, registrypb.MemoryLayer_MEMORY_LAYER_PEER
	for _, c := range []struct {
		name                 string
		digested, from, want int64
		shown                bool
	}{
		{"no epochs", 7, 0, 7, true},
		{"no epochs and no digest", 0, 0, 0, true},
		{"of the epoch", 7, 5, 7, true},
		{"of an earlier one", 5, 7, 7, false},
		{"up to the event that begins it", 7, 7, 7, false},
		{"never digested", 0, 7, 7, false},
	} {
		given := []*registrypb.MemoryState{
			{Layer: ofThread, Name: "memory/thread-x.md", DigestedId: c.digested, Compactions: 3, Version: "v", Content: "text"},
			{Layer: ofPeer, Name: "memory/user-x.md", DigestedId: 2, Compactions: 1, Content: "of the peer"},
		}
		before := proto.CloneOf(given[0])
		claim := &registrypb.BeginTurnResponse{EpochFromId: c.from, Memory: given, Files: []*registrypb.ContextFile{
			{Name: "IDENTITY.md"}, {Name: "memory/agent.md"}, {Name: "memory/user-x.md"}, {Name: "memory/thread-x.md"},
		}}
		LimitToEpoch(claim)
		state := Layer(claim.GetMemory(), ofThread)
		if state.GetDigestedId() != c.want || (state.GetContent() != "") != c.shown || state.GetCompactions() != 3 || state.GetVersion() != "v" {
			t.Errorf("%s: %v", c.name, state)
		}
		if peer := Layer(claim.GetMemory(), ofPeer); !proto.Equal(peer, given[1]) || len(claim.GetMemory()) != 2 {
			t.Errorf("%s: %v", c.name, claim.GetMemory())
		}
		var names []string
		for _, f := range claim.GetFiles() {
			names = append(names, f.GetName())
		}
		if slices.Contains(names, "memory/thread-x.md") != c.shown || !slices.Contains(names, "memory/user-x.md") || !slices.Contains(names, "memory/agent.md") {
			t.Errorf("%s: files %q", c.name, names)
		}
		if !proto.Equal(given[0], before) {
			t.Errorf("%s: the state that was given has changed to %v", c.name, given[0])
		}
	}
	if got := InEpoch(nil, 7); got != nil {
		t.Errorf("of no layers: %v", got)
	}
}
