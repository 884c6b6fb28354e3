// Package binding decides which agent a message from a chat platform belongs to, and in which
// conversation it is.
//
//	Request{channel, account, peer, guild, ...}
//	      |
//	      v             the most specific level that has a binding for it wins:
//	Table.Resolve       binding.peer, binding.peer.parent, binding.guild, binding.team,
//	      |             binding.account, binding.channel, default
//	      v
//	Result{agent, matched by, session key, scope, thread}
//
// A binding matches when every field that it states does. Its level is its most specific
// field; inside a level the order of the list decides. A binding without an account means the
// default account of its type, `*` any.
//
// It promises: the result depends on the snapshot and the request alone; a resolution looks at
// the bindings of at most seven places, however many there are; a list that cannot mean what
// it says (a kind that the platform does not report) is refused with the number of the entry;
// Unknown finds one whose agent does not exist, Hidden one that never decides.
//
// It reads no settings, makes no call and knows nothing about messages.
package binding

import (
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/sessionkey"
)

// Max is the most bindings of a home.
const Max = 10_000

// Any is the account of a binding that every account of the type matches.
const Any = "*"

// defaultAccount is the account of a type that has none.
const defaultAccount = "default"

// Peer is a conversation of a platform: a person, a group or a channel.
type Peer struct {
	Kind string // dm, group, channel
	ID   string
}

// Match is what a binding states; an empty field states nothing.
type Match struct {
	Channel string // the type; required
	Account string
	Peer    Peer
	Guild   string
	Team    string
}

// Binding gives an agent the messages that match.
type Binding struct {
	Agent string
	Match Match
}

// Account is a configured entry of a channel type.
type Account struct {
	Name, Type string
	Default    bool
}

// Agent is an agent with its settings of conversations.
type Agent struct {
	ID string
	// MainKey is the last word of its main session key; empty: main.
	MainKey string
	// DM is the scope of direct conversations.
	DM sessionkey.Scope
	// Shared: messages of groups are in the conversation of their author, by the scope of
	// direct ones, instead of one of the group.
	Shared bool
}

// Snapshot is what routes are resolved over.
type Snapshot struct {
	Bindings []Binding `json:"bindings"`
	Accounts []Account `json:"accounts"`
	// Default is the agent of what no binding matches; empty: there is no agent.
	Default string `json:"default"`
}

// Levels of bindings, as in Result.MatchedBy.
const (
	ByPeer    = "binding.peer"
	ByParent  = "binding.peer.parent"
	ByGuild   = "binding.guild"
	ByTeam    = "binding.team"
	ByAccount = "binding.account"
	ByChannel = "binding.channel"
	ByDefault = "default"
)

// place is where bindings of a level are found.
type place struct{ level, channel, kind, id string }

// Table is a snapshot that was checked and indexed. It does not change.
type Table struct {
	snapshot Snapshot
	places   map[place][]int   // numbers of bindings, in order
	accounts map[string]string // the default one of each type
}

// New checks a snapshot. The error has reason BINDING_INVALID, or CONFIG_INVALID for two
// default accounts of a type.
func New(s Snapshot) (*Table, error) {
	t := &Table{snapshot: s, places: map[place][]int{}, accounts: map[string]string{}}
	if len(s.Bindings) > Max {
		return nil, invalid(Max+1, fmt.Sprintf("there are %d bindings, and %d are the most", len(s.Bindings), Max), "remove some")
	}
	marked := map[string]string{}
	for _, a := range s.Accounts {
		if a.Default && marked[a.Type] != "" {
			return nil, fault.New(codes.FailedPrecondition, fault.ConfigInvalid,
				fmt.Sprintf("the accounts %s and %s are both the default of type %s", marked[a.Type], a.Name, a.Type), "mark one of them with default: true")
		}
		if _, ok := t.accounts[a.Type]; !ok || a.Default {
			t.accounts[a.Type] = a.Name
		}
		if a.Default {
			marked[a.Type] = a.Name
		}
	}
	for i, b := range s.Bindings {
		if err := t.check(i, b); err != nil {
			return nil, err
		}
		p := t.placeOf(b.Match)
		t.places[p] = append(t.places[p], i)
	}
	return t, nil
}

