package pins

import (
	"context"

	"github.com/theclaw/agents/internal/agentdir/layer"
)

// Prune forgets the tools of all servers but these. A server of the same name that is added later has no approvals
// of the previous one.
func (s *Service) Prune(ctx context.Context, servers []layer.Server) error {
	names := make([]string, len(servers))
	for i, one := range servers {
		names[i] = one.Name
	}
	if err := s.Pins.PrunePins(ctx, names); err != nil {
		return s.Fault("", "", err)
	}
	return s.recount(ctx)
}

// PruneSettled is Prune by settings that it has seen twice, once for each version: an editor may move the file away
// before it writes the next one. It is called again and again, by one goroutine.
func (s *Service) PruneSettled(ctx context.Context, set layer.HomeSettings) error {
	if !s.settled.due(set.Version) {
		return nil
	}
	err := s.Prune(ctx, set.Servers)
	if err == nil {
		s.settled.done(set.Version)
	}
	return err
}

// settled remembers versions of the settings; nil: there was none.
type settled struct{ seen, pruned *string }

// due reports whether the previous call had the same version, and nothing was pruned by it.
func (s *settled) due(version string) bool {
	before := s.seen
	s.seen = &version
	return before != nil && *before == version && (s.pruned == nil || *s.pruned != version)
}

func (s *settled) done(version string) { s.pruned = &version }
