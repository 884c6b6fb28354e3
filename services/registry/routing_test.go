package registry_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/testing/backendtest"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry"
)

// setHome writes the settings of the home where its backend keeps them.
func setHome(t *testing.T, o backendtest.Options, w *backendtest.World, text string) {
	t.Helper()
	if o.DSN == "" {
		path := filepath.Join(o.Home, "theclaw.yaml")
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		return
	}
	now, err := w.Homes.GetHomeConfig(t.Context(), &registryv1.GetHomeConfigRequest{})
	version := backendtest.Must(t, now, err).GetVersion()
	set, err := w.Homes.SetHomeConfig(t.Context(), &registryv1.SetHomeConfigRequest{Text: text, Version: version})
	backendtest.Must(t, set, err)
}

// account is a home whose account wh takes messages of anyone.
const account = "channels:\n  wh: {type: webhook, dm: open, rate: 0, groups: {allow: ['*'], mode: mention}}\n"

func binding(agent string, m *registryv1.BindingMatch) *registryv1.Binding {
	m.Channel = "webhook"
	return &registryv1.Binding{AgentId: agent, Match: m}
}

// bind replaces the bindings.
func bind(t *testing.T, w *backendtest.World, list ...*registryv1.Binding) {
	t.Helper()
	now, err := w.Routing.ListBindings(t.Context(), &registryv1.ListBindingsRequest{})
	version := backendtest.Must(t, now, err).GetVersion()
	set, err := w.Routing.SetBindings(t.Context(), &registryv1.SetBindingsRequest{Bindings: list, Version: version})
	backendtest.Must(t, set, err)
}

func inbound(key, peer, text string) *registryv1.InboundMessage {
	return &registryv1.InboundMessage{Key: key, Kind: "dm", SessionId: peer, PeerId: peer, Text: text, MessageId: key}
}

// accept takes in one message of account wh.
func accept(t *testing.T, w *backendtest.World, m *registryv1.InboundMessage) *registryv1.AcceptedMessage {
	t.Helper()
	r, err := w.Channels.AcceptMessages(t.Context(), &registryv1.AcceptMessagesRequest{Account: "wh", Messages: []*registryv1.InboundMessage{m}})
	return backendtest.Must(t, r, err).GetResults()[0]
}

const (
	accepted  = registryv1.AcceptOutcome_ACCEPT_OUTCOME_ACCEPTED
	duplicate = registryv1.AcceptOutcome_ACCEPT_OUTCOME_DUPLICATE
	refused   = registryv1.AcceptOutcome_ACCEPT_OUTCOME_REFUSED
	noted     = registryv1.AcceptOutcome_ACCEPT_OUTCOME_CONTEXT
)

// S4-10, S4-18, S4-26: bindings are set, listed and refused; ResolveRoute has all fields.
func TestBindings(t *testing.T) { backendtest.Each(t, testBindings) }

