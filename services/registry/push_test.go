package registry_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// A push names the conversation and the run of each message, in the form in which the turn
// has them afterwards; a repeat names the same.
func TestPushNamesConversationAndRun(t *testing.T) {
	backendtest.Each(t, testPushNamesConversationAndRun)
}

func testPushNamesConversationAndRun(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	sub := "note"
	req := backendtest.PushRequest("a1", "my-Task", "hello", "k1")
	req.Events = append(req.Events,
		&registryv1.NewEvent{Source: "external:telegram:main:dm:bob:bob", Type: "message", Content: `{"text":"hi"}`},
		&registryv1.NewEvent{Source: "external:telegram:main:dm:bob:bob", Type: "record", Subtype: &sub, Content: `{}`})
	first := backendtest.Must2(w.Threads.PushEvents(t.Context(), req))
	if want := []string{"threads/peers/main-my%2D%54ask", "threads/peers/main-bob", ""}; !slices.Equal(first.GetThreadIds(), want) {
		t.Errorf("threads %q, want %q", first.GetThreadIds(), want)
	}
	again := backendtest.Must2(w.Threads.PushEvents(t.Context(), req))
	if !again.GetDuplicate() || !slices.Equal(again.GetThreadIds(), first.GetThreadIds()) || !slices.Equal(again.GetRunIds(), first.GetRunIds()) ||
		!again.GetAcceptedAt().AsTime().Equal(first.GetAcceptedAt().AsTime()) {
		t.Errorf("a repeat answered %v, the first push %v", again, first)
	}
	w.Answer("a1", "answer")
	for i, id := range first.GetEventIds()[:2] {
		turn := backendtest.Must2(w.Turns.GetTurn(t.Context(), &registryv1.GetTurnRequest{AgentId: "a1", InboxId: id})).GetTurn()
		if turn.GetThreadId() != first.GetThreadIds()[i] || turn.GetKey() != first.GetRunIds()[i] {
			t.Errorf("turn %d is %s in %s, the push answered %v", id, turn.GetKey(), turn.GetThreadId(), first)
		}
		if i == 0 && !turn.GetQueuedAt().AsTime().Equal(first.GetAcceptedAt().AsTime()) {
			t.Errorf("accepted at %s, queued at %s", first.GetAcceptedAt().AsTime(), turn.GetQueuedAt().AsTime())
		}
	}
	if first.GetRunIds()[2] != "" {
		t.Errorf("a record is the run %q", first.GetRunIds()[2])
	}
	w.Config("a1", "routing.default", "per-agent")
	if got := w.Push("a1", "bob", "later", "").GetThreadIds(); !slices.Equal(got, []string{"threads/main"}) {
		t.Errorf("under per-agent: threads %q", got)
	}
}

// A thread under an id that no message is routed to would be watched in vain: it is not made,
// and the error says which id is meant. One that is absent names what it may be called.
func TestUnencodedThreadID(t *testing.T) { backendtest.Each(t, testUnencodedThreadID) }

func testUnencodedThreadID(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	w.Push("a1", "my-task", "hello", "")
	w.Answer("a1", "answer")
	ref := func(id string) *registryv1.ThreadRef { return &registryv1.ThreadRef{AgentId: "a1", ThreadId: id} }
	_, err := w.Threads.EnsureThread(t.Context(), &registryv1.EnsureThreadRequest{Thread: ref("threads/peers/main-My-task")})
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(fault.From(err).Fix, "threads/peers/main-%4Dy%2Dtask or threads/peers/main-%4Dy-task") {
		t.Errorf("ensured: %v, fix %q", err, fault.From(err).Fix)
	}
	_, err = w.Threads.PeekEvents(t.Context(), &registryv1.PeekEventsRequest{Thread: ref("threads/peers/main-my-task")})
	if !fault.Is(err, fault.ThreadNotFound) || !strings.Contains(fault.From(err).Fix, "threads/peers/main-my%2Dtask") {
		t.Errorf("read: %v, fix %q", err, fault.From(err).Fix)
	}
	watch := backendtest.Must2(w.Threads.WatchEvents(t.Context(), &registryv1.WatchEventsRequest{Thread: ref("threads/peers/main-my-task"), AfterId: -1}))
	if _, err := watch.Recv(); !fault.Is(err, fault.ThreadNotFound) || !strings.Contains(fault.From(err).Fix, "threads/peers/main-my%2Dtask") {
		t.Errorf("watched: %v, fix %q", err, fault.From(err).Fix)
	}
	for _, id := range []string{"threads/peers/main-my-task", "threads/tasks", "threads/channels/main"} { // a peer `task` of a channel `main-my`
		if made, err := w.Threads.EnsureThread(t.Context(), &registryv1.EnsureThreadRequest{Thread: ref(id)}); err != nil || !made.GetCreated() {
			t.Errorf("%s: %v, %v", id, made, err)
		}
	}
}
