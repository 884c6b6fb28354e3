package doctor

import (
	"context"
	"os"
	"time"

	"github.com/theclaw/agents/cmd/agentctl/internal/legacy"
	"github.com/theclaw/agents/internal/agentdir/layout"
)

// legacy looks for what the earlier agent wrote in another way. What stops an
// agent is a problem; the rest is worth a word.
func (x *examination) legacy(ctx context.Context, live bool) {
	entries, err := os.ReadDir(x.home.AgentsDir())
	if err != nil {
		return // directory has said why
	}
	for _, e := range entries {
		if !e.IsDir() || layout.ValidID(e.Name()) != nil {
			continue
		}
		found, err := legacy.Scan(ctx, x.home, e.Name(), legacy.Options{Live: live, Now: time.Now()})
		if err != nil {
			x.note("agent", problem, "run 'agentctl fsck --agent "+e.Name()+"'", "%s: %v", e.Name(), err)
			continue
		}
		for _, what := range found.Waiting.Lines() {
			x.note("migrate", warning, "to skip it: agentctl migrate "+e.Name()+" --skip-before TIME|all --apply, with the services stopped",
				"%s: %s; the oldest is of %s", e.Name(), what, found.Waiting.Oldest)
		}
		for _, c := range found.Changes {
			if x.ofAll(c.What) {
				continue
			}
			status := warning
			if c.Stops {
				status = problem
			}
			x.note("migrate", status, c.Fix, "%s: %s", c.Agent, c.What)
		}
	}
}
