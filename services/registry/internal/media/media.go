// Package media implements MediaService: it keeps the media of agents, which events and the steps of turns refer to by
// the hash of their data, and removes those that nothing refers to ([Sweeper]).
//
//	WriteMedia --> data checked by size and hash --> on disk --> answer --> event or step that refers to them
//
// It promises that media are complete and on disk when a write is answered, that a read ends with an error when the
// data do not have their hash, and that a service writes only under the lease of the agent. It looks at no content:
// what the data are is the writer's word.
package media

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/thread"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/state"
	"github.com/theclaw/agents/services/registry/internal/wire"
)

const (
	// writers bounds the writes at a time: the data of each are in memory until they are stored.
	writers = 4
	// patience bounds a write, from its first message to its end.
	patience = 2 * time.Minute
)

// Agents gives access to the agents of the registry.
type Agents interface {
	Agent(ctx context.Context, id string) (*state.Agent, error)
}

// Deps are the dependencies of a Service.
type Deps struct {
	wire.Faults
	Agents Agents
	Store  store.Media
}

// Service serves the RPCs. The zero value is not usable; see New.
type Service struct {
	registryv1.UnimplementedMediaServiceServer
	Deps

	slots chan struct{}
}

// New returns the service.
func New(d Deps) *Service { return &Service{Deps: d, slots: make(chan struct{}, writers)} }

// WriteMedia stores media.
func (s *Service) WriteMedia(in grpc.ClientStreamingServer[registryv1.WriteMediaRequest, registryv1.WriteMediaResponse]) error {
	ctx, cancel := context.WithTimeout(in.Context(), patience)
	defer cancel()
	first, err := in.Recv()
	if err != nil {
		return received(err)
	}
	a, err := s.Agents.Agent(ctx, first.GetAgentId())
	if err != nil {
		return err
	}
	fence, err := fenceOf(ctx, a.ID)
	if err != nil {
		return err
	}
	m, err := described(first.GetMedia())
	if err != nil {
		return err
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	data, err := receive(ctx, in, first, m)
	if err != nil {
		return err
	}
	if err := s.Store.PutMedia(ctx, a.ID, fence, m, data); err != nil {
		return s.Fault(a.ID, thread.Inbox, err)
	}
	return in.SendAndClose(&registryv1.WriteMediaResponse{})
}

func received(err error) error {
	if errors.Is(err, io.EOF) {
		return wire.Bad("the stream has ended before it has described media", "send the agent and the media in the first message")
	}
	return err
}

// fenceOf is the lease of a service; the owner may have none, and a gateway has none: what it
// stores is for a message that comes next.
func fenceOf(ctx context.Context, agent string) (*store.Fence, error) {
	id, _ := rpc.IdentityFrom(ctx)
	if _, _, _, fenced := rpc.FenceFrom(ctx); !fenced && (id.Kind == rpc.Owner || id.Role() == "gateway") {
		return nil, nil
	}
	f, err := wire.RequireFence(ctx, lease.AgentResource(agent))
	return &f, err
}

// described is what the first message says.
func described(m *registryv1.Media) (store.MediaInfo, error) {
	switch {
	case m == nil:
		return store.MediaInfo{}, wire.Bad("the first message of the stream describes no media", "send the agent and the media in the first message")
	case m.GetSize() > store.MaxMedia:
		return store.MediaInfo{}, fault.New(codes.InvalidArgument, fault.MediaTooLarge,
			fmt.Sprintf("the media have %d bytes; the limit is %d MiB", m.GetSize(), store.MaxMedia>>20), "make them smaller")
	case strings.ContainsAny(m.GetName(), "/\\") || strings.ContainsFunc(m.GetName(), unicode.IsControl):
		return store.MediaInfo{}, wire.Bad("the name of the media has a directory or a control character", "send the name of the file alone")
	}
	return store.MediaInfo{SHA256: m.GetSha256(), MIME: m.GetMime(), Name: m.GetName(), Size: m.GetSize()}, nil
}

// receive returns the data of a stream. More than were described are not kept.
func receive(ctx context.Context, in grpc.ClientStreamingServer[registryv1.WriteMediaRequest, registryv1.WriteMediaResponse], msg *registryv1.WriteMediaRequest, m store.MediaInfo) ([]byte, error) {
	other := wire.Bad("the data do not have the hash and the size of the media", "send them again")
	data := bytes.NewBuffer(make([]byte, 0, m.Size))
	for {
		if int64(data.Len()+len(msg.GetData())) > m.Size {
			return nil, other
		}
		_, _ = data.Write(msg.GetData()) // a buffer takes all
		var err error
		switch msg, err = in.Recv(); {
		case errors.Is(err, io.EOF):
			if sum := sha256.Sum256(data.Bytes()); int64(data.Len()) != m.Size || hex.EncodeToString(sum[:]) != m.SHA256 {
				return nil, other
			}
			return data.Bytes(), nil
		case err != nil:
			return nil, err
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case msg.GetMedia() != nil || msg.GetAgentId() != "":
			return nil, wire.Bad("a message after the first one has an agent or media", "send media in a stream of their own")
		}
	}
}

// ReadMedia streams media.
func (s *Service) ReadMedia(req *registryv1.ReadMediaRequest, out grpc.ServerStreamingServer[registryv1.ReadMediaResponse]) error {
	ctx := out.Context()
	a, err := s.Agents.Agent(ctx, req.GetAgentId())
	if err != nil {
		return err
	}
	m, err := s.Store.MediaInfo(ctx, a.ID, req.GetSha256())
	if err != nil {
		return s.Fault(a.ID, thread.Inbox, err)
	}
	if err := out.Send(&registryv1.ReadMediaResponse{Media: &registryv1.Media{Sha256: m.SHA256, Mime: m.MIME, Name: m.Name, Size: m.Size}}); err != nil {
		return err
	}
	sum := sha256.New()
	var sent error
	err = store.EachPiece(ctx, s.Store, a.ID, m, func(piece []byte) error {
		_, _ = sum.Write(piece) // a hash takes all
		sent = out.Send(&registryv1.ReadMediaResponse{Data: piece})
		return sent
	})
	if err == nil && hex.EncodeToString(sum.Sum(nil)) != m.SHA256 {
		err = store.ErrNoMedia
	}
	if err == nil || sent != nil {
		return sent
	}
	return s.Fault(a.ID, thread.Inbox, err)
}
