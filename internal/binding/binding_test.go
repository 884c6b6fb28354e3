package binding_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/binding"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/sessionkey"
)

var agents = []binding.Agent{
	{ID: "main", DM: sessionkey.AccountChannelPeer}, {ID: "peer", DM: sessionkey.AccountChannelPeer}, {ID: "parent"}, {ID: "guild"}, {ID: "team"}, {ID: "acct"}, {ID: "chan"},
}

// levels are one binding of each, from the most specific.
var levels = []struct {
	by string
	b  binding.Binding
}{
	{binding.ByPeer, binding.Binding{Agent: "peer", Match: binding.Match{Channel: "discord", Account: "biz", Peer: binding.Peer{Kind: "group", ID: "g1"}}}},
	{binding.ByParent, binding.Binding{Agent: "parent", Match: binding.Match{Channel: "discord", Account: "biz", Peer: binding.Peer{Kind: "channel", ID: "p1"}}}},
	{binding.ByGuild, binding.Binding{Agent: "guild", Match: binding.Match{Channel: "discord", Account: "biz", Guild: "G"}}},
	{binding.ByTeam, binding.Binding{Agent: "team", Match: binding.Match{Channel: "discord", Account: "biz", Team: "T"}}},
	{binding.ByAccount, binding.Binding{Agent: "acct", Match: binding.Match{Channel: "discord", Account: "biz"}}},
	{binding.ByChannel, binding.Binding{Agent: "chan", Match: binding.Match{Channel: "discord", Account: "*"}}},
}

var request = binding.Request{
	Channel: "discord", Account: "biz", Guild: "G", Team: "T",
	Peer: binding.Peer{Kind: "group", ID: "g1"}, Parent: binding.Peer{Kind: "channel", ID: "p1"},
}

// among answers the agents of a list.
func among(list []binding.Agent) func(string) (binding.Agent, bool) {
	return func(id string) (binding.Agent, bool) {
		i := slices.IndexFunc(list, func(a binding.Agent) bool { return a.ID == id })
		if i < 0 {
			return binding.Agent{}, false
		}
		return list[i], true
	}
}

