// Package workdirs implements WorkdirService: runners on several machines read and write
// the working directories of the agents they work on.
//
// It promises that each piece has the hash that names it, that a manifest is valid
// (package workdir) and within the agent's limit, and that only the holder of the
// agent's lease replaces it. The store decides how long pieces are kept.
package workdirs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	"github.com/theclaw/agents/internal/workdir"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/state"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

// maxWrite is how many bytes of pieces are written in one transaction.
const maxWrite = 4 << 20

// Agents gives access to the agents of the registry.
type Agents interface {
	Get(id string) (*state.Agent, error)
	Settings(ctx context.Context, a *state.Agent) (*agentdir.Agent, error)
}

// Leases grants and checks leases.
type Leases interface {
	Check(ctx context.Context, resource string, token uint64) error
}

// Deps are the dependencies of a Service.
type Deps struct {
	wire.Faults
	Agents   Agents
	Leases   Leases
	Workdirs store.Workdirs
}

// Service serves the RPCs. The zero value is not usable; see New.
type Service struct {
	registryv1.UnimplementedWorkdirServiceServer
	Deps
}

// New returns the service.
func New(d Deps) *Service { return &Service{Deps: d} }

// None is the edge of a registry that keeps no working directories.
type None struct {
	registryv1.UnimplementedWorkdirServiceServer
}

func none() error {
	return fault.New(codes.FailedPrecondition, fault.ConfigInvalid, "this registry stores no working directories: they are in its home",
		"set workdir.sync to off, or workdir.shared to a directory that all runners have, or use storage.engine postgres")
}

// GetWorkdir refuses.
func (None) GetWorkdir(context.Context, *registryv1.GetWorkdirRequest) (*registryv1.GetWorkdirResponse, error) {
	return nil, none()
}

// ReadPieces refuses.
func (None) ReadPieces(*registryv1.ReadPiecesRequest, grpc.ServerStreamingServer[registryv1.ReadPiecesResponse]) error {
	return none()
}

// WritePieces refuses.
func (None) WritePieces(grpc.ClientStreamingServer[registryv1.WritePiecesRequest, registryv1.WritePiecesResponse]) error {
	return none()
}

// CommitWorkdir refuses.
func (None) CommitWorkdir(context.Context, *registryv1.CommitWorkdirRequest) (*registryv1.CommitWorkdirResponse, error) {
	return nil, none()
}

// liveFence returns the fence of a call that writes for an agent.
func (s *Service) liveFence(ctx context.Context, agent string) (store.Fence, error) {
	f, err := wire.RequireFence(ctx, lease.AgentResource(agent))
	if err == nil {
		err = s.Fault(agent, thread.Inbox, s.Leases.Check(ctx, f.Resource, f.Token))
	}
	return f, err
}

// GetWorkdir returns the newest manifest.
func (s *Service) GetWorkdir(ctx context.Context, req *registryv1.GetWorkdirRequest) (*registryv1.GetWorkdirResponse, error) {
	hash, manifest, err := s.Workdirs.Workdir(ctx, req.GetAgentId())
	if err != nil {
		return nil, s.Fault(req.GetAgentId(), thread.Inbox, err)
	}
	if hash == req.GetUnless() {
		manifest = nil
	}
	return &registryv1.GetWorkdirResponse{Hash: hash, Manifest: manifest}, nil
}

// ReadPieces streams pieces.
func (s *Service) ReadPieces(req *registryv1.ReadPiecesRequest, out grpc.ServerStreamingServer[registryv1.ReadPiecesResponse]) error {
	for part := range slices.Chunk(req.GetSha256(), maxWrite/workdir.Piece) {
		if err := s.Workdirs.Pieces(out.Context(), req.GetAgentId(), part, func(hash string, data []byte) error {
			return out.Send(&registryv1.ReadPiecesResponse{Piece: &registryv1.Piece{Sha256: hash, Data: data}})
		}); err != nil {
			return s.Fault(req.GetAgentId(), thread.Inbox, err)
		}
	}
	return nil
}

// WritePieces keeps pieces.
func (s *Service) WritePieces(in grpc.ClientStreamingServer[registryv1.WritePiecesRequest, registryv1.WritePiecesResponse]) error {
	ctx, agent, size, n := in.Context(), "", 0, int64(0)
	pieces := map[string][]byte{}
	flush := func() error {
		if len(pieces) == 0 {
			return nil
		}
		if _, err := s.liveFence(ctx, agent); err != nil {
			return err
		}
		err := s.Workdirs.PutPieces(ctx, agent, pieces)
		pieces, size = map[string][]byte{}, 0
		return s.Fault(agent, thread.Inbox, err)
	}
	for {
		m, err := in.Recv()
		if errors.Is(err, io.EOF) {
			if err := flush(); err != nil {
				return err
			}
			return in.SendAndClose(&registryv1.WritePiecesResponse{Pieces: n})
		}
		if err != nil {
			return err
		}
		p := m.GetPiece()
		if agent == "" {
			agent = m.GetAgentId()
		}
		if m.GetAgentId() != agent || workdir.Hash(p.GetData()) != p.GetSha256() {
			return wire.Bad("a piece is not what its hash says, or of another agent", "send it again")
		}
		pieces[p.GetSha256()] = p.GetData()
		n, size = n+1, size+len(p.GetData())
		if size >= maxWrite-workdir.Piece {
			if err := flush(); err != nil {
				return err
			}
		}
	}
}

// CommitWorkdir replaces the manifest.
func (s *Service) CommitWorkdir(ctx context.Context, req *registryv1.CommitWorkdirRequest) (*registryv1.CommitWorkdirResponse, error) {
	a, err := s.Agents.Get(req.GetAgentId())
	if err != nil {
		return nil, err
	}
	f, err := wire.RequireFence(ctx, lease.AgentResource(a.ID))
	if err != nil {
		return nil, err
	}
	tree, err := workdir.Decode(req.GetManifest())
	if err != nil {
		return nil, wire.Bad(err.Error(), "send one that package workdir has made")
	}
	set, err := s.Agents.Settings(ctx, a)
	if err != nil {
		return nil, s.Fault(a.ID, thread.Inbox, err)
	}
	if most := int64(set.Config.Workdir.MaxMiB) << 20; tree.Size() > most {
		return nil, fault.New(codes.ResourceExhausted, fault.QuotaExceeded, fmt.Sprintf("the working directory of agent '%s' has %d bytes; the limit is %d", a.ID, tree.Size(), most),
			"remove files, name some in workdir.ignore, or raise workdir.max_mib")
	}
	snap := store.Snapshot{Base: req.GetBase(), Hash: workdir.Hash(req.GetManifest()), Manifest: req.GetManifest(), Pieces: slices.Collect(maps.Keys(tree.Pieces()))}
	if err := s.Workdirs.PutWorkdir(ctx, a.ID, f, snap); err != nil {
		return nil, s.Fault(a.ID, thread.Inbox, err)
	}
	return &registryv1.CommitWorkdirResponse{Hash: snap.Hash}, nil
}
