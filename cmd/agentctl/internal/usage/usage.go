// Package usage implements the command `agentctl usage`: how many tokens the agents have
// used, and what they cost.
//
// It counts committed answers: one for each model step in the journals of the turns. An
// answer that was paid for and lost, because the stream broke or the runner died before
// it was journaled, is not in the journal and not counted here; the runner's metrics
// count what providers reported.
//
// Cost is the tokens times the prices of providers.yaml, as the runner read them at its
// start. A row with tokens that have no price shows no cost, never a partial one.
package usage

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/price"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// row is a sum for programs; cost is null when a part of it has no price.
type row struct {
	Key         string   `json:"key"`
	AgentID     string   `json:"agent_id,omitempty"`
	Answers     int64    `json:"answers"`
	Input       int64    `json:"input_tokens"`
	CachedInput int64    `json:"cached_input_tokens"`
	CacheWrite  int64    `json:"cache_write_tokens"`
	Output      int64    `json:"output_tokens"`
	Reasoning   int64    `json:"reasoning_tokens"`
	Cost        *float64 `json:"cost"`

	unpriced bool
}

// account is the answer for programs.
type account struct {
	By    string  `json:"by"`
	Since *string `json:"since"`
	Rows  []*row  `json:"rows"`
	Total row     `json:"total"`
}

// Command answers the command usage.
func Command(e *command.Env) *cobra.Command {
	by := command.Choice{Value: "day", Values: []string{"day", "agent", "peer", "model", "run"}}
	var since time.Time
	c := &cobra.Command{
		Use:   "usage [ID]",
		Short: "Show how many tokens were used and what they cost",
		Long: `Show how many tokens one agent, or all, have used: by day (UTC), agent, peer (the
conversation), model or run. Each answer that a turn committed counts once, however
many attempts it took; an answer that was lost before it was committed does not count.
"cached" and "written" are the parts of the input that were read from and written to
the provider's cache, "thought" is a part of the output. The cost uses the prices of
providers.yaml that the runner has read; where a price is missing no cost is shown.`,
		Example: `  agentctl usage
  agentctl usage alice --by model --since 7d
  agentctl usage --by agent --since 2026-11-01 --json`,
		RunE: func(c *cobra.Command, args []string) error {
			out, err := collect(c.Context(), e, args, by.Value, since)
			if err != nil {
				return err
			}
			return show(e, out)
		},
	}
	c.Flags().Var(&by, "by", "how to group")
	command.SinceFlag(c, &since, "only answers since then")
	return c
}

func collect(ctx context.Context, e *command.Env, args []string, by string, since time.Time) (account, error) {
	out := account{By: by, Rows: []*row{}, Total: row{Key: "total"}}
	req := &registry.SumUsageRequest{ByDay: by == "day", ByRun: by == "run"}
	if !since.IsZero() {
		at := since.UTC().Format(time.RFC3339)
		out.Since, req.Since = &at, timestamppb.New(since)
	}
	ids, err := e.Readable(ctx, args)
	if err != nil {
		return out, err
	}
	prices, err := pricesOf(ctx, e)
	if err != nil {
		e.Note("no costs: the runner, which knows the prices, does not answer")
	}
	rows := map[[2]string]*row{}
	for _, id := range ids {
		sums, err := command.Pages(func(token string) ([]*registry.UsageSum, string, error) {
			req.AgentId, req.PageToken = id, token
			r, err := e.Turns().SumUsage(ctx, req)
			return r.GetSums(), r.GetNextPageToken(), err
		})
		if err != nil {
			return out, err
		}
		for _, s := range sums {
			agent, key := keyOf(by, id, s)
			r := rows[[2]string{agent, key}]
			if r == nil {
				r = &row{Key: key, AgentID: agent}
				rows[[2]string{agent, key}] = r
				out.Rows = append(out.Rows, r)
			}
			r.add(s, prices)
			out.Total.add(s, prices)
		}
	}
	slices.SortFunc(out.Rows, func(a, b *row) int { return cmp.Or(cmp.Compare(a.AgentID, b.AgentID), cmp.Compare(a.Key, b.Key)) })
	return out, nil
}

