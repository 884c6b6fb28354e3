package feed

import (
	"context"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/theclaw/agents/internal/pause"
)

// Link reports whether a service is there.
type Link struct {
	Service string
	Up      bool
}

// Links reports each time a service goes or comes, until ctx ends. Nothing is
// asked again and again: the connection waits for the socket.
func (s *Source) Links(ctx context.Context, service string) {
	for ctx.Err() == nil {
		stream, err := healthpb.NewHealthClient(s.Env.Conn(service)).Watch(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
		for err == nil {
			var r *healthpb.HealthCheckResponse
			if r, err = stream.Recv(); err == nil {
				s.Send(Link{service, r.GetStatus() == healthpb.HealthCheckResponse_SERVING})
			}
		}
		if ctx.Err() == nil {
			s.Send(Link{service, false})
		}
		_ = pause.For(ctx, again)
	}
}