func testBindings(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	for _, id := range []string{"main", "work"} {
		w.Create(id)
	}
	setHome(t, o, w, "# kept\n"+account)
	first, err := w.Routing.ListBindings(t.Context(), &registryv1.ListBindingsRequest{})
	if n := len(backendtest.Must(t, first, err).GetBindings()); n != 0 {
		t.Fatalf("%d bindings in a new home", n)
	}
	peer := &registryv1.RoutePeer{Kind: "dm", Id: "7"}
	bind(t, w, binding("work", &registryv1.BindingMatch{Peer: peer}), binding("main", &registryv1.BindingMatch{AccountId: "*"}))
	got, err := w.Routing.ResolveRoute(t.Context(), &registryv1.ResolveRouteRequest{Channel: "webhook", Peer: peer, PlatformThread: "t"})
	r := backendtest.Must(t, got, err)
	if r.GetAgentId() != "work" || r.GetAccountId() != "wh" || r.GetChannel() != "webhook" || r.GetMatchedBy() != "binding.peer.parent" || r.GetBinding() != 1 ||
		r.GetSessionKey() != "agent:work:webhook:wh:dm:7:thread:t" || r.GetMainSessionKey() != "agent:work:main" || r.GetScope() != "per-account-channel-peer" ||
		!strings.HasPrefix(r.GetThreadId(), "threads/topics/") {
		t.Errorf("got %v", r)
	}
	got, err = w.Routing.ResolveRoute(t.Context(), &registryv1.ResolveRouteRequest{Channel: "webhook", Peer: &registryv1.RoutePeer{Kind: "group", Id: "7"}})
	if r := backendtest.Must(t, got, err); r.GetAgentId() != "main" || r.GetMatchedBy() != "binding.channel" || len(r.GetTried()) != 1 || !strings.Contains(r.GetTried()[0].GetWhy(), "did you mean group:7") {
		t.Errorf("got %v", r)
	}
	now, err := w.Routing.ListBindings(t.Context(), &registryv1.ListBindingsRequest{})
	list := backendtest.Must(t, now, err)
	if len(list.GetBindings()) != 2 || list.GetBindings()[0].GetMatch().GetPeer().GetId() != "7" || list.GetVersion() == first.GetVersion() {
		t.Errorf("listed %v", list)
	}
	for name, c := range map[string]struct {
		list    []*registryv1.Binding
		version string
		reason  string
		what    string
	}{
		"an unknown agent": {[]*registryv1.Binding{binding("gone", &registryv1.BindingMatch{})}, list.GetVersion(), fault.BindingInvalid, "binding 1: there is no agent"},
		"a hidden one":     {[]*registryv1.Binding{binding("main", &registryv1.BindingMatch{AccountId: "*"}), binding("work", &registryv1.BindingMatch{AccountId: "*"})}, list.GetVersion(), fault.BindingInvalid, "binding 2: binding 1"},
		"an old version":   {nil, first.GetVersion(), fault.BindingsChanged, "version"},
	} {
		_, err := w.Routing.SetBindings(t.Context(), &registryv1.SetBindingsRequest{Bindings: c.list, Version: c.version})
		if !fault.Is(err, c.reason) || !strings.Contains(err.Error(), c.what) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if o.DSN == "" {
		text, err := os.ReadFile(filepath.Join(o.Home, "theclaw.yaml"))
		if err != nil || !strings.Contains(string(text), "# kept") || !strings.Contains(string(text), "bindings:") {
			t.Errorf("%v\n%s", err, text)
		}
	}
	// An agent that was deleted later is never replaced by the default one.
	gone, err := w.Agents.DeleteAgent(t.Context(), &registryv1.DeleteAgentRequest{AgentId: "work", Force: true})
	backendtest.Must(t, gone, err)
	_, err = w.Routing.ResolveRoute(t.Context(), &registryv1.ResolveRouteRequest{Channel: "webhook", Peer: peer})
	if !fault.Is(err, fault.RouteBroken) || !strings.Contains(err.Error(), "binding 1") {
		t.Errorf("a broken route: %v", err)
	}
	if m := accept(t, w, inbound("k", "7", "hello")); m.GetOutcome() != refused || m.GetReason() != fault.RouteBroken {
		t.Errorf("a message to a broken route: %v", m)
	}
}

// What a message's outcome is, and that a repeat has that of the first.
func TestAccept(t *testing.T) { backendtest.Each(t, testAccept) }

func testAccept(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("main")
	setHome(t, o, w, `owners: ['webhook:owner']
channels:
  wh: {type: webhook, dm: allowlist, allow_from: [ann], groups: {allow: [g1], mode: mention, allow_from: [ann]}}
  off: {type: webhook, enabled: false, dm: open}
`)
	group := func(key, session, peer string, mentioned bool) *registryv1.InboundMessage {
		return &registryv1.InboundMessage{Key: key, Kind: "group", SessionId: session, PeerId: peer, Text: "hello", Mentioned: mentioned}
	}
	for _, c := range []struct {
		m       *registryv1.InboundMessage
		outcome registryv1.AcceptOutcome
		reason  string
		key     string
	}{
		{inbound("1", "ann", "hello"), accepted, "", "agent:main:webhook:wh:dm:ann"},
		{inbound("1", "ann", "other words"), duplicate, "", "agent:main:webhook:wh:dm:ann"},
		{inbound("2", "owner", "hello"), accepted, "", "agent:main:webhook:wh:dm:owner"},
		{inbound("3", "bob", "hello"), refused, fault.PeerRefused, ""},
		{group("4", "g1", "ann", true), accepted, "", "agent:main:webhook:group:g1"},
		{group("5", "g1", "ann", false), noted, "", "agent:main:webhook:group:g1"},
		{group("6", "g2", "ann", true), refused, fault.PeerRefused, ""},
		{group("7", "g1", "bob", true), refused, fault.PeerRefused, ""},
		{inbound("8", "bad\x00id", "hello"), refused, fault.InvalidArgument, ""},
		{inbound("9", "a:b:thread:c", "hello"), refused, fault.PeerRefused, ""},
	} {
		got := accept(t, w, c.m)
		if got.GetOutcome() != c.outcome || got.GetReason() != c.reason || got.GetSessionKey() != c.key || (c.outcome == accepted || c.outcome == duplicate) != (got.GetInboxId() > 0) {
			t.Errorf("%v: got %v", c.m, got)
		}
	}
	if _, err := w.Channels.AcceptMessages(t.Context(), &registryv1.AcceptMessagesRequest{Account: "none", Messages: []*registryv1.InboundMessage{inbound("1", "ann", "x")}}); !fault.Is(err, fault.ChannelNotFound) {
		t.Errorf("an unknown account: %v", err)
	}
	if events := inboxOf(t, w, "main"); len(events) != 3 {
		t.Errorf("%d events are stored, want 3: %v", len(events), events)
	}
	// Ids with separators, and long ones: the thread is the key's, and the reply goes to the
	// ids as they were.
	setHome(t, o, w, account)
	for i, peer := range []string{"a:b:thread:c", "50%/☺", strings.Repeat("x", 3000)} {
		got := accept(t, w, inbound(fmt.Sprint("odd", i), peer, "hello"))
		if got.GetOutcome() != accepted {
			t.Fatalf("%.40q: %v", peer, got)
		}
		w.Answer("main", "hi")
		turn, err := w.Turns.GetTurn(t.Context(), &registryv1.GetTurnRequest{AgentId: "main", InboxId: got.GetInboxId()})
		tn := backendtest.Must(t, turn, err).GetTurn()
		if tn.GetThreadId() != got.GetThreadId() || tn.GetAccount() != "wh" || tn.GetSessionKey() != got.GetSessionKey() || tn.GetBindingRevision() == 0 {
			t.Errorf("%.40q: %v, %v", peer, got, tn)
		}
		p, err := w.Threads.PeekEvents(t.Context(), &registryv1.PeekEventsRequest{Thread: &registryv1.ThreadRef{AgentId: "main", ThreadId: got.GetThreadId()}})
		events := backendtest.Must(t, p, err).GetEvents()
		if last := events[len(events)-1]; !strings.Contains(last.GetContent(), `"peer_id":"`+peer+`"`) {
			t.Errorf("%.40q: the reply goes to %.200s", peer, last.GetContent())
		}
	}
	long := accept(t, w, inbound("long", "eve", strings.Repeat("☺", 100_001)))
	for _, e := range inboxOf(t, w, "main") {
		if e.GetId() == long.GetInboxId() && (!strings.Contains(e.GetContent(), "had 100001 characters") || strings.Count(e.GetContent(), "☺") != 100_000) {
			t.Errorf("a long text was stored with %d bytes", len(e.GetContent()))
		}
	}
}

func inboxOf(t *testing.T, w *backendtest.World, agent string) []*registryv1.Event {
	t.Helper()
	p, err := w.Threads.PeekEvents(t.Context(), &registryv1.PeekEventsRequest{Thread: &registryv1.ThreadRef{AgentId: agent, ThreadId: "inbox"}, Limit: 1000})
	return backendtest.Must(t, p, err).GetEvents()
}

// A message that is delivered again after its binding changed, also at another
// registry and while the first delivery is still under way, is never in both inboxes.
func TestRepeatAfterRebinding(t *testing.T) { backendtest.Each(t, testRepeatAfterRebinding) }

func testRepeatAfterRebinding(t *testing.T, o backendtest.Options) {
	const rounds = 50
	one := o.Start(t, registry.Config{})
	two := one
	if o.DSN != "" {
		other := o
		other.Home = filepath.Join(t.TempDir(), "other")
		two = other.Start(t, registry.Config{})
	}
	agents := []string{"a0", "a1"}
	for _, id := range agents {
		one.Create(id)
	}
	setHome(t, o, one, account)
	found := 0
	for i := range rounds {
		bind(t, one, binding(agents[i%2], &registryv1.BindingMatch{AccountId: "*"}))
		key, peer := fmt.Sprint("m", i), fmt.Sprint("p", i%5)
		first := accept(t, one, inbound(key, peer, "hello"))
		if first.GetOutcome() != accepted || first.GetAgentId() != agents[i%2] {
			t.Fatalf("round %d: %v", i, first)
		}
		bind(t, two, binding(agents[(i+1)%2], &registryv1.BindingMatch{AccountId: "*"}))
		for _, w := range []*backendtest.World{two, one} {
			again := accept(t, w, inbound(key, peer, "hello"))
			if again.GetOutcome() == duplicate && again.GetAgentId() == first.GetAgentId() && again.GetInboxId() == first.GetInboxId() && again.GetRunId() == first.GetRunId() {
				found++
			} else {
				t.Errorf("round %d: first %v, again %v", i, first, again)
			}
		}
		// And a delivery of each registry at once with a change.
		key = fmt.Sprint("at once", i)
		var g sync.WaitGroup
		for _, w := range []*backendtest.World{one, two} {
			g.Go(func() {
				r, err := w.Channels.AcceptMessages(t.Context(), &registryv1.AcceptMessagesRequest{Account: "wh", Messages: []*registryv1.InboundMessage{inbound(key, peer, "hello")}})
				if err != nil || r.GetResults()[0].GetInboxId() == 0 {
					t.Errorf("at once: %v, %v", r, err)
				}
			})
		}
		g.Go(func() {
			now, err := one.Routing.ListBindings(t.Context(), &registryv1.ListBindingsRequest{})
			if err == nil {
				_, err = one.Routing.SetBindings(t.Context(), &registryv1.SetBindingsRequest{
					Bindings: []*registryv1.Binding{binding(agents[i%2], &registryv1.BindingMatch{})}, Version: now.GetVersion(),
				})
			}
			if err != nil {
				t.Errorf("at once: %v", err)
			}
		})
		g.Wait()
	}
	total := 0
	for _, id := range agents {
		total += len(inboxOf(t, one, id))
	}
	fmt.Printf("rebinding rounds=%d registries=%d repeats=%d events=%d of=%d\n", rounds, map[bool]int{true: 1, false: 2}[one == two], found, total, 2*rounds)
	if total != 2*rounds {
		t.Errorf("%d events for %d messages", total, 2*rounds)
	}
}

// A message is taken in for the agent that has its binding now, also when the one that had it before was removed.
func TestRebindingFromRemovedAgent(t *testing.T) { backendtest.Each(t, testRebindingFromRemovedAgent) }

func testRebindingFromRemovedAgent(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a0")
	w.Create("a1")
	setHome(t, o, w, account)
	bind(t, w, binding("a0", &registryv1.BindingMatch{AccountId: "*"}))
	if got := accept(t, w, inbound("1", "ann", "hello")); got.GetAgentId() != "a0" {
		t.Fatalf("%v", got)
	}
	bind(t, w, binding("a1", &registryv1.BindingMatch{AccountId: "*"}))
	r, err := w.Agents.DeleteAgent(t.Context(), &registryv1.DeleteAgentRequest{AgentId: "a0", Force: true})
	backendtest.Must(t, r, err)
	for _, m := range []*registryv1.InboundMessage{inbound("2", "ann", "hello"), inGroup("3", "ann", "hello")} {
		if got := accept(t, w, m); got.GetAgentId() != "a1" {
			t.Errorf("%v", got)
		}
	}
}

// A direct message that came too late for an answer is context once, also when it is delivered again after its binding
// changed.
func TestLateMessageAfterRebinding(t *testing.T) { backendtest.Each(t, testLateMessageAfterRebinding) }

func testLateMessageAfterRebinding(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("a0")
	w.Create("a1")
	setHome(t, o, w, account)
	late := inbound("1", "ann", "hello")
	late.SentAt = timestamppb.New(time.Now().Add(-48 * time.Hour))
	for i, want := range []registryv1.AcceptOutcome{noted, duplicate} {
		bind(t, w, binding(fmt.Sprint("a", i), &registryv1.BindingMatch{AccountId: "*"}))
		r, err := w.Channels.AcceptMessages(t.Context(), &registryv1.AcceptMessagesRequest{Account: "wh", Messages: []*registryv1.InboundMessage{late}, ConnectedAt: timestamppb.Now()})
		if got := backendtest.Must(t, r, err).GetResults()[0]; got.GetOutcome() != want || got.GetAgentId() != "a0" {
			t.Errorf("%v, not %v", got, want)
		}
	}
}

// S4-12: settings that change within a call are in force completely for each of its messages: one that goes by the new
// bindings goes by the new rules of its account, too.
func TestSettingsWithinCall(t *testing.T) { backendtest.Each(t, testSettingsWithinCall) }

func testSettingsWithinCall(t *testing.T, o backendtest.Options) {
	w := o.Start(t, registry.Config{})
	w.Create("open")
	w.Create("private")
	text := "bindings:\n  - {agent_id: %s, match: {channel: webhook, account_id: wh}}\nchannels:\n  wh: {type: webhook, dm: %s, catchup: %s}\n"
	setHome(t, o, w, fmt.Sprintf(text, "open", "open", "24h"))
	var once sync.Once
	fault.SetPoint(func(label string) {
		if label == "T0.after" {
			once.Do(func() { setHome(t, o, w, fmt.Sprintf(text, "private", "allowlist, allow_from: [ann]", "0s")) })
		}
	})
	t.Cleanup(func() { fault.SetPoint(nil) })
	r, err := w.Channels.AcceptMessages(t.Context(), &registryv1.AcceptMessagesRequest{
		Account: "wh", ConnectedAt: timestamppb.New(time.Now().Add(time.Hour)),
		Messages: []*registryv1.InboundMessage{inbound("1", "bob", "hello"), inbound("2", "bob", "hello"), inbound("3", "ann", "hello")},
	})
	got := backendtest.Must(t, r, err).GetResults()
	if got[0].GetOutcome() != accepted || got[0].GetAgentId() != "open" || got[1].GetReason() != fault.PeerRefused || got[2].GetOutcome() != noted || got[2].GetAgentId() != "private" {
		t.Errorf("%v", got)
	}
}

// S4-12: settings that change while messages come in are in force completely or not at all: each
// message went by exactly one revision. A file that cannot be read changes nothing and is named.
func TestSettingsUnderLoad(t *testing.T) { backendtest.Each(t, testSettingsUnderLoad) }

func testSettingsUnderLoad(t *testing.T, o backendtest.Options) {
	const messages, edits = 1000, 24
	w := o.Start(t, registry.Config{})
	agents := []string{"a0", "a1", "a2"}
	for _, id := range agents {
		w.Create(id)
	}
	text := func(agent string) string {
		// Account and binding change together: by half of a change, a message would be refused or
		// go to the default agent.
		return fmt.Sprintf("agents: {list: [{id: a2, default: true}]}\nbindings:\n  - {agent_id: %s, match: {channel: webhook, account_id: wh}}\nchannels:\n  wh: {type: webhook, dm: open, rate: 0, allow_from: [%s]}\n", agent, agent)
	}
	revision := func() int64 {
		r, err := w.Routing.ResolveRoute(t.Context(), &registryv1.ResolveRouteRequest{Channel: "webhook", AccountId: "wh"})
		backendtest.Must(t, r, err)
		h, err := w.Homes.GetHomeConfig(t.Context(), &registryv1.GetHomeConfigRequest{})
		return backendtest.Must(t, h, err).GetRevision()
	}
	setHome(t, o, w, text(agents[0]))
	sentBy := map[int64]string{revision(): agents[0]}
	results := make([]*registryv1.AcceptedMessage, messages)
	var g sync.WaitGroup
	var next atomic.Int64
	for range 4 {
		g.Go(func() {
			for n := next.Add(1) - 1; n < messages; n = next.Add(1) - 1 {
				m := inbound(fmt.Sprint("m", n), fmt.Sprint("p", n%20), "hello")
				r, err := w.Channels.AcceptMessages(t.Context(), &registryv1.AcceptMessagesRequest{Account: "wh", Messages: []*registryv1.InboundMessage{m}})
				if err != nil {
					t.Error(err)
					return
				}
				results[n] = r.GetResults()[0]
			}
		})
	}
	broken := 0
	for i := range edits {
		for next.Load() < int64((i+1)*messages/(edits+1)) && !t.Failed() {
			runtime.Gosched()
		}
		if o.DSN == "" && i%4 == 3 {
			setHome(t, o, w, "bindings:\n  - {agent_id: a2, mach: {}}\n")
			h, err := w.Homes.GetHomeConfig(t.Context(), &registryv1.GetHomeConfigRequest{})
			if problem := backendtest.Must(t, h, err).GetProblem(); !strings.Contains(problem, "theclaw.yaml:2:") {
				t.Errorf("the problem of a broken file: %q", problem)
			}
			broken++
		}
		agent := agents[(i+1)%2]
		setHome(t, o, w, text(agent))
		sentBy[revision()] = agent
	}
	g.Wait()
	seen := map[int64]int{}
	for n, r := range results {
		if r.GetOutcome() != accepted {
			t.Fatalf("message %d: %v", n, r)
		}
		turn, err := w.Turns.GetTurn(t.Context(), &registryv1.GetTurnRequest{AgentId: r.GetAgentId(), InboxId: r.GetInboxId()})
		rev := backendtest.Must(t, turn, err).GetTurn().GetBindingRevision()
		seen[rev]++
		if sentBy[rev] != r.GetAgentId() {
			t.Errorf("message %d went to %s by revision %d, which sends to %q", n, r.GetAgentId(), rev, sentBy[rev])
		}
	}
	fmt.Printf("settings-under-load messages=%d edits=%d broken=%d revisions=%d used=%d\n", messages, edits, broken, len(sentBy), len(seen))
	if len(seen) < 3 {
		t.Errorf("%d revisions were used: the settings did not change while messages came in", len(seen))
	}
}