// keyOf is what a sum is counted under; conversations and runs of different
// agents stay apart.
func keyOf(by, agent string, s *registry.UsageSum) (of, key string) {
	switch by {
	case "agent":
		return "", agent
	case "peer":
		return agent, s.GetThreadId()
	case "run":
		return agent, s.GetRunId()
	case "model":
		return "", s.GetModel()
	default:
		return "", s.GetDay()
	}
}

func (r *row) add(s *registry.UsageSum, prices map[string]price.Price) {
	u := s.GetUsage()
	r.Answers += s.GetAnswers()
	r.Input += u.GetInput()
	r.CachedInput += u.GetCachedInput()
	r.CacheWrite += u.GetCacheWrite()
	r.Output += u.GetOutput()
	r.Reasoning += u.GetReasoning()
	p, known := prices[s.GetModel()]
	cost, whole := p.Cost(price.Tokens{Input: u.GetInput(), Output: u.GetOutput(), Cached: u.GetCachedInput(), CacheWrite: u.GetCacheWrite()})
	switch {
	case r.unpriced:
	case !known || !whole:
		r.Cost, r.unpriced = nil, true
	case r.Cost == nil:
		r.Cost = &cost
	default:
		*r.Cost += cost
	}
}

// pricesOf asks the runner; without it nothing has a price.
func pricesOf(ctx context.Context, e *command.Env) (map[string]price.Price, error) {
	out := map[string]price.Price{}
	r, err := e.RunnerService().ListProviders(ctx, &runner.ListProvidersRequest{})
	if err != nil {
		return out, err
	}
	for _, p := range r.GetProviders() {
		for _, m := range p.GetModels() {
			if q := m.GetPrice(); q != nil {
				out[p.GetName()+"/"+m.GetName()] = price.Price{Input: q.GetInput(), Output: q.GetOutput(), CacheRead: q.CacheRead, CacheWrite: q.CacheWrite}
			}
		}
	}
	return out, nil
}

// OfThread describes in a line the answers of one conversation since a time, the zero one for
// all: their tokens and what they cost. It prints nothing.
func OfThread(ctx context.Context, e *command.Env, agent, thread string, since time.Time) (string, error) {
	req := &registry.SumUsageRequest{AgentId: agent}
	if !since.IsZero() {
		req.Since = timestamppb.New(since)
	}
	sums, err := command.Pages(func(token string) ([]*registry.UsageSum, string, error) {
		req.PageToken = token
		r, err := e.Turns().SumUsage(ctx, req)
		return r.GetSums(), r.GetNextPageToken(), err
	})
	if err != nil {
		return "", err
	}
	prices, away := pricesOf(ctx, e)
	var all row
	for _, s := range sums {
		if s.GetThreadId() == thread {
			all.add(s, prices)
		}
	}
	return all.line(away != nil), nil
}

// line is a row in words; unpriced says that no price is known now.
func (r *row) line(unpriced bool) string {
	in := fmt.Sprintf("%d tokens in", r.Input)
	if r.CachedInput > 0 {
		in += fmt.Sprintf(" (%d cached)", r.CachedInput)
	}
	cost := "cost " + r.cost()
	switch {
	case r.Answers == 0:
		return "no answers"
	case unpriced:
		cost = "cost not known: no runner answers"
	case r.Cost == nil:
		cost = "cost not known: a model has no price"
	}
	return fmt.Sprintf("%s, %s, %d out, %s", command.Count(r.Answers, "answer"), in, r.Output, cost)
}

func show(e *command.Env, a account) error {
	titles, from := []string{"agent", a.By, "answers", "input", "cached", "written", "output", "thought", "cost"}, 0
	if a.By != "peer" && a.By != "run" {
		from = 1
	}
	t := screen.NewTable(e, titles[from:]...).Cut(a.By).Drop("thought", "written", "cached", "answers").Data(a).None("no answers")
	rows := slices.Clone(a.Rows)
	if len(rows) > 0 && !e.Data() {
		rows = append(rows, &a.Total)
	}
	if from == 0 {
		t.Names(0, 1)
	}
	return screen.List(t, rows, func(r *row) []any {
		return []any{r.AgentID, r.Key, r.Answers, r.Input, r.CachedInput, r.CacheWrite, r.Output, r.Reasoning, r.cost()}[from:]
	})
}

func (r *row) cost() string {
	if r.Cost == nil {
		return "-"
	}
	return strconv.FormatFloat(*r.Cost, 'f', 6, 64)
}
