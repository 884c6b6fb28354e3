// Package settings implements HomeService: people see the settings of a home as they are
// written and whether they are in force, and change the sections that registries share. It
// exports what was decided for the home, which is package decisions'.
//
// It promises that settings which cannot be used change nothing: those before stay in force,
// and the answer names what is wrong, with line and column. It reads no file itself; packages
// standalone and cluster do.
package settings

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/theclaw/agents/internal/agentdir"
	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/hook"
	"github.com/theclaw/agents/internal/store"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/registry/internal/state"
)

// Written is the state of the settings.
type Written struct {
	Name     string // of the file, or of the row
	Text     []byte
	Version  string // of Text; empty: there is none
	LoadedAt time.Time
	Problem  error    // why Text is not in force; nil: it is
	Refused  string   // version of a file of this machine that is not in force; empty: it was not read, or is
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
	// SetValue sets one key to a value in YAML, or removes it when that is empty, and returns
	// the new settings and whether the key was there. Errors: CONFIG_INVALID; store.ErrMoved;
	// FAILED_PRECONDITION where the settings are a theclaw.json5.
	SetValue(ctx context.Context, path []string, value string) (now layer.HomeSettings, existed bool, err error)
}

// Pins forgets the tools of MCP servers that are removed.
type Pins interface {
	Prune(ctx context.Context, servers []layer.Server) error
}

// Agents gives access to the settings of agents.
type Agents interface {
	Agent(ctx context.Context, id string) (*state.Agent, error)
	Settings(ctx context.Context, a *state.Agent) (*agentdir.Agent, error)
}

// Revisions answers the revisions of the bindings.
type Revisions interface {
	Revisions(ctx context.Context, limit int) ([]store.Revision, error)
}

// Decisions exports what people decided for the home.
type Decisions interface {
	Export(ctx context.Context) ([]byte, error)
}

// Service serves the RPCs. The zero value is not usable; see New.
type Service struct {
	registryv1.UnimplementedHomeServiceServer
	home      Home
	revisions Revisions
	pins      Pins
	agents    Agents
	decisions Decisions

	mu      sync.Mutex
	version string        // in force, as far as is known
	changed chan struct{} // closed when version changes

	refused string // the last text that LogRefused wrote about
}

// New returns the service.
func New(h Home, r Revisions, p Pins, a Agents, d Decisions) *Service {
	return &Service{home: h, revisions: r, pins: p, agents: a, decisions: d, changed: make(chan struct{})}
}

// ListHooks answers the hooks of an agent, or of the home.
func (s *Service) ListHooks(ctx context.Context, req *registryv1.ListHooksRequest) (*registryv1.ListHooksResponse, error) {
	if req.GetAgentId() == "" {
		w, err := s.home.Written(ctx)
		if err != nil {
			return nil, err
		}
		h, err := layer.ReadHome(layer.File{Name: w.Name, Data: w.Text})
		if err != nil {
			return nil, fault.New(codes.FailedPrecondition, fault.ConfigInvalid, err.Error(), "correct that place and try again")
		}
		return &registryv1.ListHooksResponse{Hooks: hook.Proto(h.Hooks), SandboxMode: config.Default().Sandbox.Level}, nil
	}
	a, err := s.agents.Agent(ctx, req.GetAgentId())
	if err != nil {
		return nil, err
	}
	set, err := s.agents.Settings(ctx, a)
	if err != nil {
		return nil, err
	}
	return &registryv1.ListHooksResponse{Hooks: hook.Proto(set.Hooks), Dir: set.Path, SandboxMode: set.Config.Sandbox.Level}, nil
}

// ExportHome answers what people decided for the home.
func (s *Service) ExportHome(ctx context.Context, _ *registryv1.ExportHomeRequest) (*registryv1.ExportHomeResponse, error) {
	rows, err := s.decisions.Export(ctx)
	if err != nil {
		return nil, err
	}
	return &registryv1.ExportHomeResponse{Rows: rows}, nil
}

// Seen reports the version that is in force: watchers get it when it is new.
func (s *Service) Seen(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.version != version {
		s.version = version
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

// LogRefused logs why the present settings are not in force, once for each text that is refused. One goroutine may call it.
func (s *Service) LogRefused(ctx context.Context, log *slog.Logger) {
	w, err := s.home.Written(ctx)
	if err != nil {
		return // the next call has the answer
	}
	refused := ""
	if w.Problem != nil {
		what := fault.From(w.Problem).What
		if refused = w.Version + w.Refused + what; refused != s.refused {
			log.Warn("settings of the home refused; the last good ones stay in force", "error", what)
		}
	}
	s.refused = refused
}

// next is closed when there is a version after the present one.
func (s *Service) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// WatchHomeConfig sends the settings in force, and again when they change.
func (s *Service) WatchHomeConfig(_ *registryv1.WatchHomeConfigRequest, to grpc.ServerStreamingServer[registryv1.WatchHomeConfigResponse]) error {
	for sent, first := "", true; ; {
		next := s.next()
		w, err := s.home.Written(to.Context())
		if err != nil {
			return err
		}
		if first || w.Version != sent {
			if err := to.Send(&registryv1.WatchHomeConfigResponse{Name: w.Name, Text: string(w.Text), Version: w.Version}); err != nil {
				return err
			}
			sent, first = w.Version, false
		}
		select {
		case <-next:
		case <-to.Context().Done():
			return to.Context().Err()
		}
	}
}

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
	if err != nil {
		return nil, moved(err)
	}
	s.Seen(version)
	return &registryv1.SetHomeConfigResponse{Version: version}, nil
}

func moved(err error) error {
	if errors.Is(err, store.ErrMoved) {
		return fault.New(codes.Aborted, fault.InvalidArgument, "the settings have another version now", "read them again and repeat the change")
	}
	return err
}

// SetHomeValue sets or removes one key. The tools of an MCP server that is removed are forgotten before the
// response, so that a server which is added next under its name has none of its approvals.
func (s *Service) SetHomeValue(ctx context.Context, req *registryv1.SetHomeValueRequest) (*registryv1.SetHomeValueResponse, error) {
	now, existed, err := s.home.SetValue(ctx, req.GetPath(), req.GetValue())
	if err != nil {
		return nil, moved(err)
	}
	if req.GetPath()[0] == "mcp" {
		if err := s.pins.Prune(ctx, now.Servers); err != nil {
			return nil, err
		}
	}
	s.Seen(now.Version)
	return &registryv1.SetHomeValueResponse{Version: now.Version, Existed: existed}, nil
}