// reported are the kinds of conversations of the platforms that do not have all three.
var reported = map[string][]string{"webhook": {sessionkey.DM, sessionkey.Group}}

func (t *Table) check(i int, b Binding) error {
	m := b.Match
	kinds := []string{sessionkey.DM, sessionkey.Group, sessionkey.ChannelGroup}
	if list, ok := reported[m.Channel]; ok {
		kinds = list
	}
	switch {
	case !sessionkey.IsWord(m.Channel):
		return invalid(i, fmt.Sprintf("match.channel is %.80q", m.Channel), "write the type of a channel, for example telegram")
	case m.Account != "" && m.Account != Any && !sessionkey.IsWord(m.Account):
		return invalid(i, fmt.Sprintf("match.account_id is %.80q", m.Account), "write the name of an account, or * for any")
	case (m.Peer.Kind == "") != (m.Peer.ID == ""):
		return invalid(i, "match.peer has a kind or an id alone", "write both, for example {kind: group, id: \"77\"}")
	case m.Peer.Kind != "" && !slices.Contains(kinds, m.Peer.Kind):
		return invalid(i, fmt.Sprintf("%s has no conversation of kind %.80q", m.Channel, m.Peer.Kind), fmt.Sprintf("write one of %q", kinds))
	}
	return nil
}

// Unknown returns an error with reason BINDING_INVALID for the first binding whose agent does
// not exist.
func (t *Table) Unknown(exists func(agent string) bool) error {
	for i, b := range t.snapshot.Bindings {
		if !exists(b.Agent) {
			return invalid(i, fmt.Sprintf("there is no agent %.80q", b.Agent), "make it with 'agentctl init', or name another one")
		}
	}
	return nil
}

// Hidden returns an error with reason BINDING_INVALID for the first binding that never decides,
// because an earlier one of its level matches all that it does.
func (t *Table) Hidden() error {
	seen := map[Match]int{}
	for i, b := range t.snapshot.Bindings {
		m := b.Match
		m.Account = t.account(m)
		level := t.placeOf(m).level
		for _, wider := range []Match{m, {Guild: m.Guild}, {Team: m.Team}, {}} {
			wider.Channel, wider.Peer = m.Channel, m.Peer
			for _, account := range []string{m.Account, Any} {
				wider.Account = account
				if first, ok := seen[wider]; ok && t.placeOf(wider).level == level {
					return invalid(i, fmt.Sprintf("binding %d matches all that it does", first+1), "remove it, or place it before that one")
				}
			}
		}
		if _, ok := seen[m]; !ok {
			seen[m] = i
		}
	}
	return nil
}

// account is the one that a binding means.
func (t *Table) account(m Match) string {
	if m.Account != "" {
		return m.Account
	}
	return t.Account(m.Channel)
}

// Account is the default account of a type.
func (t *Table) Account(channel string) string {
	if name, ok := t.accounts[channel]; ok {
		return name
	}
	return defaultAccount
}

func (t *Table) placeOf(m Match) place {
	switch {
	case m.Peer.ID != "":
		return place{ByPeer, m.Channel, m.Peer.Kind, m.Peer.ID}
	case m.Guild != "":
		return place{ByGuild, m.Channel, "", m.Guild}
	case m.Team != "":
		return place{ByTeam, m.Channel, "", m.Team}
	case m.Account != Any:
		return place{ByAccount, m.Channel, "", t.account(m)}
	}
	return place{ByChannel, m.Channel, "", ""}
}

func invalid(i int, what, fix string) error {
	return fault.New(codes.InvalidArgument, fault.BindingInvalid, fmt.Sprintf("binding %d: %s", i+1, what), fix)
}