func table(t *testing.T, s binding.Snapshot) *binding.Table {
	t.Helper()
	if s.Default == "" {
		s.Default = "main"
	}
	out, err := binding.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// S4-19 to S4-25: each level decides when the more specific ones are gone, in whatever order
// the list is.
func TestLevels(t *testing.T) {
	for removed := range len(levels) + 1 {
		var list []binding.Binding
		for _, l := range levels[removed:] {
			list = append(list, l.b)
		}
		slices.Reverse(list)
		got, ok := table(t, binding.Snapshot{Bindings: list}).Resolve(request, among(agents))
		agent, by, number := "main", binding.ByDefault, 0
		if removed < len(levels) {
			agent, by, number = levels[removed].b.Agent, levels[removed].by, len(list)
		}
		if !ok || got.Agent != agent || got.MatchedBy != by || got.Binding != number {
			t.Errorf("%d removed: %+v, want agent %s by %s, binding %d", removed, got, agent, by, number)
		}
	}
}

// S4-26: all fields of a result.
func TestResult(t *testing.T) {
	got, _ := table(t, binding.Snapshot{
		Accounts: []binding.Account{{Name: "one", Type: "telegram"}, {Name: "two", Type: "telegram", Default: true}},
	}).Resolve(binding.Request{Channel: "telegram", Peer: binding.Peer{Kind: "dm", ID: "7"}, ThreadID: "t1"}, among(agents))
	want := binding.Result{
		Agent: "main", Channel: "telegram", Account: "two", MatchedBy: binding.ByDefault, Scope: sessionkey.AccountChannelPeer,
		Key: "agent:main:telegram:two:dm:7:thread:t1", Thread: "threads/topics/p.two-7-t1",
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for _, a := range []binding.Agent{{ID: "main"}, {ID: "main", MainKey: "main"}} {
		if key := a.MainSessionKey(); key != "agent:main:main" {
			t.Errorf("main session key %q", key)
		}
	}
}

// S4-23: a binding matches when all of its fields do; without an account it means the default
// one, and in a level the first one decides (S4-27).
func TestMatching(t *testing.T) {
	accounts := []binding.Account{{Name: "first", Type: "discord"}, {Name: "biz", Type: "discord"}}
	peer := binding.Peer{Kind: "group", ID: "g1"}
	for _, c := range []struct {
		name   string
		list   []binding.Match
		number int
	}{
		{"the peer is not enough", []binding.Match{{Channel: "discord", Account: "biz", Peer: peer, Guild: "other"}}, 0},
		{"peer and guild", []binding.Match{{Channel: "discord", Account: "biz", Peer: peer, Guild: "G"}}, 1},
		{"the kind is another", []binding.Match{{Channel: "discord", Account: "*", Peer: binding.Peer{Kind: "channel", ID: "g1"}}}, 0},
		{"no account is the default one", []binding.Match{{Channel: "discord"}, {Channel: "discord", Peer: peer}}, 0},
		{"any account", []binding.Match{{Channel: "discord", Account: "*", Guild: "G"}}, 1},
		{"the first of a level", []binding.Match{{Channel: "discord", Account: "biz", Guild: "G"}, {Channel: "discord", Account: "*", Guild: "G"}}, 1},
		{"a later one whose fields match", []binding.Match{{Channel: "discord", Account: "biz", Guild: "G", Team: "X"}, {Channel: "discord", Account: "*", Guild: "G"}}, 2},
		{"another type", []binding.Match{{Channel: "slack", Account: "*"}}, 0},
	} {
		s := binding.Snapshot{Accounts: accounts}
		for _, m := range c.list {
			s.Bindings = append(s.Bindings, binding.Binding{Agent: "peer", Match: m})
		}
		if got, _ := table(t, s).Resolve(request, among(agents)); got.Binding != c.number {
			t.Errorf("%s: %+v, want binding %d", c.name, got, c.number)
		}
	}
}

// S4-35: the conversation of each scope, of a person and of a group.
func TestScopes(t *testing.T) {
	for _, c := range []struct {
		agent      binding.Agent
		dm, group  string
		threadOfDM string
	}{
		{binding.Agent{DM: sessionkey.Main}, "agent:a:main", "agent:a:discord:channel:c1", "threads/main"},
		{binding.Agent{DM: sessionkey.Main, MainKey: "home", Shared: true}, "agent:a:home", "agent:a:home", "threads/main"},
		{binding.Agent{DM: sessionkey.Peer}, "agent:a:dm:u1", "agent:a:discord:channel:c1", "threads/dms/u1"},
		{binding.Agent{DM: sessionkey.ChannelPeer}, "agent:a:discord:dm:u1", "agent:a:discord:channel:c1", "threads/dms/discord-u1"},
		{binding.Agent{DM: sessionkey.AccountChannelPeer, Shared: true}, "agent:a:discord:dc:dm:u1", "agent:a:discord:dc:dm:u1", "threads/peers/dc-u1"},
		{binding.Agent{DM: sessionkey.Channel, Shared: true}, "agent:a:discord:dc:all", "agent:a:discord:dc:all", "threads/channels/dc"},
	} {
		c.agent.ID = "a"
		tab, known := table(t, binding.Snapshot{Default: "a"}), among([]binding.Agent{c.agent})
		dm, _ := tab.Resolve(binding.Request{Channel: "discord", Account: "dc", Peer: binding.Peer{Kind: "dm", ID: "u1"}}, known)
		group, _ := tab.Resolve(binding.Request{Channel: "discord", Account: "dc", Peer: binding.Peer{Kind: "channel", ID: "c1"}, Author: "u1"}, known)
		if dm.Key != c.dm || group.Key != c.group || dm.Thread != c.threadOfDM {
			t.Errorf("%+v: %s in %s, %s", c.agent, dm.Key, dm.Thread, group.Key)
		}
		for _, key := range []string{dm.Key, group.Key, c.agent.MainSessionKey()} {
			if _, err := sessionkey.Parse(key); err != nil {
				t.Error(err)
			}
		}
	}
}

// S4-20: a thread of a platform belongs to the binding of its group, unless it has one itself.
func TestThreadOfAGroup(t *testing.T) {
	group := binding.Peer{Kind: "group", ID: "g1"}
	r := binding.Request{Channel: "discord", Peer: group, ThreadID: "7"}
	of := func(p binding.Peer, agent string) binding.Binding {
		return binding.Binding{Agent: agent, Match: binding.Match{Channel: "discord", Peer: p}}
	}
	list := []binding.Binding{of(group, "parent"), of(binding.Peer{Kind: "group", ID: "g1:thread:7"}, "peer")}
	for _, c := range []struct{ agent, by string }{{"peer", binding.ByPeer}, {"parent", binding.ByParent}} {
		got, ok := table(t, binding.Snapshot{Bindings: list}).Resolve(r, among(agents))
		if !ok || got.Agent != c.agent || got.MatchedBy != c.by || got.Key != "agent:"+c.agent+":discord:group:g1:thread:7" {
			t.Errorf("got %+v, want %s by %s", got, c.agent, c.by)
		}
		list = list[:1]
	}
}

func TestNoAgent(t *testing.T) {
	none, err := binding.New(binding.Snapshot{})
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := none.Resolve(request, among(nil)); ok || got.Agent != "" || none.AgentOf(request) != "" {
		t.Errorf("got %+v of a home without agents", got)
	}
	if got, ok := table(t, binding.Snapshot{Bindings: []binding.Binding{levels[0].b}}).Resolve(request, among(nil)); ok || got.Agent != "peer" || got.Binding != 1 {
		t.Errorf("got %+v for an agent that was deleted", got)
	}
}

// S4-01, S4-10: what cannot be meant is refused with the number of the entry and the fix.
func TestRefused(t *testing.T) {
	ok := binding.Binding{Agent: "main", Match: binding.Match{Channel: "discord"}}
	with := func(m binding.Match) binding.Snapshot {
		return binding.Snapshot{Bindings: []binding.Binding{ok, {Agent: "main", Match: m}}}
	}
	for _, c := range []struct {
		s      binding.Snapshot
		reason string
		what   string
	}{
		{binding.Snapshot{Bindings: []binding.Binding{ok, {Agent: "gone", Match: ok.Match}}}, fault.BindingInvalid, `binding 2: there is no agent "gone"`},
		{with(binding.Match{}), fault.BindingInvalid, "binding 2: match.channel"},
		{with(binding.Match{Channel: "group"}), fault.BindingInvalid, "binding 2: match.channel"},
		{with(binding.Match{Channel: "x", Account: "A B"}), fault.BindingInvalid, "binding 2: match.account_id"},
		{with(binding.Match{Channel: "x", Peer: binding.Peer{Kind: "dm"}}), fault.BindingInvalid, "binding 2: match.peer"},
		{with(binding.Match{Channel: "webhook", Peer: binding.Peer{Kind: "channel", ID: "1"}}), fault.BindingInvalid, "binding 2: webhook has no"},
		{binding.Snapshot{Bindings: make([]binding.Binding, binding.Max+1)}, fault.BindingInvalid, "10001"},
		{binding.Snapshot{Accounts: []binding.Account{{Name: "a", Type: "x", Default: true}, {Name: "b", Type: "x", Default: true}}}, fault.ConfigInvalid, "a and b"},
	} {
		tab, err := binding.New(c.s)
		if err == nil {
			err = tab.Unknown(func(id string) bool { _, ok := among(agents)(id); return ok })
		}
		if f := fault.From(err); f.Reason != c.reason || !strings.Contains(f.What, c.what) || f.Fix == "" {
			t.Errorf("got %v, want %s: %s", err, c.reason, c.what)
		}
	}
}

func TestHidden(t *testing.T) {
	peer := binding.Peer{Kind: "dm", ID: "1"}
	for _, c := range []struct {
		list   []binding.Match
		hidden string
	}{
		{[]binding.Match{{Channel: "x", Account: "a"}, {Channel: "x", Account: "b"}, {Channel: "x", Account: "*"}}, ""},
		{[]binding.Match{{Channel: "x"}, {Channel: "x", Account: "default"}}, "binding 2: binding 1"},
		{[]binding.Match{{Channel: "x", Peer: peer}, {Channel: "x", Peer: peer, Guild: "g"}}, "binding 2: binding 1"},
		{[]binding.Match{{Channel: "x", Peer: peer, Guild: "g"}, {Channel: "x", Peer: peer}}, ""},
		{[]binding.Match{{Channel: "x", Account: "*", Guild: "g"}, {Channel: "x", Guild: "h"}, {Channel: "x", Account: "a", Guild: "g", Team: "t"}}, "binding 3: binding 1"},
		{[]binding.Match{{Channel: "x", Account: "*"}, {Channel: "x", Account: "a"}, {Channel: "x", Account: "*", Team: "t"}}, ""},
	} {
		s := binding.Snapshot{}
		for _, m := range c.list {
			s.Bindings = append(s.Bindings, binding.Binding{Agent: "main", Match: m})
		}
		err := table(t, s).Hidden()
		if c.hidden == "" && err != nil || c.hidden != "" && !strings.Contains(fault.From(err).What, c.hidden) {
			t.Errorf("%+v: %v, want %q", c.list, err, c.hidden)
		}
	}
}

// What did not decide is listed with what it states and the request does not have.
func TestExplain(t *testing.T) {
	tab := table(t, binding.Snapshot{Bindings: []binding.Binding{
		{Agent: "peer", Match: binding.Match{Channel: "discord", Account: "*", Peer: binding.Peer{Kind: "group", ID: "77"}}},
		{Agent: "guild", Match: binding.Match{Channel: "discord", Account: "*", Guild: "81"}},
		{Agent: "team", Match: binding.Match{Channel: "slack", Account: "*"}},
		{Agent: "acct", Match: binding.Match{Channel: "discord", Account: "biz"}},
	}})
	r := binding.Request{Channel: "discord", Account: "dc", Peer: binding.Peer{Kind: "channel", ID: "77"}, Guild: "81"}
	got := fmt.Sprint(tab.Explain(r, 10))
	want := `[{1 peer group:77 (discord reports kind "channel" for this id: did you mean channel:77?)} {4 account biz}]`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := tab.Explain(r, 1); len(got) != 1 {
		t.Errorf("%d listed, want 1", len(got))
	}
}

// BenchmarkResolve resolves over 10,000 bindings of all levels. Goals: p99 at most 1 ms, 3
// allocations.
func BenchmarkResolve(b *testing.B) {
	s, known := binding.Snapshot{Default: "main"}, among(agents)
	for i := range binding.Max {
		l := levels[i%4].b
		m := l.Match
		switch i % 4 {
		case 0, 1:
			m.Peer.ID = fmt.Sprint(i)
		case 2:
			m.Guild = fmt.Sprint(i)
		case 3:
			m.Team = fmt.Sprint(i)
		}
		s.Bindings = append(s.Bindings, binding.Binding{Agent: l.Agent, Match: m})
	}
	tab, err := binding.New(s)
	if err != nil {
		b.Fatal(err)
	}
	r := binding.Request{Channel: "discord", Account: "biz", Peer: binding.Peer{Kind: "dm", ID: "9999999"}, Parent: binding.Peer{Kind: "channel", ID: "p"}, Guild: "9998", Team: "9999"}
	var took []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		begun := time.Now()
		if _, ok := tab.Resolve(r, known); !ok {
			b.Fatal("no agent")
		}
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
}
