package registry_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// claimed begins the turn of each open message of an agent and answers it, and returns the claims.
func claimed(t *testing.T, w *backendtest.World, agent string) (out []*registryv1.BeginTurnResponse) {
	t.Helper()
	due := w.Due(backendtest.KindRun, "r1", time.Minute)
	if len(due) != 1 {
		t.Fatalf("due %v", due)
	}
	ctx := backendtest.Under(t.Context(), due[0].GetLease())
	b, err := w.Turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: agent})
	for _, p := range backendtest.Must(t, b, err).GetEvents() {
		out = append(out, begin(ctx, t, w, agent, p))
		fin, err := w.Turns.FinishTurn(ctx, &registryv1.FinishTurnRequest{
			AgentId: agent, InboxId: p.GetEvent().GetId(), Key: p.GetKey(), ThreadId: p.GetThreadId(), Fate: registryv1.Fate_FATE_REPLIED, Text: "answer",
		})
		backendtest.Must(t, fin, err)
	}
	w.Release(due[0].GetLease())
	return out
}

func begin(ctx context.Context, t *testing.T, w *backendtest.World, agent string, p *registryv1.PendingEvent) *registryv1.BeginTurnResponse {
	t.Helper()
	r, err := w.Turns.BeginTurn(ctx, &registryv1.BeginTurnRequest{AgentId: agent, InboxId: p.GetEvent().GetId(), Key: p.GetKey(), ThreadId: p.GetThreadId()})
	if backendtest.Must(t, r, err).GetOutcome() != registryv1.BeginTurnOutcome_BEGIN_TURN_OUTCOME_GO {
		t.Fatalf("begin: %v", r)
	}
	return r
}

func session(t *testing.T, w *backendtest.World, key string) *registryv1.Session {
	t.Helper()
	r, err := w.Sessions.GetSession(t.Context(), &registryv1.GetSessionRequest{Key: key})
	return backendtest.Must(t, r, err).GetSession()
}

const bobsKey = "agent:a1:telegram:main:dm:bob"

// A session answers on request what its epoch has used, the last prompt that a model saw, and what waits in its conversation:
// no message of another one, and none that a turn has begun.
func TestUsageOfSession(t *testing.T) { backendtest.Each(t, testUsageOfSession) }

func testUsageOfSession(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	push := func(peer, text string) {
		t.Helper()
		backendtest.Must2(w.Threads.PushEvents(t.Context(), &registryv1.PushEventsRequest{
			Thread: &registryv1.ThreadRef{AgentId: "a1", ThreadId: "inbox"},
			Events: []*registryv1.NewEvent{{Source: "external:telegram:main:dm:" + peer + ":" + peer, Type: "message", Content: `{"text":"` + text + `"}`, SessionKey: "agent:a1:telegram:main:dm:" + peer}},
		}))
	}
	check := func(when, usage, last string, waiting int64) {
		t.Helper()
		got := backendtest.Must2(w.Sessions.GetSession(t.Context(), &registryv1.GetSessionRequest{Key: bobsKey, WithUsage: true, WithWaiting: true}))
		described := func(list ...*registryv1.UsageSum) (out string) {
			for _, s := range list {
				out += fmt.Sprintf("%s: %d answers, %d in, %d out", s.GetModel(), s.GetAnswers(), s.GetUsage().GetInput(), s.GetUsage().GetOutput())
			}
			return out
		}
		if l := got.GetLast(); described(got.GetUsage()...) != usage || l == nil != (last == "") || l != nil && described(l) != last || got.GetWaiting() != waiting {
			t.Errorf("%s: %v", when, got)
		}
	}
	push("bob", "one")
	w.Toil("a1", registryv1.Fate_FATE_REPLIED)
	const used, last = "n: 2 answers, 6 in, 8 out", "n: 1 answers, 3 in, 4 out"
	check("after a turn", used, last, 0)
	for _, peer := range []string{"bob", "bob", "ann"} {
		push(peer, "waits")
	}
	check("while messages wait", used, last, 2)
	if got := backendtest.Must2(w.Sessions.GetSession(t.Context(), &registryv1.GetSessionRequest{Key: bobsKey, WithUsage: true})); len(got.GetUsage()) != 1 || got.GetWaiting() != 0 {
		t.Errorf("usage alone: %v", got)
	}
	due := w.Due(backendtest.KindRun, "r1", time.Minute)[0].GetLease()
	ctx := backendtest.Under(t.Context(), due)
	p := backendtest.Must2(w.Turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: "a1"})).GetEvents()[0]
	begin(ctx, t, w, "a1", p)
	check("while a turn runs", used, last, 1)
	w.Release(due)
	w.Toil("a1", registryv1.Fate_FATE_REPLIED)
	backendtest.Must2(w.Sessions.ResetSession(t.Context(), &registryv1.ResetSessionRequest{Key: bobsKey}))
	push("bob", "in a new epoch")
	claimed(t, w, "a1")
	check("in a new epoch", "", "", 0)
	if got := backendtest.Must2(w.Sessions.GetSession(t.Context(), &registryv1.GetSessionRequest{Key: bobsKey})); got.GetUsage() != nil || got.GetLast() != nil || got.GetWaiting() != 0 {
		t.Errorf("unasked: %v", got)
	}
}

