package agent

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/theclaw/agents/cmd/agentctl/internal/message"
	"github.com/theclaw/agents/cmd/agentctl/internal/provider"
	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease/runlock"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// inbox is the progress of the inbox consumer.
type inbox struct {
	LastAckedID int64 `json:"last_acked_id"`
	Pending     int64 `json:"pending"`
	HeadID      int64 `json:"head_id"`
}

// description is what an agent is; every answer about one begins with it.
type description struct {
	ID            string `json:"id"`
	AgentID       string `json:"agent_id"`
	Kind          string `json:"kind"`
	Dir           string `json:"dir"`
	Model         string `json:"model"`
	ContextWindow int64  `json:"context_window"`
}

// condition is how well it is.
type condition struct {
	Health  string `json:"health"`
	Problem string `json:"problem"`
}

// status adds how it is going. The first keys are those of the older tool.
type status struct {
	description
	InboxPath    string  `json:"inbox_path"`
	InboxPending int64   `json:"inbox_pending"`
	Started      bool    `json:"started"`
	LastActivity *string `json:"last_activity"`
	condition
	Inbox           inbox  `json:"inbox"`
	Holder          string `json:"holder"`
	OutboundPending int64  `json:"outbound_pending"`
	Dead            int64  `json:"dead"`
	TokensToday     int64  `json:"tokens_today"`
	TokensPerDay    int64  `json:"tokens_per_day"`
	// Waiting is what the first message without a fate waits for.
	Waiting *waiting `json:"waiting,omitempty"`

	active time.Time
}

// waiting is a message whose last try failed.
type waiting struct {
	InboxID int64   `json:"inbox_id"`
	Error   string  `json:"error"`
	NextAt  *string `json:"next_at"`

	what string
}

// waitingOf is what the first message of an agent without a fate waits for; nil: it does
// not wait, or that is not known.
func waitingOf(ctx context.Context, e *command.Env, s status) *waiting {
	if s.InboxPending == 0 {
		return nil
	}
	r, err := e.Turns().GetTurn(ctx, &registry.GetTurnRequest{AgentId: s.AgentID, InboxId: s.Inbox.LastAckedID + 1})
	what := message.Waiting(r.GetTurn(), time.Now())
	if err != nil || what == "" {
		return nil
	}
	return &waiting{r.GetTurn().GetInboxId(), r.GetTurn().GetError(), command.Stamp(r.GetTurn().GetNextAt()), what}
}

func describe(a *registry.Agent) description {
	return description{ID: a.GetAgentId(), AgentID: a.GetAgentId(), Kind: kindName(a), Dir: a.GetDir(), Model: a.GetModel(), ContextWindow: a.GetContextWindow()}
}

func conditionOf(a *registry.Agent) condition {
	return condition{healthName(a.GetHealth()), a.GetProblem()}
}

func statusOf(r *registry.GetAgentStatusResponse) status {
	s := status{
		description: describe(r.GetAgent()), condition: conditionOf(r.GetAgent()), Started: r.GetAgent().GetStarted(), InboxPath: r.GetInboxPath(), InboxPending: r.GetInbox().GetPending(),
		Inbox:  inbox{r.GetInbox().GetLastAckedId(), r.GetInbox().GetPending(), r.GetInbox().GetHeadId()},
		Holder: r.GetHolder(), OutboundPending: r.GetOutboundPending(), Dead: r.GetDead(), LastActivity: command.Stamp(r.GetLastActivity()),
		TokensToday: r.GetTokensToday(), TokensPerDay: r.GetTokensPerDay(),
	}
	if t := r.GetLastActivity(); t != nil {
		s.active = t.AsTime()
	}
	return s
}

