// Package bindings implements the command `agentctl bindings`: which agent gets the messages
// of a chat platform, and where a message would go.
//
// It promises that a change is written only over the bindings that it was made from: when
// others were written meanwhile, it is made again from those, and a removal still removes the
// binding that was there under its number.
package bindings

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/fault"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Command answers the command bindings.
func Command(e *command.Env) *cobra.Command {
	return command.Group(e, &cobra.Command{
		Use:   "bindings",
		Short: "Decide which agent gets the messages of a chat platform",
		Example: `  agentctl bindings list
  agentctl bindings add alice --channel discord --guild 81
  agentctl bindings test --channel discord --peer channel:77 --guild 81`,
	}, listCommand(e), addCommand(e), removeCommand(e), testCommand(e))
}

// binding is one of the list for programs; what is empty states nothing.
type binding struct {
	Binding   int    `json:"binding"`
	AgentID   string `json:"agent_id"`
	Channel   string `json:"channel"`
	AccountID string `json:"account_id"`
	Peer      string `json:"peer"`
	GuildID   string `json:"guild_id"`
	TeamID    string `json:"team_id"`
}

func bindingOf(n int, b *registry.Binding) binding {
	m := b.GetMatch()
	peer := ""
	if p := m.GetPeer(); p.GetId() != "" {
		peer = p.GetKind() + ":" + p.GetId()
	}
	return binding{n, b.GetAgentId(), m.GetChannel(), m.GetAccountId(), peer, m.GetGuildId(), m.GetTeamId()}
}

// String is the binding for people.
func (b binding) String() string {
	text := b.Channel
	for _, part := range [][2]string{{"account", b.AccountID}, {"peer", b.Peer}, {"guild", b.GuildID}, {"team", b.TeamID}} {
		if part[1] != "" {
			text += " " + part[0] + " " + part[1]
		}
	}
	return text + " -> agent " + b.AgentID
}

func listCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the bindings in their order",
		Long: `List the bindings in their order. The most specific binding that matches a message decides:
peer, then the peer that it is a thread of, guild, team, account, channel; among equal ones
the first. A binding without an account means the default account of its type.`,
		Example: `  agentctl bindings list
  agentctl bindings list --json | jq -r '.[].agent_id'`,
		RunE: func(c *cobra.Command, _ []string) error {
			r, err := e.Routing().ListBindings(c.Context(), &registry.ListBindingsRequest{})
			if err != nil {
				return err
			}
			all := []binding{}
			for i, b := range r.GetBindings() {
				all = append(all, bindingOf(i+1, b))
			}
			t := screen.NewTable(e, "n", "agent", "channel", "account", "peer", "guild", "team").Cut("peer").Drop("team", "guild").
				None("no bindings: every message goes to the default agent")
			return screen.List(t, all, func(b binding) []any {
				return []any{b.Binding, b.AgentID, b.Channel, cmp.Or(b.AccountID, "(default)"), cmp.Or(b.Peer, "-"), cmp.Or(b.GuildID, "-"), cmp.Or(b.TeamID, "-")}
			})
		},
	}
}

// match are the flags that add and test share.
type match struct{ channel, account, peer, guild, team string }

func (m *match) flags(c *cobra.Command, account command.Kind) {
	f := c.Flags()
	command.TextFlag(f, &m.channel, "channel", command.ChannelType, "type of the platform, such as telegram; required")
	command.TextFlag(f, &m.account, "account", account, "account that receives the message (default: the default one of the type)")
	command.TextFlag(f, &m.peer, "peer", command.PlatformPeer, "conversation of the platform: dm:ID, group:ID or channel:ID")
	command.TextFlag(f, &m.guild, "guild", command.PlatformID, "guild of Discord")
	command.TextFlag(f, &m.team, "team", command.PlatformID, "team of Slack")
}

// check refuses a command line without a channel.
func (m *match) check(c *cobra.Command) error {
	if m.channel == "" {
		return command.Usage(c, "--channel is missing")
	}
	return nil
}

