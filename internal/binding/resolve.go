package binding

import (
	"cmp"
	"fmt"

	"github.com/theclaw/agents/internal/route"
	"github.com/theclaw/agents/internal/sessionkey"
)

// Request is where a message comes from.
type Request struct {
	Channel string // the type
	Account string // empty: the default one of the type
	Peer    Peer   // the conversation; the zero one: the main one of the agent
	// Parent is the conversation that Peer is a thread of.
	Parent Peer
	// Author is who wrote, where that is not Peer.
	Author string
	Guild  string
	Team   string
	// ThreadID is the thread of the platform in the conversation.
	ThreadID string
}

// Result is where a message belongs.
type Result struct {
	Agent string
	// Channel and Account are those of the request, with the default account.
	Channel, Account string
	// MatchedBy is the level, and Binding the number of the binding, from 1; 0: none.
	MatchedBy string
	Binding   int
	// Key names the conversation, Thread stores it.
	Key, Thread string
	Scope       sessionkey.Scope
}

// Resolve returns where a message belongs. agents answers the agents that exist. ok is false
// when the agent that it names does not exist; when it names none, there is no agent at all.
func (t *Table) Resolve(r Request, agents func(id string) (Agent, bool)) (out Result, ok bool) {
	if r.Account == "" {
		r.Account = t.Account(r.Channel)
	}
	out = Result{Agent: t.snapshot.Default, Channel: r.Channel, Account: r.Account, MatchedBy: ByDefault}
	if i, level := t.find(r); i >= 0 {
		out.Agent, out.MatchedBy, out.Binding = t.snapshot.Bindings[i].Agent, level, i+1
	}
	if out.Agent == "" {
		return out, false
	}
	a, ok := agents(out.Agent)
	if !ok {
		return out, false
	}
	k := KeyOf(a, r)
	out.Scope, out.Key, out.Thread = k.Scope, k.String(), k.Thread()
	return out, true
}

// KeyOfSource is the conversation of a message to an agent that came from no account, by the
// address of its writer.
func KeyOfSource(a Agent, t route.Tuple) sessionkey.Key {
	r := Request{Channel: t.ChannelType, Account: t.ChannelID, Author: t.PeerID, Peer: Peer{Kind: t.SessionType, ID: t.PeerID}}
	if t.SessionType != sessionkey.DM {
		r.Peer.ID = t.SessionID
	}
	return KeyOf(a, r)
}

// MainSessionKey names the main conversation of an agent.
func (a Agent) MainSessionKey() string {
	return sessionkey.Key{Agent: a.ID, Scope: sessionkey.Main, MainKey: cmp.Or(a.MainKey, sessionkey.DefaultMainKey)}.String()
}

// AgentOf is the agent of a message alone; empty: there is none.
func (t *Table) AgentOf(r Request) string {
	if r.Account == "" {
		r.Account = t.Account(r.Channel)
	}
	if i, _ := t.find(r); i >= 0 {
		return t.snapshot.Bindings[i].Agent
	}
	return t.snapshot.Default
}

// sought is the request as bindings see it: a thread of the platform is a conversation of its
// own to them, and the one that it is in its parent.
func (r Request) sought() Request {
	if r.ThreadID != "" && r.Parent == (Peer{}) && r.Peer.ID != "" {
		r.Parent = r.Peer
		r.Peer.ID += ":thread:" + r.ThreadID
	}
	return r
}

// find returns the number of the binding that decides, and its level; -1: none does.
func (t *Table) find(r Request) (number int, level string) {
	r = r.sought()
	for _, p := range [...]struct {
		level string
		at    place
	}{
		{ByPeer, place{ByPeer, r.Channel, r.Peer.Kind, r.Peer.ID}},
		{ByParent, place{ByPeer, r.Channel, r.Parent.Kind, r.Parent.ID}},
		{ByGuild, place{ByGuild, r.Channel, "", r.Guild}},
		{ByTeam, place{ByTeam, r.Channel, "", r.Team}},
		{ByAccount, place{ByAccount, r.Channel, "", r.Account}},
		{ByChannel, place{ByChannel, r.Channel, "", ""}},
	} {
		if p.at.id == "" && p.level != ByChannel {
			continue
		}
		for _, i := range t.places[p.at] {
			if t.misses(t.snapshot.Bindings[i].Match, r, p.level) == "" {
				return i, p.level
			}
		}
	}
	return -1, ByDefault
}

// misses is the first field of a binding that the request does not have; empty: it matches.
// level says which conversation of the request the peer is compared with.
func (t *Table) misses(m Match, r Request, level string) string {
	peer := r.Peer
	if level == ByParent {
		peer = r.Parent
	}
	switch account := t.account(m); {
	case m.Channel != r.Channel:
		return "channel"
	case account != Any && account != r.Account:
		return "account_id"
	case m.Peer != (Peer{}) && m.Peer != peer:
		return "peer"
	case m.Guild != "" && m.Guild != r.Guild:
		return "guild_id"
	case m.Team != "" && m.Team != r.Team:
		return "team_id"
	}
	return ""
}

// KeyOf is the conversation of a message to an agent.
func KeyOf(a Agent, r Request) sessionkey.Key {
	k := sessionkey.Key{Agent: a.ID, Type: r.Channel, Account: r.Account, Peer: r.Peer.ID, ThreadID: r.ThreadID, Scope: a.DM}
	switch {
	case r.Peer.ID == "":
		k.Scope = sessionkey.Main
	case r.Peer.Kind != sessionkey.DM && !a.Shared:
		k.Scope, k.Kind = sessionkey.Conversation, r.Peer.Kind
	case r.Peer.Kind != sessionkey.DM && r.Author != "":
		k.Peer = r.Author
	}
	switch k.Scope {
	case sessionkey.Main:
		k.MainKey, k.Type, k.Account, k.Peer = cmp.Or(a.MainKey, sessionkey.DefaultMainKey), "", "", ""
	case sessionkey.Peer:
		k.Type, k.Account = "", ""
	case sessionkey.ChannelPeer, sessionkey.Conversation:
		k.Account = ""
	case sessionkey.Channel:
		k.Peer = ""
	}
	return k
}

// Tried is a binding of the request's channel that did not decide, and why.
type Tried struct {
	Binding int // its number, from 1
	Why     string
}

// Explain lists the bindings of the channel that do not match a request, at most most of them,
// in their order.
func (t *Table) Explain(r Request, most int) (out []Tried) {
	if r.Account == "" {
		r.Account = t.Account(r.Channel)
	}
	r = r.sought()
	for i, b := range t.snapshot.Bindings {
		if len(out) == most {
			break
		}
		m := b.Match
		if m.Channel != r.Channel || t.misses(m, r, ByPeer) == "" || t.misses(m, r, ByParent) == "" {
			continue
		}
		out = append(out, Tried{Binding: i + 1, Why: t.why(m, r)})
	}
	return out
}

// why says what a binding states and the request has instead.
func (t *Table) why(m Match, r Request) string {
	switch t.misses(m, r, ByPeer) {
	case "peer":
		if m.Peer.ID == r.Peer.ID {
			return fmt.Sprintf("peer %s:%s (%s reports kind %q for this id: did you mean %s:%s?)", m.Peer.Kind, m.Peer.ID, r.Channel, r.Peer.Kind, r.Peer.Kind, r.Peer.ID)
		}
		return fmt.Sprintf("peer %s:%s", m.Peer.Kind, m.Peer.ID)
	case "guild_id":
		return "guild " + m.Guild
	case "team_id":
		return "team " + m.Team
	}
	return "account " + t.account(m)
}
