// Package sessions implements the command `agentctl sessions`: it lists the conversations of
// an agent by their keys, shows one with its messages, changes its settings, and begins a new
// epoch of it. An epoch is the part of a conversation that the model sees.
//
// It promises that a key which differs from that of a session in case alone is found, and that
// a change says what the next message of the conversation will find.
//
// It shows no steps of turns; `agentctl explain` does.
package sessions

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/theclaw/agents/cmd/agentctl/internal/provider"
	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/sessionkey"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// pageMost is the most sessions of one call.
const pageMost = 1000

// keyed makes KEY a session key.
var keyed = map[string]string{"KEY": "SESSION"}

// Command answers the command sessions.
func Command(e *command.Env) *cobra.Command {
	return command.Group(e, &cobra.Command{
		Use:   "sessions",
		Short: "List conversations by their keys, change and reset them",
		Example: `  agentctl sessions list alice
  agentctl sessions history agent:alice:console:cli:dm:cli
  agentctl sessions patch agent:alice:console:cli:dm:cli --model gpt-5
  agentctl sessions reset agent:alice:console:cli:dm:cli`,
	}, listCommand(e), showCommand(e), historyCommand(e), patchCommand(e), resetCommand(e), archiveCommand(e))
}

// entry is a session of a list for programs.
type entry struct {
	AgentID   string  `json:"agent_id"`
	Key       string  `json:"key"`
	ThreadID  string  `json:"thread_id"`
	SessionID string  `json:"session_id"`
	Messages  int64   `json:"messages"`
	LastAt    *string `json:"last_at"`
	Title     string  `json:"title"`
	Archived  bool    `json:"archived"`
}

// listed is a session of the list: Model is the one that answers it, Where the account and the kind of its conversation.
type listed struct {
	entry
	Model string `json:"model"`
	Where string `json:"where"`
}

// overrides are the settings that hold in one session; what is empty is as the agent's
// settings say.
type overrides struct {
	Model       string `json:"model"`
	Thinking    string `json:"thinking"`
	Verbose     string `json:"verbose"`
	Reasoning   string `json:"reasoning"`
	QueueMode   string `json:"queue_mode"`
	UsageFooter string `json:"usage_footer"`
	Elevated    string `json:"elevated"`
}

// detail is all of a session for programs. Pending is the reason with which the next message
// begins an epoch.
type detail struct {
	entry
	EpochFromID int64     `json:"epoch_from_id"`
	StartedAt   *string   `json:"started_at"`
	Pending     string    `json:"pending"`
	Overrides   overrides `json:"overrides"`
}

func entryOf(s *registry.Session) entry {
	return entry{s.GetAgentId(), s.GetKey(), s.GetThreadId(), s.GetSessionId(), s.GetMessages(), command.Stamp(s.GetLastAt()), s.GetTitle(), s.GetArchived()}
}

func detailOf(s *registry.Session) detail {
	o := s.GetOverrides()
	return detail{
		entry: entryOf(s), EpochFromID: s.GetEpochFromId(), StartedAt: command.Stamp(s.GetStartedAt()), Pending: s.GetPending(),
		Overrides: overrides{o.GetModel(), o.GetThinking(), o.GetVerbose(), o.GetReasoning(), o.GetQueueMode(), o.GetUsageFooter(), o.GetElevated()},
	}
}

func listCommand(e *command.Env) *cobra.Command {
	req, limit, since := registry.ListSessionsRequest{}, 50, time.Time{}
	kind := command.Choice{Value: "all", Values: []string{"all", "main", "dm", "group", "channel", "named"}}
	c := &cobra.Command{
		Use:   "list ID",
		Short: "List the sessions of an agent",
		Long: `List the sessions of an agent, the last active first: the key, the epoch of the next
message, the messages that were answered or ended otherwise, the time since the last event,
and where the conversation is: its account and kind. -o wide, --json and -o yaml also show
the model that answers, and read each conversation for it; for one that cannot be read, they
show the model of the agent.`,
		Example: `  agentctl sessions list alice
  agentctl sessions list alice --kind group --since 7d
  agentctl sessions list alice --archived --limit 1000 --json`,
		RunE: func(c *cobra.Command, args []string) error {
			req.AgentId, req.Overrides = args[0], e.Wide() || e.Flags.JSON || e.Flags.Output.Value == command.OutputYAML
			if kind.Value != "all" {
				req.Kind = kind.Value
			}
			if !since.IsZero() {
				req.ActiveSince = timestamppb.New(since)
			}
			found, more, err := list(c.Context(), e, &req, limit)
			if err != nil {
				return err
			}
			var set *registry.GetAgentConfigResponse
			if req.GetOverrides() {
				if set, err = e.Agents().GetAgentConfig(c.Context(), &registry.GetAgentConfigRequest{AgentId: args[0]}); err != nil {
					return err
				}
			}
			return show(e, found, set, more, limit)
		},
	}
	command.SinceFlag(c, &since, "only sessions active since then")
	c.Flags().BoolVar(&req.Archived, "archived", false, "archived sessions too")
	c.Flags().Var(&kind, "kind", "only sessions of this kind")
	command.NumberFlag(c, &limit, "limit", 1, 100_000, "maximum number of sessions")
	return c
}