func statusCommand(e *command.Env) *cobra.Command {
	all := false
	c := &cobra.Command{
		Use:   "status [ID]",
		Short: "Show the status of one agent, or of all",
		Long: `Show whether an agent is started, how far it has processed its inbox, and when it was
last active. Without ID, show all agents, and above them the services, the accounts of chat
platforms, what waits, and the sessions of the last 24 hours. A service that does not answer
is shown as away.

With --json the agents are a list. --full is with it: one object with everything that is
shown.`,
		Example: `  agentctl status
  agentctl status alice
  agentctl status alice --json | jq .inbox.pending
  agentctl status --json --full | jq '.queue, .sessions.active_24h'`,
		RunE: func(c *cobra.Command, args []string) error {
			if all && (len(args) > 0 || !e.Data()) {
				return command.Usage(c, "--full goes with --json or --output yaml, and without ID")
			}
			if len(args) == 0 {
				return statusOfAll(c.Context(), e, all)
			}
			r, err := e.Agents().GetAgentStatus(c.Context(), &registry.GetAgentStatusRequest{AgentId: args[0]})
			if err != nil {
				return err
			}
			s := statusOf(r)
			s.Waiting = waitingOf(c.Context(), e, s)
			return e.Print(s, args, func() error {
				s.Model = provider.Names(c.Context(), e, s.Model)(s.Model)
				return printStatus(e, s)
			})
		},
	}
	c.Flags().BoolVar(&all, "full", false, "with --json: one object with services, channels, queue and sessions, too")
	return c
}

// printStatus writes the nine lines of the older tool, and ours only when they
// have something to say.
func printStatus(e *command.Env, s status) error {
	last := "none"
	if s.LastActivity != nil {
		last = *s.LastActivity
	}
	line := func(name, format string, args ...any) {
		fmt.Fprintf(e.Out, "%-15s %s\n", name+":", screen.Line(fmt.Sprintf(format, args...)))
	}
	line("Agent", "%s", s.AgentID)
	line("Kind", "%s", s.Kind)
	const rows = "in the shared database"
	line("Dir", "%s", cmp.Or(s.Dir, rows))
	line("Model", "%s", s.Model)
	line("Context window", "%d", s.ContextWindow)
	line("Inbox", "%s", cmp.Or(s.InboxPath, rows))
	line("Inbox pending", "%d", s.InboxPending)
	line("Started", "%s", yes(s.Started))
	line("Last activity", "%s", last)
	switch {
	case runlock.Blocks(s.Holder):
		line("Locked", "%s; no runner takes the agent meanwhile", s.Holder)
	case s.Holder != "" && s.InboxPending > 0: // an idle lease is no work
		line("Working now", "%s", s.Holder)
	}
	if w := s.Waiting; w != nil {
		line("Waiting", "message %d: %s", w.InboxID, w.what)
	}
	if s.TokensPerDay > 0 && s.TokensToday > 0 {
		line("Tokens today", "%d of %d", s.TokensToday, s.TokensPerDay)
	}
	if s.OutboundPending > 0 {
		line("Replies to send", "%d", s.OutboundPending)
	}
	if s.Dead > 0 {
		line("Dead letters", "%d (see 'agentctl dlq list %s')", s.Dead, s.AgentID)
	}
	if s.Problem != "" || s.Health != "ok" {
		line("Problem", "%s: %s", s.Health, s.Problem)
	}
	return nil
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func statusOfAll(ctx context.Context, e *command.Env, full bool) error {
	agents, err := e.AllAgents(ctx)
	if err != nil {
		return err
	}
	all := make([]status, len(agents))
	step, done := screen.Progress(e, len(agents), "asking")
	g, asking := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i, a := range agents {
		g.Go(func() error {
			defer step()
			r, err := e.Agents().GetAgentStatus(asking, &registry.GetAgentStatusRequest{AgentId: a.GetAgentId()})
			switch {
			case err == nil:
				all[i] = statusOf(r)
				all[i].Waiting = waitingOf(asking, e, all[i])
			case command.Unavailable(err) || asking.Err() != nil:
				return err
			default: // a broken agent is shown, not dropped
				all[i] = status{description: describe(a), condition: conditionOf(a), Started: a.GetStarted()}
				all[i].Health = "failed"
				if all[i].Problem == "" {
					all[i].Problem = fault.From(err).What
				}
			}
			return nil
		})
	}
	err = g.Wait()
	done()
	if err != nil {
		return err
	}
	var above overview
	if full || !e.Data() && !e.Older {
		if above, err = look(ctx, e, all); err != nil {
			return err
		}
	}
	now, model := time.Now(), modelsOf(ctx, e, agents)
	t := screen.NewTable(e, "agent", "kind", "started", "pending", "dead", "active", "model", "dir", "health").Wide("dir").Drop("kind", "model", "active", "started")
	if full {
		t.Data(above)
	}
	if !e.Older {
		t.Before(func() { above.print(e) })
	}
	return screen.List(t.Then(func() { noAgents(e, len(all)) }), all, func(s status) []any {
		health := s.words()
		if w := s.Waiting; w != nil {
			health += fmt.Sprintf("; message %d waits: %s", w.InboxID, w.what)
		}
		return []any{s.AgentID, s.Kind, yes(s.Started), s.InboxPending, s.Dead, screen.Age(now, s.active), cmp.Or(model(s.Model), "-"), cmp.Or(s.Dir, "-"), health}
	})
}

// modelsOf names the models of agents in a table; programs get what the registry has.
func modelsOf(ctx context.Context, e *command.Env, agents []*registry.Agent) func(string) string {
	var models []string
	for _, a := range agents {
		if !e.Data() {
			models = append(models, a.GetModel())
		}
	}
	return provider.Names(ctx, e, models...)
}

// noAgents is what the older tool prints for none.
func noAgents(e *command.Env, n int) {
	if n == 0 {
		fmt.Fprintln(e.Out, "No agents found")
	}
}

// words of a condition for people.
func (c condition) words() string {
	if c.Health == "ok" {
		return "ok"
	}
	return c.Health + ": " + c.Problem
}

func listCommand(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List all agents",
		Long:  `List all agents. An agent that cannot be used is listed with its problem.`,
		Example: `  agentctl list
  agentctl list --json | jq -r '.[].agent_id'`,
		RunE: func(c *cobra.Command, _ []string) error {
			agents, err := e.AllAgents(c.Context())
			if err != nil {
				return err
			}
			all := []listed{}
			for _, a := range agents {
				all = append(all, listed{a.GetAgentId(), kindName(a), a.GetStarted(), conditionOf(a), nil, a})
			}
			columns := []string{"agent", "kind", "state", "model", "dir", "health"}
			shown := addIdentities(c.Context(), e, all)
			if shown {
				columns = append(columns, "identity")
			}
			model := modelsOf(c.Context(), e, agents)
			t := screen.NewTable(e, columns...).Wide("dir").Drop("kind", "model")
			return screen.List(t.Then(func() { noAgents(e, len(all)) }), all, func(l listed) []any {
				state := map[bool]string{true: "started", false: "stopped"}[l.Started]
				row := []any{l.AgentID, l.Kind, state, cmp.Or(model(l.of.GetModel()), "-"), cmp.Or(l.of.GetDir(), "-"), l.words()}
				if shown {
					row = append(row, l.Identity.words())
				}
				return row
			})
		},
	}
}

