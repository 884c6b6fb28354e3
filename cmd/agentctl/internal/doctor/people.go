package doctor

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/sessionkey"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// maxPeople of an account are looked at.
const maxPeople = 100

// people checks where the direct messages of people go: to an agent that exists, and not to a conversation that
// several people share without knowing.
func (x *examination) people(ctx context.Context) {
	s, err := x.env.HomeSettings(ctx)
	if err != nil || len(s.Accounts) == 0 {
		return // the settings are another check's
	}
	r, err := x.env.Channels().ListPairings(ctx, &registry.ListPairingsRequest{State: registry.PairingState_PAIRING_STATE_APPROVED})
	if err != nil {
		f := fault.From(err)
		x.note("channel", problem, f.Fix, "%s", f.What)
		return
	}
	share, broken := map[string][]string{}, map[string]bool{} // by agent
	for _, a := range s.Accounts {
		if !a.Enabled || a.DM == "off" {
			continue
		}
		who := writersOf(a, s.Owners, r.GetPairings())
		for _, peer := range who[:min(len(who), maxPeople)] {
			at, err := x.env.Routing().ResolveRoute(ctx, &registry.ResolveRouteRequest{
				Channel: a.Type, AccountId: a.Name, Author: peer, Peer: &registry.RoutePeer{Kind: sessionkey.DM, Id: peer},
			})
			if f := fault.From(err); err != nil && !broken[f.What] {
				broken[f.What] = true
				x.note("channel", problem, f.Fix, "messages to account %s: %s", a.Name, f.What)
			}
			name := a.Type + ":" + peer
			if peer == anyone {
				name = "everybody who reaches account " + a.Name
				if err == nil {
					x.strangers(ctx, a.Name, at.GetAgentId(), at.GetSessionKey())
				}
			}
			if id := at.GetAgentId(); err == nil && at.GetScope() == string(sessionkey.Main) && !slices.Contains(share[id], name) {
				share[id] = append(share[id], name)
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(share)) {
		list := share[id]
		if len(list) == 1 && !strings.HasPrefix(list[0], "everybody") {
			continue
		}
		more := ""
		if len(list) > 2 {
			list, more = list[:2], " and "+command.Count(len(list)-2, "other")
		}
		x.note("channel", warning, "set session.dm_scope: per-channel-peer, unless these are one person",
			"agent '%s' has one conversation for %s%s: each reads what the others write", id, screen.Line(strings.Join(list, ", ")), more)
	}
}

// strangers reports that everybody who reaches an account can have commands run outside of a sandbox.
func (x *examination) strangers(ctx context.Context, account, agent, key string) {
	if x.byDefault == "" { // no runner was reached
		return
	}
	r, err := runner.NewToolServiceClient(x.env.Conn(command.Runner)).ListTools(ctx, &runner.ListToolsRequest{AgentId: agent, SessionKey: key})
	if err != nil || r.GetSandbox().GetSandboxed() { // what is wrong with the agent is another check's
		return
	}
	if slices.ContainsFunc(r.GetTools(), func(t *runner.Tool) bool { return t.GetPolicyName() == "exec" && t.GetDenied() == "" }) {
		x.note("channel", warning, "set dm: pairing for the account, sandbox.mode: all for the agent, or deny exec there",
			"everybody may write to account %s, and agent '%s' runs commands outside of a sandbox", account, agent)
	}
}

// anyone stands for all people.
const anyone = "*"

// writersOf are the people who may write directly to an account, by their ids; anyone stands for those who are not known.
func writersOf(a layer.Account, owners []string, pairings []*registry.Pairing) (out []string) {
	if a.DM == "open" {
		out = append(out, anyone)
	}
	out = append(out, a.AllowFrom...)
	for _, o := range owners {
		if kind, peer, ok := strings.Cut(o, ":"); ok && kind == a.Type {
			out = append(out, peer)
		}
	}
	for _, p := range pairings {
		if p.GetAccount() == a.Name && p.GetType() == a.Type {
			out = append(out, p.GetPeerId())
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
