package compat_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/testing/need"
	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// S0-32, S0-34, S0-74, S0-91 to S0-94: two channels with two peers each, at the same
// time, and the directories that each mode makes of them; S0-80: why another mode than
// the usual one led there is told once, behind the first message.
func TestModes(t *testing.T) {
	w := world.Start(t, quick(""))
	for mode, want := range map[string][]string{
		"per-peer":    {"threads/peers/c1-ann", "threads/peers/c1-bob", "threads/peers/c2-ann", "threads/peers/c2-bob"},
		"per-channel": {"threads/channels/c1", "threads/channels/c2"},
		"per-agent":   {"threads/main"},
	} {
		create(t, w, mode, registryv1.AgentKind_AGENT_KIND_USER, quiet+"\nrouting: {default: "+mode+"}")
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				peer := []string{"ann", "bob"}[i%2]
				if _, err := w.Push(t.Context(), mode, fmt.Sprintf("external:telegram:c%d:dm:%s:%s", 1+i/2%2, peer, peer), "say: hi", ""); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		for id := range int64(8) {
			if turn := w.Await(t, mode, id+1); turn.GetFate() != replied || !slices.Contains(want, turn.GetThreadId()) {
				t.Errorf("%s: %v", mode, turn)
			}
		}
		events := 0
		for _, id := range want {
			if _, err := os.Stat(filepath.Join(w.Home, "agents", mode, filepath.FromSlash(id), "events.db")); err != nil {
				t.Error(err)
			}
			events += len(w.Events(t, mode, id, "type = 'message'"))
			decided := w.Events(t, mode, id, "subtype = 'decision'")
			if told := len(decided) == 1 && decided[0].GetId() == 2; told != (mode != "per-peer") || len(decided) > 1 {
				t.Errorf("%s: told %v", id, decided)
			} else if told && !strings.HasPrefix(decided[0].GetContent(), fmt.Sprintf(`{"decision":"route","thread":%q,"mode":%q,"inbox_id":`, id, mode)) {
				t.Errorf("%s: told %s", id, decided[0].GetContent())
			}
		}
		list, err := w.Threads.ListThreads(t.Context(), &registryv1.ListThreadsRequest{AgentId: mode})
		if err != nil || events != 16 || !slices.Equal(slices.DeleteFunc(list.GetThreadIds(), func(id string) bool { return id == "inbox" }), want) {
			t.Errorf("%s: %d events, threads %v, %v", mode, events, list, err)
		}
	}
}

