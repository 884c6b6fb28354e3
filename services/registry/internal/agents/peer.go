package agents

import (
	"bufio"
	"context"

	"google.golang.org/grpc"

	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// ExportPeer streams the data of a peer; see package peer.
func (s *Service) ExportPeer(req *registryv1.ExportPeerRequest, out grpc.ServerStreamingServer[registryv1.ExportPeerResponse]) error {
	found, err := s.Peers.Find(out.Context(), req.GetAgentId(), req.GetPeer())
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(sending(func(b []byte) error {
		return out.Send(&registryv1.ExportPeerResponse{Chunk: b})
	}), maxChunk)
	if err := found.Export(out.Context(), s.Peers, w); err != nil {
		return err
	}
	return w.Flush()
}

// ErasePeer erases the data of a peer, or returns what that would be.
func (s *Service) ErasePeer(ctx context.Context, req *registryv1.ErasePeerRequest) (*registryv1.ErasePeerResponse, error) {
	found, err := s.Peers.Find(ctx, req.GetAgentId(), req.GetPeer())
	if err != nil {
		return nil, err
	}
	if req.GetApply() {
		if err := found.Erase(ctx, s.Peers); err != nil {
			return nil, err
		}
	}
	out := &registryv1.ErasePeerResponse{
		ChannelType: found.Peer.ChannelType, ChannelId: found.Peer.ChannelID, PeerId: found.Peer.PeerID, Files: found.Files,
	}
	for _, p := range found.Threads {
		out.Threads = append(out.Threads, &registryv1.ErasedThread{ThreadId: p.ID, Events: int64(len(p.Events)), Turns: int64(len(p.Turns)), Whole: p.Whole})
	}
	return out, nil
}