// A reset makes the next message, and no other, begin an epoch; the model sees
// nothing from before it; what people set is used from the next message on.
func TestSessions(t *testing.T) { backendtest.Each(t, testSessions) }

func testSessions(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	if _, err := w.Sessions.GetSession(t.Context(), &registryv1.GetSessionRequest{Key: bobsKey}); !fault.Is(err, fault.SessionNotFound) {
		t.Errorf("before a message: %v", err)
	}
	w.Push("a1", "bob", "one", "")
	first := claimed(t, w, "a1")[0]
	if first.GetSessionKey() != bobsKey || len(first.GetSessionId()) != 26 || first.GetEpochFromId() != 0 {
		t.Fatalf("the first claim: %v", first)
	}
	w.Push("a1", "bob", "two", "")
	if c := claimed(t, w, "a1")[0]; c.GetSessionId() != first.GetSessionId() || len(c.GetTail()) != 3 {
		t.Errorf("the second claim: session %s, %d events", c.GetSessionId(), len(c.GetTail()))
	}
	for range 2 { // a repeat is one reset
		r, err := w.Sessions.ResetSession(t.Context(), &registryv1.ResetSessionRequest{Key: bobsKey, Reason: "new"})
		if s := backendtest.Must(t, r, err).GetSession(); s.GetPending() != "new" || s.GetSessionId() != first.GetSessionId() {
			t.Errorf("reset: %v", s)
		}
	}
	p, err := w.Sessions.PatchSession(t.Context(), &registryv1.PatchSessionRequest{
		Key: bobsKey, Model: new("openai/small"), Thinking: new("off"), Title: new("Bob's questions"),
	})
	if s := backendtest.Must(t, p, err).GetSession(); s.GetOverrides().GetModel() != "openai/small" || s.GetTitle() != "Bob's questions" || s.GetPending() != "new" {
		t.Errorf("patched: %v", s)
	}
	w.Push("a1", "bob", "three", "")
	third := claimed(t, w, "a1")[0]
	if third.GetSessionId() == first.GetSessionId() || len(third.GetTail()) != 1 || third.GetEpochFromId() != third.GetInbound().GetId()-1 ||
		third.GetConfig().GetProvider() != "openai" || third.GetConfig().GetModel() != "small" || third.GetConfig().GetThinking() != "off" {
		t.Errorf("the claim after the reset: %v", third)
	}
	w.Push("a1", "bob", "four", "")
	if c := claimed(t, w, "a1")[0]; c.GetSessionId() != third.GetSessionId() || len(c.GetTail()) != 3 {
		t.Errorf("the claim after that: session %s, %d events", c.GetSessionId(), len(c.GetTail()))
	}
	s := session(t, w, strings.ToUpper(bobsKey[:len("agent:a1:telegram:main:dm:")])+"BOB")
	if s.GetKey() != bobsKey || s.GetSessionId() != third.GetSessionId() || s.GetMessages() != 4 || s.GetPending() != "" || s.GetLastAt() == nil || s.GetThreadId() != "threads/peers/main-bob" {
		t.Errorf("in other case: %v", s)
	}
	records := 0
	for _, e := range threadOf(t, w, "a1", "threads/peers/main-bob") {
		if e.GetSubtype() == "session" {
			records++
			if !strings.Contains(e.GetContent(), third.GetSessionId()) || !strings.Contains(e.GetContent(), `"reason":"new","by":"owner"`) {
				t.Errorf("recorded %s", e.GetContent())
			}
		}
	}
	if records != 1 {
		t.Errorf("%d epochs are recorded, want 1", records)
	}
	a, err := w.Sessions.ArchiveSession(t.Context(), &registryv1.ArchiveSessionRequest{Key: bobsKey})
	if s := backendtest.Must(t, a, err).GetSession(); !s.GetArchived() || s.GetPending() != "archive" {
		t.Errorf("archived: %v", s)
	}
	if n := len(listed(t, w, &registryv1.ListSessionsRequest{AgentId: "a1"})); n != 0 {
		t.Errorf("%d sessions are listed, want none", n)
	}
	if n := len(listed(t, w, &registryv1.ListSessionsRequest{AgentId: "a1", Archived: true})); n != 1 {
		t.Errorf("%d sessions are listed with archived ones, want 1", n)
	}
	w.Push("a1", "bob", "five", "")
	if c := claimed(t, w, "a1")[0]; c.GetSessionId() == third.GetSessionId() || len(c.GetTail()) != 1 {
		t.Errorf("the claim after the archive: %v", c)
	}
	if n := len(listed(t, w, &registryv1.ListSessionsRequest{AgentId: "a1"})); n != 1 {
		t.Errorf("%d sessions are listed after the next message, want 1", n)
	}
	// What is there is there after a restart.
	w.Stop()
	w = o.Start(t, registry.Config{})
	if s := session(t, w, bobsKey); s.GetMessages() != 5 || s.GetOverrides().GetModel() != "openai/small" {
		t.Errorf("after a restart: %v", s)
	}
}