// S0-38: whoever is not the agent writes to its inbox and nowhere else, another
// agent's lease or not; between agents the inbox is the way.
func TestThreadsArePrivate(t *testing.T) {
	w := world.Start(t, quick(""))
	for _, id := range []string{"a", "b"} {
		create(t, w, id, registryv1.AgentKind_AGENT_KIND_USER, quiet)
	}
	thread := say(t, w, "b", world.Peer("bob"), "private").GetThreadId()
	await(t, "the end of a's lease", func() bool {
		_, err := w.Leases.AcquireLease(t.Context(), &registryv1.AcquireLeaseRequest{Kind: registryv1.LeaseKind_LEASE_KIND_RUN, AgentId: "a", Holder: "a's runner", RequestId: "1"})
		return err == nil
	})
	leases, err := w.Leases.ListLeases(t.Context(), &registryv1.ListLeasesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	push := func(thread, source string, own bool) error {
		ctx := t.Context()
		for _, l := range leases.GetLeases() {
			if own && l.GetResource() == "agent/a" {
				ctx = rpc.WithFence(ctx, l.GetResource(), l.GetToken(), l.GetHolder())
			}
		}
		_, err := w.Threads.PushEvents(ctx, &registryv1.PushEventsRequest{Thread: ref("b", thread), Events: []*registryv1.NewEvent{{Source: source, Type: "message", Content: `{"text":"say: psst"}`}}})
		return err
	}
	for _, own := range []bool{false, true} {
		for _, source := range []string{world.Peer("bob"), "internal:dm:default:a", "self"} {
			if err := push(thread, source, own); !fault.Is(err, fault.PermissionDenied) {
				t.Errorf("%s into %s, with a's lease %v: %v", source, thread, own, err)
			}
		}
		if err := push("inbox", "self", own); !fault.Is(err, fault.SourceForbidden) {
			t.Errorf("self into b's inbox, with a's lease %v: %v", own, err)
		}
	}
	if n := len(w.Events(t, "b", thread, "")); n != 2 {
		t.Errorf("%d events in %s", n, thread)
	}
	if err := push("inbox", "internal:dm:default:a", true); err != nil {
		t.Error(err)
	}
	if turn := w.Await(t, "b", 2); turn.GetThreadId() != "threads/peers/internal-a" || turn.GetFate() != replied {
		t.Errorf("through the inbox: %v", turn)
	}
}

// S0-96: a thread that was not routed from the inbox has no outbound consumer, and
// what is said there stays there, whoever asks for its delivery.
func TestOnlyRoutedThreadsGoOut(t *testing.T) {
	w := world.Start(t, quick(""))
	sink := world.NewSink(t)
	create(t, w, "a1", registryv1.AgentKind_AGENT_KIND_USER, sink.Config())
	const tasks = "threads/tasks/today"
	if _, err := w.Threads.EnsureThread(t.Context(), &registryv1.EnsureThreadRequest{Thread: ref("a1", tasks)}); err != nil {
		t.Fatal(err)
	}
	content := `{"text":"note to myself","reply_context":{"channel_type":"external","channel_id":"main","peer_id":"bob","session_id":"bob"}}`
	if _, err := open(t, filepath.Join(w.Home, "agents/a1", tasks)).ExecContext(t.Context(), "INSERT INTO events(source,type,content) VALUES('self','message',?)", content); err != nil {
		t.Fatal(err)
	}
	drain(t, w, "a1", say(t, w, "a1", world.Peer("bob"), "out").GetThreadId())
	drain(t, w, "a1", tasks)
	if got := sink.Arrivals(""); len(got) != 1 || got[0].Text != "out" {
		t.Errorf("sent %+v", got)
	}
	info, err := w.Threads.GetThread(t.Context(), &registryv1.GetThreadRequest{Thread: ref("a1", tasks)})
	if err != nil || len(info.GetSubscriptions()) != 0 {
		t.Errorf("%v, %v", info, err)
	}
}

// S0-130: deliveries of one thread that are asked for at the same time, beside the
// resident one, send each reply once.
func TestDeliveredOnce(t *testing.T) {
	w := world.Start(t, quick(""))
	sink := world.NewSink(t)
	create(t, w, "a1", registryv1.AgentKind_AGENT_KIND_USER, sink.Config())
	const n = 20
	var asked sync.WaitGroup
	for i := range n {
		thread := say(t, w, "a1", world.Peer("bob"), fmt.Sprint(i)).GetThreadId()
		for range 2 {
			asked.Go(func() { drain(t, w, "a1", thread) })
		}
	}
	asked.Wait()
	got := sink.Arrivals("a1")
	for i, a := range got {
		if a.Text != fmt.Sprint(i) || a.MaybeDuplicate {
			t.Errorf("send %d is %+v", i, a)
		}
	}
	if len(got) != n {
		t.Errorf("%d sends of %d replies", len(got), n)
	}
}

// S0-18, S0-122: what has no work costs no goroutine and no open file, however many
// conversations and agents there are. Its memory is measured by `make bench`.
func TestNothingRunsAtRest(t *testing.T) {
	o := quick("")
	o.Idle, o.MaxOpen = 50*time.Millisecond, 8
	w := world.Start(t, o)
	sink := world.NewSink(t)
	files := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			need.Missing(t, "/proc", "run it on Linux")
		}
		return len(entries)
	}
	n := 0
	visit := func(agents, peers int) {
		for range agents {
			n++
			id := fmt.Sprint("a", n)
			create(t, w, id, registryv1.AgentKind_AGENT_KIND_USER, sink.Config())
			var last string
			for p := range peers {
				last = say(t, w, id, world.Peer(fmt.Sprint("p", p)), "hi").GetThreadId()
			}
			drain(t, w, id, last)
		}
	}
	visit(1, 1)
	atRest := func() bool {
		l, err := w.Leases.ListLeases(t.Context(), &registryv1.ListLeasesRequest{})
		return err == nil && len(l.GetLeases()) == 0
	}
	await(t, "rest", atRest)
	const slack = 20 // connections, those who wait for work
	// What may stay open by design: a log for each of 22 agents, and three files for
	// each of the 8 databases and the ones on their way out. Sixty conversations
	// that stayed would be 180.
	const kept = 22 + 3*(8+2)
	goroutines, open := runtime.NumGoroutine(), files()
	visit(20, 1)
	visit(1, 60)
	await(t, "all sends", func() bool { return len(sink.Arrivals("")) == 1+20+60 })
	await(t, "rest", atRest)
	await(t, "as few goroutines and files as before", func() bool {
		return runtime.NumGoroutine() <= goroutines+slack && files() <= open+slack+kept
	})
}

