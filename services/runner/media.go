package runner

import (
	"context"
	"io"
	"time"

	"github.com/theclaw/agents/internal/rpc/media"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/registrycall"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// mediaPatience bounds one transfer of an image.
const mediaPatience = time.Minute

// mediaClient stores the images of tool results in the registry, and reads them for requests to models. What it reads has
// the hash that the step refers to; a call is repeated while the registry is away, as long as the lease is trusted. It is
// no cache: a turn keeps what it has read.
type mediaClient struct{ registry registrypb.MediaServiceClient }

// Write implements [toolset.Media].
func (c mediaClient) Write(ctx context.Context, p toolset.Place, m model.Image, data []byte) error {
	_, err := registrycall.Call(ctx, p.Trusted, func(ctx context.Context) (struct{}, error) {
		ctx, cancel := context.WithTimeout(ctx, mediaPatience)
		defer cancel()
		return struct{}{}, media.Write(ctx, c.registry, p.AgentID, &registrypb.Media{Sha256: m.SHA256, Mime: m.MIME, Name: m.Name, Size: m.Size}, data)
	})
	return err
}

// Read implements [turn.Media].
func (c mediaClient) Read(ctx context.Context, agentID string, trusted func(context.Context) error, m model.Image) ([]byte, error) {
	return registrycall.Call(ctx, trusted, func(ctx context.Context) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, mediaPatience)
		defer cancel()
		in, err := media.Open(ctx, c.registry, agentID, m.SHA256, m.Size)
		if err != nil {
			return nil, err
		}
		defer in.Close()
		return io.ReadAll(in)
	})
}
