package standalone

import (
	"context"
	"io"
	"math"

	"github.com/theclaw/agents/internal/backup"
)

// Backup writes a backup of agents.
func (r *Registry) Backup(ctx context.Context, w io.Writer, what backup.Selection) error {
	return backup.Write(ctx, w, backup.Source{Home: r.home, Tokens: r.tokens}, what)
}

// tokens are the greatest tokens granted.
func (r *Registry) tokens(ctx context.Context) (map[string]uint64, error) {
	out := map[string]uint64{}
	live, err := r.Table.List(ctx, "", math.MaxInt)
	for _, l := range live {
		out[l.Resource] = l.Token
	}
	return out, err
}

// Restore makes the agents of a backup and sets those to work that worked.
func (r *Registry) Restore(ctx context.Context, in io.Reader, what backup.Choice) ([]backup.Restored, error) {
	done, err := backup.Restore(ctx, in, r.home, what)
	if err != nil {
		return nil, err
	}
	for _, d := range done {
		if d.Kept != "" {
			r.forget(d.Agent)
			r.watch.drop(r.home.AgentDir(d.Agent))
		}
		if a, err := r.Get(d.Agent); err == nil {
			r.watch.add(a)
			_, _ = r.Agent(ctx, d.Agent) // makes its work due; a problem is in its status
		}
	}
	return done, nil
}
