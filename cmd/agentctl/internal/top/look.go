package top

import (
	"cmp"
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/theclaw/agents/cmd/agentctl/internal/channels"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/fault"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Bounds of one look.
const (
	// MaxAgents is how many agents are asked.
	MaxAgents = 500
	// window is what rates and sums are over.
	window = time.Minute
	// newest is how many turns of an agent are counted at most.
	newest = 200
)

// row is one agent.
type row struct {
	AgentID      string  `json:"agent_id"`
	State        string  `json:"state"` // started, working, stopped or failed
	Lag          int64   `json:"inbox_lag"`
	Waits        int64   `json:"waits"`     // approvals and questions that wait for a person
	Processes    int64   `json:"processes"` // in the background
	Outbound     int64   `json:"outbound_lag"`
	Dead         int64   `json:"dead_letters"`
	Turns        int64   `json:"turns"`
	TurnsPerS    float64 `json:"turns_per_second"`
	InputTokens  int64   `json:"input_tokens"`
	OutputTokens int64   `json:"output_tokens"`
	Errors       int64   `json:"errors"` // turns that ended dead, and tries that failed
	Problem      string  `json:"problem"`
}

// look is all of them at one time.
type look struct {
	At            string `json:"at"`
	WindowSeconds int    `json:"window_seconds"`
	Agents        []row  `json:"agents"`
	// Accounts are those of chat platforms; none where no gateway answers.
	Accounts []channels.Status `json:"accounts"`
	NotAsked int               `json:"agents_not_asked"`
	Total    row               `json:"total"`
}

// take looks once.
func take(ctx context.Context, e *command.Env, now time.Time) (look, error) {
	agents, err := e.AllAgents(ctx)
	if err != nil {
		return look{}, err
	}
	l := look{At: now.UTC().Format("2006-01-02T15:04:05.000Z"), WindowSeconds: int(window.Seconds()), Agents: []row{}, Accounts: []channels.Status{}}
	if over := len(agents) - MaxAgents; over > 0 {
		agents, l.NotAsked = agents[:MaxAgents], over
	}
	waits, err := waiting(ctx, e)
	if err != nil {
		return look{}, err
	}
	if list, err := channels.Statuses(ctx, e); err == nil { // agents work without a gateway
		l.Accounts = list
	}
	rows := make([]row, len(agents))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i, a := range agents {
		g.Go(func() error {
			var err error
			if rows[i], err = ask(ctx, e, a, now); err != nil && (command.Unavailable(err) || ctx.Err() != nil) {
				return err
			}
			if err != nil { // a broken agent is shown, not dropped
				rows[i].State, rows[i].Problem = "failed", fault.From(err).What
			}
			rows[i].Waits = waits[a.GetAgentId()]
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return look{}, err
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(b.Lag, a.Lag), cmp.Compare(b.TurnsPerS, a.TurnsPerS), cmp.Compare(b.Dead, a.Dead), cmp.Compare(a.AgentID, b.AgentID))
	})
	l.Agents = append(l.Agents, rows...)
	for _, r := range rows {
		l.Total.add(r)
	}
	return l, nil
}

func (r *row) add(o row) {
	r.Lag += o.Lag
	r.Waits += o.Waits
	r.Processes += o.Processes
	r.Outbound += o.Outbound
	r.Dead += o.Dead
	r.Turns += o.Turns
	r.TurnsPerS += o.TurnsPerS
	r.InputTokens += o.InputTokens
	r.OutputTokens += o.OutputTokens
	r.Errors += o.Errors
}

// maxPages bounds the pages of approvals and questions that are read.
const maxPages = 10

// waiting counts the approvals and questions that wait for a person, by agent.
func waiting(ctx context.Context, e *command.Env) (map[string]int64, error) {
	out := map[string]int64{}
	for token, page := "", 0; page < maxPages; page++ {
		r, err := e.Approvals().ListApprovals(ctx, &registry.ListApprovalsRequest{State: registry.ApprovalState_APPROVAL_STATE_PENDING, PageSize: 1000, PageToken: token})
		if err != nil {
			return nil, err
		}
		for _, a := range r.GetApprovals() {
			out[a.GetAgentId()]++
		}
		if token = r.GetNextPageToken(); token == "" {
			break
		}
	}
	for token, page := "", 0; page < maxPages; page++ {
		r, err := e.Questions().ListQuestions(ctx, &registry.ListQuestionsRequest{State: registry.QuestionState_QUESTION_STATE_PENDING, PageSize: 1000, PageToken: token})
		if err != nil {
			return nil, err
		}
		for _, q := range r.GetQuestions() {
			out[q.GetAgentId()]++
		}
		if token = r.GetNextPageToken(); token == "" {
			break
		}
	}
	return out, nil
}

func ask(ctx context.Context, e *command.Env, a *registry.Agent, now time.Time) (row, error) {
	r := row{AgentID: a.GetAgentId(), State: "stopped", Problem: a.GetProblem()}
	s, err := e.Agents().GetAgentStatus(ctx, &registry.GetAgentStatusRequest{AgentId: a.GetAgentId()})
	if err != nil {
		return r, err
	}
	r.Lag, r.Outbound, r.Dead, r.Problem = s.GetInbox().GetPending(), s.GetOutboundPending(), s.GetDead(), s.GetAgent().GetProblem()
	switch {
	case s.GetAgent().GetSetAside() != nil:
		r.State = "set aside"
	case s.GetHolder() != "" && r.Lag > 0:
		r.State = "working"
	case s.GetAgent().GetStarted():
		r.State = "started"
	}
	if s.GetHolder() != "" { // processes keep the lease
		p, err := e.Turns().ListProcesses(ctx, &registry.ListProcessesRequest{AgentId: a.GetAgentId()})
		if err != nil {
			return r, err
		}
		for _, one := range p.GetProcesses() {
			if one.GetEndedAt() == nil {
				r.Processes++
			}
		}
	}
	if s.GetLastActivity() == nil || now.Sub(s.GetLastActivity().AsTime()) > window {
		return r, nil
	}
	t, err := e.Turns().ListTurns(ctx, &registry.ListTurnsRequest{AgentId: a.GetAgentId(), PageSize: newest, WithUsage: true})
	if err != nil {
		return r, err
	}
	r.count(t.GetTurns(), now)
	return r, nil
}

// count sums the turns that ended in the window. Where there are more of them
// than were answered the rate is that of those.
func (r *row) count(turns []*registry.Turn, now time.Time) {
	span := window
	for _, t := range turns {
		if t.GetFinishedAt() == nil {
			r.Errors += int64(t.GetErrorAttempts())
			continue
		}
		ago := now.Sub(t.GetFinishedAt().AsTime())
		if ago > window {
			continue
		}
		r.Turns++
		r.InputTokens += t.GetUsage().GetInput()
		r.OutputTokens += t.GetUsage().GetOutput()
		r.Errors += int64(t.GetErrorAttempts())
		if t.GetFate() == registry.Fate_FATE_DEAD && t.GetErrorAttempts() == 0 {
			r.Errors++
		}
		if r.Turns == newest {
			span = min(max(ago, time.Second), window)
		}
	}
	r.TurnsPerS = float64(r.Turns) / span.Seconds()
}