// listed is one line of list.
type listed struct {
	AgentID string `json:"agent_id"`
	Kind    string `json:"kind"`
	Started bool   `json:"started"`
	condition
	Identity *identity `json:"identity,omitempty"`

	of *registry.Agent
}

// identity is how an agent presents itself, by its entry in agents.list.
type identity struct {
	Name  string `json:"name,omitempty"`
	Theme string `json:"theme,omitempty"`
	Emoji string `json:"emoji,omitempty"`
}

func (i *identity) words() string {
	if i == nil {
		return "-"
	}
	return strings.Join(strings.Fields(i.Emoji+" "+i.Name+" "+i.Theme), " ")
}

// addIdentities adds what the settings of the home say, and reports whether they say it of
// any agent. Agents are listed also where the settings cannot be read.
func addIdentities(ctx context.Context, e *command.Env, all []listed) (found bool) {
	r, err := e.Homes().GetHomeConfig(ctx, &registry.GetHomeConfigRequest{})
	if err != nil {
		return false
	}
	s, err := layer.ReadHome(layer.File{Name: r.GetName(), Data: []byte(r.GetText())})
	if err != nil {
		return false
	}
	for _, entry := range s.Agents {
		for i := range all {
			if all[i].AgentID == entry.ID && entry.Identity != (layer.Identity{}) {
				all[i].Identity, found = &identity{entry.Identity.Name, entry.Identity.Theme, entry.Identity.Emoji}, true
			}
		}
	}
	return found
}