// S0-20: of the system agents only admin hears people outside, whether they come
// through the registry or another program wrote for them; agents and the owner's
// console reach all, and the settings can open the door.
func TestSystemAgentsHearNobodyOutside(t *testing.T) {
	w := world.Start(t, quick(""))
	for _, id := range []string{"admin", "warden", "other"} {
		create(t, w, id, registryv1.AgentKind_AGENT_KIND_SYSTEM, quiet)
	}
	create(t, w, "user", registryv1.AgentKind_AGENT_KIND_USER, quiet)
	for _, id := range []string{"admin", "user"} {
		say(t, w, id, world.Peer("bob"), "hello")
	}
	for _, id := range []string{"warden", "other"} {
		if _, err := w.Push(t.Context(), id, world.Peer("bob"), "hello", ""); !fault.Is(err, fault.PermissionDenied) {
			t.Errorf("pushed to %s: %v", id, err)
		}
		say(t, w, id, "internal:dm:default:admin", "from admin")
		say(t, w, id, "external:console:cli:dm:cli:cli", "from the owner")
		r, err := open(t, filepath.Join(w.Home, "agents", id, "inbox")).ExecContext(t.Context(), "INSERT INTO events(source,type,content) VALUES(?,'message',?)", world.Peer("bob"), world.Message("say: behind"))
		if err != nil {
			t.Fatal(err)
		}
		behind, err := r.LastInsertId()
		if err != nil {
			t.Fatal(err)
		}
		if turn := w.Await(t, id, behind); turn.GetFate() != registryv1.Fate_FATE_DEAD || turn.GetError() != "agent '"+id+"' accepts no messages from outside" {
			t.Errorf("written behind our back: %v", turn)
		}
		w.Set(t, id, "inbox.external", "allow")
		say(t, w, id, world.Peer("bob"), "at last")
	}
	w.Set(t, "user", "inbox.external", "refuse")
	if _, err := w.Push(t.Context(), "user", world.Peer("bob"), "hello", ""); !fault.Is(err, fault.PermissionDenied) {
		t.Errorf("refused by its settings: %v", err)
	}
}

// S0-66, S0-67, A6: a malformed source is refused with what is wrong where one of our
// programs states it; one that another program has stored is read and answered. A gateway
// whose ids hold colons names them apart in the content, and is accepted.
func TestMalformedSources(t *testing.T) {
	w := world.Start(t, quick(""))
	create(t, w, "a1", registryv1.AgentKind_AGENT_KIND_USER, quiet)
	for from, why := range map[string]string{
		"external::main:dm:u:u":             "the channel type is not a lower case word",
		"external:Telegram:main:dm:u:u":     "the channel type is not a lower case word",
		"external:telegram:main:thread:u:u": "the session type is none of dm, group, channel",
		"external:telegram:main":            "it does not name the channel and the peer",
		"external:telegram:main:dm:u":       "an external address has 6 parts, this has 5",
		"external:telegram:main:dm:u:u:u":   "an external address has 6 parts, this has 7",
		"internal:dm":                       "an internal address has 4 parts, this has 2",
		"internal:DM:default:a2":            "the conversation type is not a lower case word",
	} {
		if _, err := w.Push(t.Context(), "a1", from, "say: no", ""); !fault.Is(err, fault.InvalidArgument) || !strings.Contains(fault.From(err).What, why) {
			t.Errorf("%s: %v", from, err)
		}
	}
	for _, from := range []string{"external:telegram:main:dm:u:u", "external:matrix:mx:group:!room/topic:ann", "internal:dm:default:a2"} {
		if _, err := w.Push(t.Context(), "a1", from, "say: yes", ""); err != nil {
			t.Errorf("%s: %v", from, err)
		}
	}
	matrix := `{"text":"say: colons","channel_id":"mx","peer_id":"@ann:example.org","session_id":"!room:example.org"}`
	r, err := w.Threads.PushEvents(t.Context(), &registryv1.PushEventsRequest{Thread: ref("a1", "inbox"), Events: []*registryv1.NewEvent{
		{Source: "external:matrix:mx:group:!room:example.org:@ann:example.org", Type: "message", Content: matrix},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if turn := w.Await(t, "a1", r.GetEventIds()[0]); w.Reply(t, turn) != "colons" {
		t.Errorf("a gateway's colons: %v", turn)
	}
	for _, from := range []string{"external:Telegram:main:dm:u:u", "external:telegram:main:dm:u"} {
		id := w.InsertOutside(t, "a1", "INSERT INTO events(source,type,content) VALUES(?,'message',?)", from, world.Message("say: read"))
		if turn := w.Await(t, "a1", id); w.Reply(t, turn) != "read" || turn.GetSource() != from {
			t.Errorf("stored by another program, %s: %v", from, turn)
		}
	}
}

// R9: a pop of another program moves the mark that is shown of a consumer, here the
// agent's own, and not what the agent has worked on.
func TestForeignMark(t *testing.T) {
	w := world.Start(t, quick(""))
	create(t, w, "a1", registryv1.AgentKind_AGENT_KIND_USER, quiet)
	say(t, w, "a1", world.Peer("bob"), "one")
	db := open(t, filepath.Join(w.Home, "agents/a1/inbox"))
	if _, err := db.ExecContext(t.Context(), "UPDATE consumer_progress SET last_acked_id = 99"); err != nil { // as pop does
		t.Fatal(err)
	}
	info, err := w.Threads.GetThread(t.Context(), &registryv1.GetThreadRequest{Thread: ref("a1", "inbox")})
	if err != nil || len(info.GetSubscriptions()) != 1 || info.GetSubscriptions()[0].GetLastAckedId() != 99 {
		t.Errorf("the mark: %v, %v", info, err)
	}
	say(t, w, "a1", world.Peer("bob"), "two")
	st, err := w.Agents.GetAgentStatus(t.Context(), &registryv1.GetAgentStatusRequest{AgentId: "a1"})
	if err != nil || st.GetInbox().GetLastAckedId() != 2 {
		t.Errorf("the agent: %v, %v", st, err)
	}
}