// list reads pages until there are as many sessions as limit; more reports that others follow.
func list(ctx context.Context, e *command.Env, req *registry.ListSessionsRequest, limit int) (found []*registry.Session, more bool, err error) {
	for {
		req.PageSize = int32(min(limit-len(found), pageMost))
		r, err := e.Sessions().ListSessions(ctx, req)
		if err != nil {
			return nil, false, err
		}
		found = append(found, r.GetSessions()...)
		next := r.GetNextPageToken()
		if next == "" || next == req.GetPageToken() || len(found) >= limit {
			return found, next != "", nil
		}
		req.PageToken = next
	}
}

func show(e *command.Env, found []*registry.Session, set *registry.GetAgentConfigResponse, more bool, limit int) error {
	now, all := time.Now(), []listed{}
	for _, s := range found {
		all = append(all, listed{entryOf(s), modelOf(set, s), place(s.GetKey())})
	}
	t := screen.NewTable(e, "key", "epoch", "messages", "last", "model", "where", "title", "thread").Wide("model", "thread").Cut("title").
		Drop("epoch", "messages", "last", "where").Data(all).None("no sessions")
	if more {
		t.Then(func() { e.Note("these are the newest %d; --limit shows more", limit) })
	}
	return screen.List(t, found, func(s *registry.Session) []any {
		title := s.GetTitle()
		if s.GetArchived() {
			title = strings.TrimSpace(title + " (archived)")
		}
		return []any{
			s.GetKey(), cmp.Or(s.GetSessionId(), "-"), s.GetMessages(), screen.Age(now, when(s.GetLastAt())), cmp.Or(modelOf(set, s), "-"),
			cmp.Or(place(s.GetKey()), "-"), title, s.GetThreadId(),
		}
	})
}

// modelOf is the model of a session, else that of the agent; empty: the provider chooses it.
func modelOf(set *registry.GetAgentConfigResponse, s *registry.Session) string {
	name, model := provider.ChosenOf(set)
	own := s.GetOverrides().GetModel()
	if strings.Contains(own, "/") {
		return own
	}
	return strings.Trim(name+"/"+cmp.Or(own, model), "/")
}

// place is where the conversation of a key takes place: the account, or the type of the platform where the key has no
// account, and the kind of the conversation.
func place(key string) string {
	k, err := sessionkey.Parse(key)
	if err != nil {
		return ""
	}
	where := cmp.Or(k.Account, k.Type)
	switch k.Scope {
	case sessionkey.Main:
		where = "main"
	case sessionkey.Named:
		where = k.Word
	case sessionkey.Conversation:
		where += " " + k.Kind
	case sessionkey.Channel:
		where += " all"
	default:
		where += " " + sessionkey.DM
	}
	if k.ThreadID != "" {
		where += " thread"
	}
	return strings.TrimSpace(where)
}

// when is the zero time for an absent timestamp.
func when(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

func showCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "show KEY",
		Short: "Show a session with its settings",
		Long: `Show all of a session: where it is stored, the epoch that the model sees, what was set for
it, and whether the next message begins a new epoch. A key in another case works when only
one session matches it.`,
		Example: `  agentctl sessions show agent:alice:console:cli:dm:cli
  agentctl sessions show agent:alice:console:cli:dm:cli --json`,
		Annotations: keyed,
		RunE: func(c *cobra.Command, args []string) error {
			s, err := get(c.Context(), e, args[0])
			if err != nil {
				return err
			}
			return e.Print(detailOf(s), []string{s.GetKey()}, func() error { return describe(e, s) })
		},
	}
}

func get(ctx context.Context, e *command.Env, key string) (*registry.Session, error) {
	r, err := e.Sessions().GetSession(ctx, &registry.GetSessionRequest{AgentId: command.SessionAgent(key), Key: key})
	return r.GetSession(), err
}

// describe prints all of a session for people.
func describe(e *command.Env, s *registry.Session) error {
	epoch := cmp.Or(s.GetSessionId(), "none yet")
	if at := command.Stamp(s.GetStartedAt()); at != nil {
		epoch += ", since " + *at
	}
	if id := s.GetEpochFromId(); id > 0 {
		epoch += fmt.Sprintf(", behind event %d", id)
	}
	messages := fmt.Sprint(s.GetMessages())
	if at := command.Stamp(s.GetLastAt()); at != nil {
		messages += ", last active at " + *at
	}
	next := "continues this epoch"
	if s.GetPending() != "" {
		next = "begins a new epoch (" + s.GetPending() + ")"
	}
	rows := [][2]string{
		{"key", s.GetKey()},
		{"agent", s.GetAgentId()},
		{"title", s.GetTitle()},
		{"thread", s.GetThreadId()},
		{"epoch", epoch},
		{"messages", messages},
		{"next message", next},
		{"archived", map[bool]string{true: "yes", false: "no"}[s.GetArchived()]},
	}
	for _, o := range settings(s.GetOverrides()) {
		rows = append(rows, [2]string{o[0], cmp.Or(o[1], "as the agent's settings say")})
	}
	for _, r := range rows {
		if _, err := fmt.Fprintln(e.Out, strings.TrimRight(fmt.Sprintf("%-13s %s", r[0]+":", screen.Line(r[1])), " ")); err != nil {
			return err
		}
	}
	return nil
}

// settings are the overrides by the names of the flags.
func settings(o *registry.SessionOverrides) [][2]string {
	return [][2]string{
		{"model", o.GetModel()},
		{"thinking", o.GetThinking()},
		{"verbose", o.GetVerbose()},
		{"reasoning", o.GetReasoning()},
		{"queue-mode", o.GetQueueMode()},
		{"usage-footer", o.GetUsageFooter()},
		{"elevated", o.GetElevated()},
	}
}
