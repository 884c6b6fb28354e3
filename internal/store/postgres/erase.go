package postgres

import (
	"context"

	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/postgres/erase"
)

// Share answers what of a thread is a peer's.
func (e *Engine) Share(ctx context.Context, r store.Ref, q store.PeerQuery) (store.PeerShare, error) {
	s := erase.Share(q)
	err := e.view(ctx, r, s)
	return s.Out, err
}

// Erase replaces contents, under the lock of the agent's lease: with several registries
// nobody else could tell that the agent is at rest.
func (e *Engine) Erase(ctx context.Context, r store.Ref, s store.PeerShare) error {
	return e.unit.Alone(ctx, r, lease.AgentResource(r.Agent), erase.Contents(s))
}
