package registry_test

import (
	"context"
	"testing"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// The digest of an earlier epoch is in no answer, is moved by the first call
// that the runner of the agent makes, and makes no part of the next digest. One that is
// committed late goes to the past ones. The peer's memory stays.
func TestMemoryInEpochs(t *testing.T) { backendtest.Each(t, testMemoryInEpochs) }

func testMemoryInEpochs(t *testing.T, o backendtest.Options) {
	const (
		bob   = "threads/peers/main-bob"
		file  = "memory/thread-threads%2Fpeers%2Fmain-bob.md"
		past  = "memory/past/thread-threads%2Fpeers%2Fmain-bob"
		peers = "memory/user-main-bob.md"
	)
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	w.Push("a1", "bob", "hello", "")
	w.Answer("a1", "hi bob")
	w.Push("a1", "bob", "waits, so that there is work", "")
	ctx := w.Leased("a1", "r1")
	read := func(name string) (text, version string) {
		t.Helper()
		r, err := w.Agents.ReadAgentFile(t.Context(), &registryv1.ReadAgentFileRequest{AgentId: "a1", Name: name})
		return string(backendtest.Must(t, r, err).GetContent()), r.GetVersion()
	}
	record := func(layer registryv1.MemoryLayer, n, upto int64, base, text string) (*registryv1.RecordCompactionResponse, error) {
		return w.Turns.RecordCompaction(ctx, &registryv1.RecordCompactionRequest{
			AgentId: "a1", ThreadId: bob, Layer: layer, Compactions: n, DigestedId: upto, BaseVersion: base, Text: text, Strategy: "summarise",
		})
	}
	const ofThread, ofPeer = registryv1.MemoryLayer_MEMORY_LAYER_THREAD, registryv1.MemoryLayer_MEMORY_LAYER_PEER
	content := func(list []*registryv1.MemoryState, l registryv1.MemoryLayer) string {
		for _, m := range list {
			if m.GetLayer() == l {
				return m.GetContent()
			}
		}
		return "no such layer"
	}
	memory := func(ctx context.Context) []*registryv1.MemoryState {
		t.Helper()
		r, err := w.Turns.GetMemory(ctx, &registryv1.GetMemoryRequest{AgentId: "a1", ThreadId: bob})
		return backendtest.Must(t, r, err).GetMemory()
	}
	same := func(name, want string) {
		t.Helper()
		if text, _ := read(name); text != want {
			t.Errorf("%s holds %q, want %q", name, text, want)
		}
	}

	r, err := record(ofThread, 0, 1, agentdir.NoFile, "first\n")
	if got := content(backendtest.Must(t, r, err).GetMemory(), ofThread); got != "first\n" {
		t.Fatalf("the first digest: %q", got)
	}
	r, err = record(ofPeer, 0, 1, agentdir.NoFile, "of bob\n")
	backendtest.Must(t, r, err)
	_, base := read(file)

	kind := "session"
	begun, err := w.Threads.PushEvents(ctx, &registryv1.PushEventsRequest{
		Thread: &registryv1.ThreadRef{AgentId: "a1", ThreadId: bob},
		Events: []*registryv1.NewEvent{{Source: "self", Type: "record", Subtype: &kind, Content: `{"session_id":"02","previous":"01","reason":"reset","by":"owner"}`}},
	})
	epoch := backendtest.Must(t, begun, err).GetEventIds()[0]

	// The digest that followed the last turn of the epoch comes now, and twice.
	for range 2 {
		r, err := record(ofThread, 1, 2, base, "late\n")
		if got := backendtest.Must(t, r, err).GetMemory(); content(got, ofThread) != "" || content(got, ofPeer) != "of bob\n" {
			t.Errorf("a late digest: %v", got)
		}
	}
	same(past+".2.md", "late\n")
	same(file, "first\n")

	// Who only asks is not shown it, and moves nothing.
	if got := memory(t.Context()); content(got, ofThread) != "" || content(got, ofPeer) != "of bob\n" {
		t.Errorf("asked: %v", got)
	}
	same(file, "first\n")

	// A digest that was made from it is refused; that moves it.
	if _, err := record(ofThread, 2, epoch+1, base, "first, and more\n"); !fault.Is(err, fault.InvalidArgument) {
		t.Errorf("made from an earlier epoch: %v", err)
	}
	same(file, "")
	same(past+".2."+agentdir.Version([]byte("first\n"))[:12]+".md", "first\n")

	// What a person writes is moved when the runner asks.
	wrote, err := w.Agents.WriteAgentFile(t.Context(), &registryv1.WriteAgentFileRequest{AgentId: "a1", Name: file, Content: []byte("by hand\n")})
	backendtest.Must(t, wrote, err)
	if got := memory(ctx); content(got, ofThread) != "" {
		t.Errorf("asked by the runner: %v", got)
	}
	same(file, "")
	same(past+".2."+agentdir.Version([]byte("by hand\n"))[:12]+".md", "by hand\n")

	_, base = read(file)
	r, err = record(ofThread, 2, epoch+1, base, "second\n")
	if got := backendtest.Must(t, r, err).GetMemory(); content(got, ofThread) != "second\n" {
		t.Errorf("the digest of the epoch: %v", got)
	}
	if got := memory(ctx); content(got, ofThread) != "second\n" || content(got, ofPeer) != "of bob\n" {
		t.Errorf("at the end: %v", got)
	}
	same(file, "second\n")
	same(peers, "of bob\n")
}
