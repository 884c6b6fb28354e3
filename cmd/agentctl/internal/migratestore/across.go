package migratestore

import (
	"context"
	"fmt"

	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store/postgres/relocate"
)

// relocated is what became of one agent that goes from one database to another.
type relocated struct {
	relocate.Report
	Error string `json:"error,omitempty"`
}

// across moves agents to another database of the list.
func (m *migration) across(ctx context.Context) error {
	shards, err := m.open(ctx)
	if err != nil {
		return away(err)
	}
	defer shards.Close()
	done := make([]relocated, 0, len(m.agents))
	failed := false
	for i, id := range m.agents {
		m.env.Note("%d of %d: %s ...", i+1, len(m.agents), id)
		r, err := relocate.Move{Set: shards, Agent: id, To: m.shard - 1, Confirm: func(relocate.Report) bool { return m.apply }}.Run(ctx)
		if err != nil && len(m.agents) == 1 {
			return away(err)
		}
		r.Agent = id
		o := relocated{Report: r}
		if err != nil {
			failed, o.Error = true, fault.Line(away(err))
		}
		done = append(done, o)
		m.printAcross(o)
		if ctx.Err() != nil {
			break // the rest is for the next run
		}
	}
	if m.env.Flags.JSON {
		if err := m.env.PrintJSON(struct {
			To     int         `json:"to_shard"`
			Agents []relocated `json:"agents"`
		}{m.shard, done}); err != nil {
			return err
		}
	}
	if failed {
		return &command.Said{}
	}
	return nil
}

func (m *migration) printAcross(o relocated) {
	if m.env.Flags.JSON {
		return
	}
	what := fmt.Sprintf("%d threads, %d events, %d rows, %d bytes, digest %.16s", o.Threads, o.Events, o.Rows, o.Bytes, o.Digest)
	switch {
	case o.Error != "":
		fmt.Fprintln(m.env.Err, o.Agent+": "+o.Error)
	case o.Was:
		fmt.Fprintf(m.env.Out, "%s: is in database %d\n", o.Agent, o.To)
	case !o.Moved:
		fmt.Fprintf(m.env.Out, "%s: %s: the same in databases %d and %d; nothing was changed, --apply moves it\n", o.Agent, what, o.From, o.To)
	default:
		fmt.Fprintf(m.env.Out, "%s: %s: moved from database %d to %d\n", o.Agent, what, o.From, o.To)
	}
}
