package binding_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/binding"
	"github.com/theclaw/agents/internal/sessionkey"
	"github.com/theclaw/agents/internal/testing/vectors"
)

// The recorded vectors that are decided differently here, and where that is written: docs/spec/contracts.md
// names the rule.
var (
	differentKeys = map[int]string{
		1:  "an id of a platform keeps its case",
		2:  "an id of a platform keeps its case",
		3:  "an id of a platform keeps its case",
		4:  "an id of a platform keeps its case",
		5:  "an id of a platform keeps its case",
		6:  "an id of a platform keeps its case",
		7:  "an id of a platform keeps its case",
		10: "a person has one id on each platform; there are no links between them",
		12: "a person has one id on each platform; there are no links between them",
		14: "a person has one id on each platform; there are no links between them",
		16: "a group without an id is refused",
		19: "what follows the agent has one of the seven forms",
		20: "a key is written exactly",
		25: "the word subagent is written in lower case",
		27: "a thread of a platform is written thread, not topic",
		29: "the word thread is written in lower case",
		31: "a name keeps its case",
		34: "the base of a thread is a key",
		35: "a group without an id is refused",
	}
	differentRoutes = map[int]string{
		6: "a type is written in lower case, and an id exactly",
	}
)

var dmScopes = map[string]sessionkey.Scope{
	"": sessionkey.Main, "main": sessionkey.Main, "per-peer": sessionkey.Peer,
	"per-channel-peer": sessionkey.ChannelPeer, "per-account-channel-peer": sessionkey.AccountChannelPeer,
}

// S4-18 to S4-27, S4-35: the recorded routes.
func TestRoutingVectors(t *testing.T) {
	vectors.Compare(t, "routing", differentRoutes, func(t *testing.T, v vectors.Vector) any {
		var in struct {
			Cfg struct {
				Bindings []struct {
					AgentID string
					Match   struct {
						Channel, AccountID, GuildID, TeamID string
						Peer                                binding.Peer
					}
				}
				Session struct{ DMScope string }
			}
			Channel, AccountID, GuildID, TeamID string
			Peer, ParentPeer                    binding.Peer
		}
		if err := json.Unmarshal(v.Input, &in); err != nil {
			t.Fatal(err)
		}
		s := binding.Snapshot{Default: "main"}
		var list []binding.Agent
		for _, id := range []string{"main", "peer", "parent", "guild", "team", "acct", "chan"} {
			list = append(list, binding.Agent{ID: id, DM: dmScopes[in.Cfg.Session.DMScope]})
		}
		for _, b := range in.Cfg.Bindings {
			s.Bindings = append(s.Bindings, binding.Binding{Agent: b.AgentID, Match: binding.Match{
				Channel: b.Match.Channel, Account: b.Match.AccountID, Peer: b.Match.Peer, Guild: b.Match.GuildID, Team: b.Match.TeamID,
			}})
		}
		table, err := binding.New(s)
		if err != nil {
			return "refused"
		}
		r, _ := table.Resolve(binding.Request{
			Channel: in.Channel, Account: in.AccountID, Peer: in.Peer, Parent: in.ParentPeer, Guild: in.GuildID, Team: in.TeamID,
		}, among(list))
		a, _ := among(list)(r.Agent)
		return map[string]string{
			"agentId": r.Agent, "matchedBy": r.MatchedBy, "sessionKey": r.Key, "mainSessionKey": a.MainSessionKey(), "accountId": r.Account, "channel": r.Channel,
		}
	})
}

// S4-28 to S4-35: the recorded session keys.
func TestSessionKeyVectors(t *testing.T) {
	vectors.Compare(t, "session-key", differentKeys, keyOf)
}

// keyOf is what this package answers in the terms of the recorded function.
func keyOf(t *testing.T, v vectors.Vector) any {
	t.Helper()
	var in struct {
		AgentID, MainKey, Channel, PeerKind, PeerID, DMScope string
		RequestKey, BaseSessionKey, ThreadID                 string
		AccountID                                            *string
		UseSuffix                                            *bool
	}
	text := ""
	if err := json.Unmarshal(v.Input, &in); err != nil && json.Unmarshal(v.Input, &text) != nil && string(v.Input) != "null" {
		t.Fatalf("%s: %v", v.Input, err)
	}
	switch k, err := sessionkey.Parse(text); v.Fn {
	case "parseAgentSessionKey":
		if err != nil {
			return nil
		}
		return map[string]string{"agentId": k.Agent, "rest": strings.TrimPrefix(text, "agent:"+k.Agent+":")}
	case "isSubagentSessionKey":
		return err == nil && k.Word == "subagent"
	case "resolveThreadParentSessionKey":
		if err != nil || k.ThreadID == "" {
			return nil
		}
		k.ThreadID = ""
		return k.String()
	case "resolveAgentIdFromSessionKey":
		return sessionkey.AgentOf(text, "main")
	case "toAgentStoreSessionKey":
		main := in.RequestKey
		if main == "" {
			main = "main"
		}
		k, err := sessionkey.Parse("agent:" + sessionkey.AgentID(in.AgentID) + ":" + main)
		if err != nil {
			return nil
		}
		return k.String()
	case "resolveThreadSessionKeys":
		k, err := sessionkey.Parse(in.BaseSessionKey)
		if err != nil {
			return nil
		}
		k.ThreadID = strings.TrimSpace(in.ThreadID)
		return map[string]string{"sessionKey": k.String()}
	case "buildAgentPeerSessionKey":
		return peerKey(in.AgentID, in.Channel, in.AccountID, binding.Peer{Kind: in.PeerKind, ID: in.PeerID}, dmScopes[in.DMScope])
	}
	return nil
}

func peerKey(agent, channel string, account *string, peer binding.Peer, scope sessionkey.Scope) any {
	id := sessionkey.AgentID(agent)
	table, err := binding.New(binding.Snapshot{Default: id})
	if err != nil || peer.ID == "" {
		return nil
	}
	r := binding.Request{Channel: strings.ToLower(channel), Peer: peer}
	if account != nil {
		r.Account = strings.ToLower(*account)
	}
	out, _ := table.Resolve(r, among([]binding.Agent{{ID: id, DM: scope}}))
	return out.Key
}