// peerOf reads KIND:ID, which its flag has checked; nil for none.
func peerOf(text string) *registry.RoutePeer {
	kind, id, err := command.PeerOf(text)
	if err != nil {
		return nil
	}
	return &registry.RoutePeer{Kind: kind, Id: id}
}

// result is a changed binding for programs.
type result struct {
	binding
	Version string `json:"version"`
}

func addCommand(e *command.Env) *cobra.Command {
	var m match
	at := 0
	c := &cobra.Command{
		Use:   "add ID",
		Short: "Give an agent the messages that match",
		Long: `Add a binding: agent ID gets the messages that match every flag that is given. It is added
at the end of the list, or at the number --at, which matters among bindings that are equally
specific. One that an earlier binding hides is refused.`,
		Example: `  agentctl bindings add alice --channel discord --guild 81
  agentctl bindings add alice --channel telegram --account '*' --peer group:-100200 --at 1`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := m.check(c); err != nil {
				return err
			}
			if err := e.MustExist(c.Context(), args[0]); err != nil {
				return err
			}
			b := &registry.Binding{AgentId: args[0], Match: &registry.BindingMatch{
				Channel: m.channel, AccountId: m.account, Peer: peerOf(m.peer), GuildId: m.guild, TeamId: m.team,
			}}
			n := 0
			version, err := change(c.Context(), e, func(all []*registry.Binding) ([]*registry.Binding, error) {
				if n = cmp.Or(at, len(all)+1); n > len(all)+1 {
					return nil, command.Usage(c, "--at %d: the list has %s, use a number from 1 to %d", at, command.Count(len(all), "binding"), len(all)+1)
				}
				return slices.Insert(all, n-1, b), nil
			})
			if err != nil {
				return err
			}
			added := bindingOf(n, b)
			return e.Show(result{added, version}, strconv.Itoa(n), "Binding %d added: %s", n, screen.Line(added.String()))
		},
	}
	m.flags(c, command.AnyAccount)
	command.NumberFlag(c, &at, "at", 1, 10_000, "number that it gets (default: after the last)")
	return c
}

func removeCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "remove N",
		Short: "Remove a binding by its number",
		Long: `Remove the binding with this number of 'agentctl bindings list'. The following ones get a
number less by one. Conversations that exist stay where they are.`,
		Example: `  agentctl bindings remove 2`,
		RunE: func(c *cobra.Command, args []string) error {
			n, err := strconv.Atoi(args[0])
			if err != nil {
				return err
			}
			var gone *registry.Binding
			version, err := change(c.Context(), e, func(all []*registry.Binding) ([]*registry.Binding, error) {
				i, err := find(all, n, gone)
				if err != nil {
					return nil, err
				}
				gone = all[i]
				return slices.Delete(slices.Clone(all), i, i+1), nil
			})
			if err != nil {
				return err
			}
			removed := bindingOf(n, gone)
			return e.Show(result{removed, version}, args[0], "Binding %d removed: %s", n, screen.Line(removed.String()))
		},
	}
}

// find returns the index of the binding with number n, or of the one that had it when the list
// was read first: its number may have changed since.
func find(all []*registry.Binding, n int, was *registry.Binding) (int, error) {
	switch {
	case n > len(all) && was == nil:
		return 0, fault.New(codes.NotFound, fault.InvalidArgument, fmt.Sprintf("there is no binding %d: the list has %s", n, command.Count(len(all), "binding")),
			"'agentctl bindings list' shows the numbers")
	case was == nil, n <= len(all) && proto.Equal(all[n-1], was):
		return n - 1, nil
	}
	if i := slices.IndexFunc(all, func(b *registry.Binding) bool { return proto.Equal(b, was) }); i >= 0 {
		return i, nil
	}
	return 0, fault.New(codes.NotFound, fault.InvalidArgument, fmt.Sprintf("binding %d was removed or changed meanwhile", n), "see 'agentctl bindings list'")
}

// tries is how often a change is made from the bindings of that moment.
const tries = 3

