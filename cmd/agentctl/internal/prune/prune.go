// Package prune implements the command `agentctl prune`: it lets the registry remove old
// data, or only report what it would remove, and shows what is kept and why.
//
// The registry does the work, under its rules; this package touches no file.
package prune

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/cmd/agentctl/internal/screen"
	"github.com/theclaw/agents/cmd/internal/command"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// least is the youngest that may go: a day, for which a model call and a send are
// tried, and an hour.
const least = 25 * time.Hour

// kinds are what there is to prune, in the order shown.
var kinds = []struct {
	kind            registry.PruneKind
	name, what, why string
}{
	{registry.PruneKind_PRUNE_KIND_RESULTS, "results", "arguments and results of steps", "the last answer of a turn, dead or doubtful turns, replies not delivered"},
	{registry.PruneKind_PRUNE_KIND_KEYS, "keys", "idempotency keys of pushes", "other agents' deliveries and retries are checked by them; dead letters"},
	{registry.PruneKind_PRUNE_KIND_LINES, "lines", "rotated parts of events.jsonl", "the newest part of each thread"},
	{registry.PruneKind_PRUNE_KIND_LOGS, "logs", "rotated parts of logs", ""},
	{registry.PruneKind_PRUNE_KIND_MEDIA, "media", "images and other media", "younger events or results of steps refer to them"},
}

// row is a kind for programs.
type row struct {
	Kind    string `json:"kind"`
	Removed int64  `json:"removed"`
	Bytes   int64  `json:"bytes"`
	Kept    int64  `json:"kept"`
	Why     string `json:"why_kept"`
}

// Command answers the command prune.
func Command(e *command.Env) *cobra.Command {
	age := 30 * 24 * time.Hour
	var apply bool
	c := &cobra.Command{
		Use:   "prune [ID]",
		Short: "Remove old data that is no longer needed",
		Long: `Show the old data of one agent, or of all, that is no longer needed, and with --apply
remove it: arguments and results of the steps of finished turns, idempotency keys of
pushes, rotated parts of events.jsonl and of logs, and media. The agents may run
meanwhile. Media to which nothing refers are removed an hour after they were written.

Events, fates, turns, deliveries and the data of 'agentctl usage' are never removed. Old
data that is kept is counted, with the reason. A push repeated with a removed key is a new
message, so choose an age after which no push is repeated. The space of removed rows is
reused; database files do not get smaller.`,
		Example: `  agentctl prune
  agentctl prune alice --older-than 90d --apply
  agentctl prune --json`,
		RunE: func(c *cobra.Command, args []string) error {
			if age < least {
				return command.Usage(c, "--older-than must be at least 25h: a message may be tried for a day")
			}
			rows, agents, err := ask(c.Context(), e, args, age, apply)
			if err != nil {
				return err
			}
			return show(e, rows, agents, c.Flag("older-than").Value.String(), apply)
		},
	}
	command.DurationFlag(c.Flags(), &age, "older-than", "minimum age, such as 30d or 720h; at least 25h")
	c.Flags().BoolVar(&apply, "apply", false, "remove the data")
	return c
}

func ask(ctx context.Context, e *command.Env, ids []string, age time.Duration, apply bool) ([]*row, int, error) {
	if len(ids) == 0 {
		agents, err := e.AllAgents(ctx)
		if err != nil {
			return nil, 0, err
		}
		for _, a := range agents {
			if p := a.GetProblem(); p != "" {
				e.Note("%s is left out: %s", a.GetAgentId(), screen.Line(p))
				continue
			}
			ids = append(ids, a.GetAgentId())
		}
	}
	rows, by := []*row{}, map[registry.PruneKind]*row{}
	for _, k := range kinds {
		by[k.kind] = &row{Kind: k.name, Why: k.why}
		rows = append(rows, by[k.kind])
	}
	for _, id := range ids {
		_, err := command.Pages(func(token string) ([]*registry.PruneSum, string, error) {
			r, err := e.Agents().PruneAgent(ctx, &registry.PruneAgentRequest{AgentId: id, OlderThan: durationpb.New(age), Apply: apply, PageToken: token})
			for _, s := range r.GetSums() {
				if sum := by[s.GetKind()]; sum != nil { // a newer registry may know more
					sum.Removed += s.GetRemoved()
					sum.Bytes += s.GetBytes()
					sum.Kept += s.GetKept()
				}
			}
			return nil, r.GetNextPageToken(), err
		})
		if err != nil {
			return nil, 0, err
		}
	}
	return rows, len(ids), nil
}

func show(e *command.Env, rows []*row, agents int, older string, apply bool) error {
	verb, did, removed := "would remove", "would be removed", int64(0)
	if apply {
		verb, did = "removed", "removed"
	}
	for _, r := range rows {
		removed += r.Removed
	}
	t := screen.NewTable(e, "what", verb, "bytes", "kept", "why kept").Data(struct {
		OlderThan string `json:"older_than"`
		Applied   bool   `json:"applied"`
		Agents    int    `json:"agents"`
		Rows      []*row `json:"rows"`
	}{older, apply, agents, rows}).Then(func() {
		fmt.Fprintf(e.Out, "%d %s, of %s, older than %s\n", removed, did, command.Count(agents, "agent"), older)
		if removed > 0 && !apply {
			e.Note("nothing was changed: add --apply to do it")
		}
	})
	return screen.List(t, rows, func(r *row) []any {
		what, why := r.Kind, r.Why
		if r.Kept == 0 {
			why = ""
		}
		if !e.Data() {
			what = kinds[slices.Index(rows, r)].what
		}
		return []any{what, r.Removed, r.Bytes, r.Kept, why}
	})
}
