// Package settings implements HomeService: people see the settings of a home as they are
// written and whether they are in force, and change the sections that registries share.
//
// It promises that settings which cannot be used change nothing: those before stay in force,
// and the answer names what is wrong, with line and column. It reads no file itself; packages
// standalone and cluster do.
package settings

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/store"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Written is the state of the settings.
type Written struct {
	Name     string // of the file, or of the row
	Text     []byte
	Version  string // of Text; empty: there is none
	LoadedAt time.Time
	Problem  error    // why Text is not in force; nil: it is
	Restart  []string // keys that were changed and are in force after a restart
}

// Home reads and changes the settings.
type Home interface {
	// Written returns their state.
	Written(ctx context.Context) (Written, error)
	// Replace replaces the sections that registries share, which have a version, and
	// returns the new one. Errors: CONFIG_INVALID; store.ErrMoved; FAILED_PRECONDITION where
	// the settings are a file.
	Replace(ctx context.Context, text []byte, version string) (string, error)
}

// Revisions answers the revisions of the bindings.
type Revisions interface {
	Revisions(ctx context.Context, limit int) ([]store.Revision, error)
}

// Service serves the RPCs. The zero value is not usable; see New.
type Service struct {
	registryv1.UnimplementedHomeServiceServer
	home      Home
	revisions Revisions
}

// New returns the service.
func New(h Home, r Revisions) *Service { return &Service{home: h, revisions: r} }

// GetHomeConfig answers the settings as they are written.
func (s *Service) GetHomeConfig(ctx context.Context, _ *registryv1.GetHomeConfigRequest) (*registryv1.GetHomeConfigResponse, error) {
	w, err := s.home.Written(ctx)
	if err != nil {
		return nil, err
	}
	out := &registryv1.GetHomeConfigResponse{Name: w.Name, Text: string(w.Text), Version: w.Version, RestartNeededKeys: w.Restart}
	if !w.LoadedAt.IsZero() {
		out.LoadedAt = timestamppb.New(w.LoadedAt)
	}
	if w.Problem != nil {
		out.Problem = fault.From(w.Problem).What
	}
	newest, err := s.revisions.Revisions(ctx, 1)
	if err == nil && len(newest) > 0 {
		out.Revision = newest[0].Rev
	}
	return out, err
}

// SetHomeConfig replaces the sections that registries share.
func (s *Service) SetHomeConfig(ctx context.Context, req *registryv1.SetHomeConfigRequest) (*registryv1.SetHomeConfigResponse, error) {
	version, err := s.home.Replace(ctx, []byte(req.GetText()), req.GetVersion())
	if errors.Is(err, store.ErrMoved) {
		return nil, fault.New(codes.Aborted, fault.InvalidArgument, "the settings have another version now", "read them again and repeat the change")
	}
	if err != nil {
		return nil, err
	}
	return &registryv1.SetHomeConfigResponse{Version: version}, nil
}