func threadOf(t *testing.T, w *backendtest.World, agent, id string) []*registryv1.Event {
	t.Helper()
	p, err := w.Threads.PeekEvents(t.Context(), &registryv1.PeekEventsRequest{Thread: &registryv1.ThreadRef{AgentId: agent, ThreadId: id}, Limit: 1000})
	return backendtest.Must(t, p, err).GetEvents()
}

// listed are all pages of a list.
func listed(t *testing.T, w *backendtest.World, req *registryv1.ListSessionsRequest) (keys []string) {
	t.Helper()
	for {
		r, err := w.Sessions.ListSessions(t.Context(), req)
		for _, s := range backendtest.Must(t, r, err).GetSessions() {
			keys = append(keys, s.GetKey())
		}
		if req.PageToken = r.GetNextPageToken(); req.GetPageToken() == "" {
			return keys
		}
	}
}

// The list has pages, the last active first, by kind and by time.
func TestSessionList(t *testing.T) { backendtest.Each(t, testSessionList) }

func testSessionList(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	setHome(t, o, w, account)
	for _, peer := range []string{"p1", "p2", "p3"} {
		w.Push("a1", peer, "hello", "")
		claimed(t, w, "a1")
	}
	accept(t, w, &registryv1.InboundMessage{Key: "g", Kind: "group", SessionId: "g1", PeerId: "p1", Text: "hello", Mentioned: true})
	claimed(t, w, "a1")
	w.Push("a1", "p1", "again", "")
	claimed(t, w, "a1")
	key := func(peer string) string { return "agent:a1:telegram:main:dm:" + peer }
	want := []string{key("p1"), "agent:a1:webhook:group:g1", key("p3"), key("p2")}
	for size := range int32(6) {
		if got := listed(t, w, &registryv1.ListSessionsRequest{AgentId: "a1", PageSize: size}); !slices.Equal(got, want) {
			t.Errorf("pages of %d: %q, want %q", size, got, want)
		}
	}
	for kind, want := range map[string][]string{"group": want[1:2], "dm": {want[0], want[2], want[3]}, "main": nil} {
		if got := listed(t, w, &registryv1.ListSessionsRequest{AgentId: "a1", Kind: kind, PageSize: 1}); !slices.Equal(got, want) {
			t.Errorf("kind %s: %q, want %q", kind, got, want)
		}
	}
	if got := listed(t, w, &registryv1.ListSessionsRequest{AgentId: "a1", ActiveSince: timestamppb.New(time.Now().Add(time.Hour))}); len(got) != 0 {
		t.Errorf("active in the future: %q", got)
	}
	if _, err := w.Sessions.ListSessions(t.Context(), &registryv1.ListSessionsRequest{AgentId: "none"}); !fault.Is(err, fault.AgentNotFound) {
		t.Errorf("an unknown agent: %v", err)
	}
}