// change replaces the bindings by what edit makes of them, and returns the new version. When
// others were written meanwhile it reads them and tries again.
func change(ctx context.Context, e *command.Env, edit func([]*registry.Binding) ([]*registry.Binding, error)) (version string, err error) {
	for range tries {
		var now *registry.ListBindingsResponse
		if now, err = e.Routing().ListBindings(ctx, &registry.ListBindingsRequest{}); err != nil {
			return "", err
		}
		list, bad := edit(now.GetBindings())
		if bad != nil {
			return "", bad
		}
		var set *registry.SetBindingsResponse
		set, err = e.Routing().SetBindings(ctx, &registry.SetBindingsRequest{Bindings: list, Version: now.GetVersion()})
		if err == nil {
			return set.GetVersion(), nil
		}
		if fault.From(err).Code != codes.Aborted {
			return "", err
		}
	}
	return "", err
}

// route is where a message would go, for programs.
type route struct {
	AgentID        string  `json:"agent_id"`
	Channel        string  `json:"channel"`
	AccountID      string  `json:"account_id"`
	SessionKey     string  `json:"session_key"`
	MainSessionKey string  `json:"main_session_key"`
	MatchedBy      string  `json:"matched_by"`
	Binding        int32   `json:"binding"`
	Scope          string  `json:"scope"`
	ThreadID       string  `json:"thread_id"`
	Tried          []tried `json:"tried"`
}

// tried is a binding that did not decide.
type tried struct {
	Binding int32  `json:"binding"`
	Why     string `json:"why"`
}

func testCommand(e *command.Env) *cobra.Command {
	var m match
	var parent, author, threadID string
	c := &cobra.Command{
		Use:   "test",
		Short: "Show which agent and conversation a message would go to",
		Long: `Show where a message would go now: the agent, what decided, the session key, and the
thread that stores the conversation; then the bindings of the channel that do not match,
and why. Nothing is stored. Without --peer it is the main conversation of the agent.`,
		Example: `  agentctl bindings test --channel discord --account dc --peer channel:77 --guild 81
  agentctl bindings test --channel telegram --peer dm:1207 --json`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := m.check(c); err != nil {
				return err
			}
			r, err := e.Routing().ResolveRoute(c.Context(), &registry.ResolveRouteRequest{
				Channel: m.channel, AccountId: m.account, Peer: peerOf(m.peer), ParentPeer: peerOf(parent), GuildId: m.guild, TeamId: m.team,
				PlatformThread: threadID, Author: author,
			})
			if err != nil {
				return err
			}
			out := route{
				r.GetAgentId(), r.GetChannel(), r.GetAccountId(), r.GetSessionKey(), r.GetMainSessionKey(), r.GetMatchedBy(), r.GetBinding(), r.GetScope(), r.GetThreadId(), []tried{},
			}
			for _, t := range r.GetTried() {
				out.Tried = append(out.Tried, tried{t.GetBinding(), t.GetWhy()})
			}
			return e.Print(out, []string{out.SessionKey}, func() error { return out.print(e) })
		},
	}
	m.flags(c, command.Account)
	f := c.Flags()
	command.TextFlag(f, &parent, "parent", command.PlatformPeer, "conversation that the peer is a thread of")
	command.TextFlag(f, &author, "author", command.PlatformID, "who wrote, where that is not the peer")
	command.TextFlag(f, &threadID, "thread", command.PlatformID, "thread of the platform in the conversation")
	return c
}

// print writes the route for people.
func (r route) print(e *command.Env) error {
	matched := r.MatchedBy
	if r.Binding > 0 {
		matched += fmt.Sprintf(" (binding %d)", r.Binding)
	}
	line := fmt.Sprintf("agent %s   matched by %s   session %s   thread %s", r.AgentID, matched, r.SessionKey, r.ThreadID)
	if _, err := fmt.Fprintln(e.Out, screen.Line(line)); err != nil || len(r.Tried) == 0 {
		return err
	}
	var b strings.Builder
	lead := "not matched: "
	for _, t := range r.Tried {
		fmt.Fprintf(&b, "%s%d %s\n", lead, t.Binding, screen.Line(t.Why))
		lead = strings.Repeat(" ", len(lead))
	}
	_, err := fmt.Fprint(e.Out, b.String())
	return err
}
