package binding_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/binding"
	"github.com/theclaw/agents/internal/sessionkey"
)

// different are the recorded vectors that are decided differently here, and where that is
// written: docs/spec/contracts.md names the rule.
var different = map[string]string{
	"session-key 2":  "an id of a platform keeps its case",
	"session-key 3":  "an id of a platform keeps its case",
	"session-key 4":  "an id of a platform keeps its case",
	"session-key 5":  "an id of a platform keeps its case",
	"session-key 6":  "an id of a platform keeps its case",
	"session-key 7":  "an id of a platform keeps its case",
	"session-key 8":  "an id of a platform keeps its case",
	"session-key 11": "a person has one id on each platform; there are no links between them",
	"session-key 13": "a person has one id on each platform; there are no links between them",
	"session-key 15": "a person has one id on each platform; there are no links between them",
	"session-key 17": "a group without an id is refused",
	"session-key 20": "what follows the agent has one of the seven forms",
	"session-key 21": "a key is written exactly",
	"session-key 26": "the word subagent is written in lower case",
	"session-key 28": "a thread of a platform is written thread, not topic",
	"session-key 30": "the word thread is written in lower case",
	"session-key 32": "a name keeps its case",
	"session-key 35": "the base of a thread is a key",
	"session-key 36": "a group without an id is refused",
	"routing 6":      "a type is written in lower case, and an id exactly",
	"routing 7":      "a binding matches when all of its fields do",
}

// vector is one of the file, with an account of a test as its number.
type vector struct {
	Name, Fn string
	Input    json.RawMessage
	Expected json.RawMessage
}

func vectors(t *testing.T, name string) []vector {
	t.Helper()
	var file struct{ Vectors []vector }
	b, err := os.ReadFile("testdata/" + name + ".json")
	if err == nil {
		err = json.Unmarshal(b, &file)
	}
	if err != nil {
		t.Fatal(err)
	}
	return file.Vectors
}

// judge compares a vector with what is got here. One that is listed as different must differ.
func judge(t *testing.T, name string, passed, listed *int, got string, want string) {
	t.Helper()
	why, ok := different[name]
	switch {
	case got == want && ok:
		t.Errorf("%s passes, and is listed as different: %s", name, why)
	case got == want:
		*passed++
	case ok:
		*listed++
	default:
		t.Errorf("%s: got %s, want %s", name, got, want)
	}
}

// text is JSON of a value, with its keys in order.
func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(b, &v)
	}
	if err == nil {
		b, err = json.Marshal(v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var dmScopes = map[string]sessionkey.Scope{
	"": sessionkey.Main, "main": sessionkey.Main, "per-peer": sessionkey.Peer,
	"per-channel-peer": sessionkey.ChannelPeer, "per-account-channel-peer": sessionkey.AccountChannelPeer,
}

// S4-18 to S4-27, S4-35: the recorded routes.
func TestRoutingVectors(t *testing.T) {
	passed, listed := 0, 0
	list := vectors(t, "routing")
	for i, v := range list {
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
		got := "refused"
		if table, err := binding.New(s); err == nil {
			r, _ := table.Resolve(binding.Request{
				Channel: in.Channel, Account: in.AccountID, Peer: in.Peer, Parent: in.ParentPeer, Guild: in.GuildID, Team: in.TeamID,
			}, among(list))
			a, _ := among(list)(r.Agent)
			got = text(t, map[string]string{
				"agentId": r.Agent, "matchedBy": r.MatchedBy, "sessionKey": r.Key, "mainSessionKey": a.MainSessionKey(), "accountId": r.Account, "channel": r.Channel,
			})
		}
		var want any
		if err := json.Unmarshal(v.Expected, &want); err != nil {
			t.Fatal(err)
		}
		judge(t, fmt.Sprint("routing ", i), &passed, &listed, got, text(t, want))
	}
	t.Logf("routing: passed=%d listed=%d total=%d", passed, listed, len(list))
}

// S4-28 to S4-35: the recorded session keys.
func TestSessionKeyVectors(t *testing.T) {
	passed, listed := 0, 0
	list := vectors(t, "session-key")
	for i, v := range list {
		var want any
		if err := json.Unmarshal(v.Expected, &want); err != nil {
			t.Fatal(err)
		}
		judge(t, fmt.Sprint("session-key ", i+1), &passed, &listed, text(t, keyOf(t, v)), text(t, want))
	}
	t.Logf("session-key: passed=%d listed=%d total=%d", passed, listed, len(list))
}

// keyOf is what this package answers in the terms of the recorded function.
func keyOf(t *testing.T, v vector) any {
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

// A rule that is listed belongs to a vector.
func TestDifferentVectorsExist(t *testing.T) {
	for name := range different {
		var file string
		var n int
		if _, err := fmt.Sscanf(name, "%s %d", &file, &n); err != nil || !slices.Contains([]string{"routing", "session-key"}, file) || n > len(vectors(t, file)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