// S3-02: a message names its conversation by its key; a key of another agent, or none, is refused and
// stores nothing.
func TestPushByKey(t *testing.T) { backendtest.Each(t, testPushByKey) }

func testPushByKey(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	push := func(key string) (*registryv1.PushEventsResponse, error) {
		req := backendtest.PushRequest("a1", "bob", "hello", "")
		req.Events[0].SessionKey = key
		return w.Threads.PushEvents(t.Context(), req)
	}
	for i, key := range []string{"agent:a1:main", "agent:a1:session:plans for May", bobsKey} {
		r, err := push(key)
		id := backendtest.Must(t, r, err).GetThreadIds()[0]
		c := claimed(t, w, "a1")
		if len(c) != 1 || c[0].GetSessionKey() != key || session(t, w, key).GetThreadId() != id {
			t.Errorf("%s: in %s, claimed %v", key, id, c)
		}
		if n := len(listed(t, w, &registryv1.ListSessionsRequest{AgentId: "a1"})); n != i+1 {
			t.Errorf("%d sessions are listed, want %d", n, i+1)
		}
	}
	for _, key := range []string{"agent:a2:main", "main", "agent:a1:", "agent:a1:telegram:main:dm:"} {
		if _, err := push(key); !fault.Is(err, fault.SessionKeyInvalid) {
			t.Errorf("%q: %v", key, err)
		}
	}
	if n := len(inboxOf(t, w, "a1")); n != 3 {
		t.Errorf("%d messages are stored, want 3", n)
	}
	for name, req := range map[string]*registryv1.PatchSessionRequest{
		"verbose":  {Key: bobsKey, Verbose: new("loud")},
		"thinking": {Key: bobsKey, Thinking: new("hard")},
		"title":    {Key: bobsKey, Title: new(strings.Repeat("x", 65))},
		"line":     {Key: bobsKey, Title: new("a\nb")},
		"agent":    {AgentId: "a2", Key: bobsKey},
	} {
		if _, err := w.Sessions.PatchSession(t.Context(), req); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	made, err := w.Sessions.PatchSession(t.Context(), &registryv1.PatchSessionRequest{Key: "agent:a1:session:new", Model: new("m"), Create: true})
	backendtest.Must(t, made, err)
	r, err := push("agent:a1:session:new")
	backendtest.Must(t, r, err)
	if c := claimed(t, w, "a1")[0]; c.GetConfig().GetModel() != "m" || len(c.GetSessionId()) != 26 {
		t.Errorf("a conversation made by a setting: %v", c)
	}
}

// Keys that differ in case alone are different conversations; a text in another
// case finds one of them only when it is the only one.
func TestAliases(t *testing.T) { backendtest.Each(t, testAliases) }

func testAliases(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	for i, peer := range []string{"Bob", "BOB", "Eve"} {
		w.Push("a1", peer, "hello", fmt.Sprint(i))
		claimed(t, w, "a1")
	}
	key := "agent:a1:telegram:main:dm:"
	if s := session(t, w, key+"Bob"); s.GetKey() != key+"Bob" {
		t.Errorf("exactly: %v", s)
	}
	if s := session(t, w, key+"eve"); s.GetKey() != key+"Eve" {
		t.Errorf("in other case: %v", s)
	}
	_, err := w.Sessions.GetSession(t.Context(), &registryv1.GetSessionRequest{Key: key + "bob"})
	if !fault.Is(err, fault.SessionKeyInvalid) || !strings.Contains(err.Error(), key+"Bob") || !strings.Contains(err.Error(), key+"BOB") {
		t.Errorf("of two: %v", err)
	}
}

// A conversation that one turn has claimed twice, because its process died, has begun its epoch once.
func TestEpochOnce(t *testing.T) { backendtest.Each(t, testEpochOnce) }

func testEpochOnce(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	w.Push("a1", "bob", "one", "")
	claimed(t, w, "a1")
	r, err := w.Sessions.ResetSession(t.Context(), &registryv1.ResetSessionRequest{Key: bobsKey})
	backendtest.Must(t, r, err)
	w.Push("a1", "bob", "two", "")
	due := w.Due(backendtest.KindRun, "r1", time.Minute)
	ctx := backendtest.Under(t.Context(), due[0].GetLease())
	b, err := w.Turns.OpenBatch(ctx, &registryv1.OpenBatchRequest{AgentId: "a1"})
	p := backendtest.Must(t, b, err).GetEvents()[0]
	first := begin(ctx, t, w, "a1", p)
	again, err := w.Turns.BeginTurn(ctx, &registryv1.BeginTurnRequest{AgentId: "a1", InboxId: p.GetEvent().GetId(), Key: p.GetKey(), ThreadId: p.GetThreadId(), Alone: true})
	if c := backendtest.Must(t, again, err); c.GetSessionId() != first.GetSessionId() || c.GetEpochFromId() != first.GetEpochFromId() || len(c.GetTail()) != 1 {
		t.Errorf("claimed again: %v, first %v", c, first)
	}
	w.Release(due[0].GetLease())
	n := 0
	for _, e := range threadOf(t, w, "a1", "threads/peers/main-bob") {
		if e.GetSubtype() == "session" {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d epochs are recorded, want 1", n)
	}
}

// S4-35, X-02: messages that come from no account follow session.dm_scope where it is set, and
// routing.default where it is not; groups follow routing.groups.
func TestScopesOfSources(t *testing.T) { backendtest.Each(t, testScopesOfSources) }

func testScopesOfSources(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a1")
	push := func(source string) string {
		r, err := w.Threads.PushEvents(t.Context(), &registryv1.PushEventsRequest{
			Thread: &registryv1.ThreadRef{AgentId: "a1", ThreadId: "inbox"},
			Events: []*registryv1.NewEvent{{Source: source, Type: "message", Content: `{"text":"hello"}`}},
		})
		id := backendtest.Must(t, r, err).GetThreadIds()[0]
		for _, c := range claimed(t, w, "a1") {
			if c.GetSessionKey() == "" {
				t.Errorf("%s: no session", source)
			}
		}
		threadOf(t, w, "a1", id) // it was worked on there
		return id
	}
	const dm, group = "external:telegram:tg:dm:7:7", "external:telegram:tg:group:g1:7"
	for _, c := range []struct{ key, value, dm, group string }{
		{"", "", "threads/peers/tg-7", "threads/peers/tg-7"},
		{"routing.groups", "per-conversation", "threads/peers/tg-7", "threads/sessions/telegram.group-g1"},
		{"session.dm_scope", "per-peer", "threads/dms/7", "threads/sessions/telegram.group-g1"},
		{"session.dm_scope", "per-channel-peer", "threads/dms/telegram-7", "threads/sessions/telegram.group-g1"},
		{"session.dm_scope", "per-account-channel-peer", "threads/peers/tg-7", "threads/sessions/telegram.group-g1"},
		{"session.dm_scope", "main", "threads/main", "threads/sessions/telegram.group-g1"},
		{"routing.groups", "same", "threads/main", "threads/main"},
	} {
		if c.key != "" {
			w.Config("a1", c.key, c.value)
		}
		if gotDM, gotGroup := push(dm), push(group); gotDM != c.dm || gotGroup != c.group {
			t.Errorf("%s: %s: %s and %s, want %s and %s", c.key, c.value, gotDM, gotGroup, c.dm, c.group)
		}
	}
}
