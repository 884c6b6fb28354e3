package deliverer

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/channel/catalog"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/hook"
	"github.com/theclaw/agents/internal/lease"
	"github.com/theclaw/agents/internal/lease/worker"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/media"
	delivererv1 "github.com/theclaw/agents/proto/gen/theclaw/deliverer/v1"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/deliverer/internal/breaker"
	"github.com/theclaw/agents/services/deliverer/internal/delivery"
)

// Service is one deliverer.
type Service struct {
	delivererv1.UnimplementedDelivererServiceServer

	deps     Deps
	threads  registryv1.ThreadServiceClient
	breakers *breaker.Set
	pool     *delivery.Pool
	programs *programs
	worker   *worker.Worker[*delivery.Agent]
	born     time.Time
}

// New makes a deliverer. It does nothing before Run.
func New(cfg Config, deps Deps) *Service {
	cfg, deps = cfg.withDefaults(), deps.withDefaults()
	s := &Service{
		deps: deps, born: time.Now(),
		threads:  registryv1.NewThreadServiceClient(deps.Registry),
		breakers: &breaker.Set{Probe: cfg.Probe}, programs: &programs{starter: cfg.Starter},
	}
	s.breakers.OnChange = func(channel string) { deps.Metrics.SetBreaker(channel, s.breakers.State(channel)) }
	channels := channel.Deps{Pusher: pusher{s.threads, deps.Redactor}, Resolve: deps.Redactor.Learn(deps.Resolve), Env: deps.Environ, Run: s.programs.run}
	s.pool = delivery.NewPool(delivery.Config{Concurrency: cfg.Concurrency, Keep: cfg.Keep}, delivery.Deps{
		Journal:  journal{registryv1.NewDeliveryServiceClient(deps.Registry), cfg.XGW.settings(), deps.Trace != nil},
		Open:     func(settings channel.Settings) (delivery.Channels, error) { return open(settings, channels) },
		Breakers: s.breakers, Metrics: deps.Metrics, Logger: deps.Logger, Redactor: deps.Redactor, Trace: deps.Trace,
		Media: files(registryv1.NewMediaServiceClient(deps.Registry)),
		Hooks: &hook.Caller{Run: hook.At(deps.Runners), Clean: deps.Redactor.Clean, Meter: deps.Metrics, Logger: deps.Logger},
	})
	s.worker = worker.New(worker.Config{
		Kind: registryv1.LeaseKind_LEASE_KIND_DELIVER, Holder: deps.Holder, Address: cfg.Address, TTL: cfg.TTL, Poll: cfg.Poll, Grace: cfg.Grace,
	}, worker.Deps[*delivery.Agent]{
		Leases: registryv1.NewLeaseServiceClient(deps.Registry), Begin: s.begin,
		Free:  func(ctx context.Context, _ int) int { return s.pool.Free(ctx) },
		Abort: deps.Abort, Logger: deps.Logger,
	})
	return s
}

// files reads the files of messages. One that the registry does not have refuses its message: it will not come.
func files(from registryv1.MediaServiceClient) delivery.Media {
	return func(ctx context.Context, agentID, sha256 string, size int64) (io.ReadCloser, error) {
		in, err := media.Open(ctx, from, agentID, sha256, size)
		if err != nil {
			return nil, unreadable(err)
		}
		return file{in}, nil
	}
}

// unreadable is why a file could not be read, and whether a repeat of the send can help.
func unreadable(err error) *channel.Error {
	switch f := fault.From(err); {
	case errors.Is(err, media.ErrDamaged):
		return channel.Reject(fault.MediaNotFound, "the file of the message is damaged, or does not have the size that the message states", "send the file again")
	case f.Code == codes.NotFound || f.Code == codes.DataLoss || f.Code == codes.InvalidArgument:
		return channel.Reject(f.Reason, "the file of the message cannot be read: "+f.What, f.Fix)
	}
	return &channel.Error{Class: channel.Unavailable, BeforeSend: true, What: "the file of the message cannot be read now", Err: err}
}

// file is the data of a file. Whether the registry has them, and undamaged, is known only while they are read.
type file struct{ io.ReadCloser }

// Read implements [io.Reader].
func (f file) Read(p []byte) (int, error) {
	n, err := f.ReadCloser.Read(p)
	if err == nil || errors.Is(err, io.EOF) {
		return n, err
	}
	if code := fault.From(err).Code; code == codes.Canceled || code == codes.DeadlineExceeded {
		return n, err // the send has ended
	}
	return n, unreadable(err)
}

// open keeps a nil catalog from becoming a non-nil interface.
func open(s channel.Settings, d channel.Deps) (delivery.Channels, error) {
	c, err := catalog.Open(s, d)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Register serves the deliverer's API on r.
func (s *Service) Register(r grpc.ServiceRegistrar) { delivererv1.RegisterDelivererServiceServer(r, s) }

// Run takes work until ctx ends, then drains: no send begins, those under way
// finish within the grace or are stopped, the leases are given back. It returns
// nil then. It may be called once.
func (s *Service) Run(ctx context.Context) error {
	if s.deps.Holder == "" {
		return errors.New("run deliverer: no holder id")
	}
	err := s.worker.Run(ctx)
	s.pool.Wait()
	s.programs.close()
	return err
}

// begin makes the drain of an agent. Its calls carry the fence of the lease.
func (s *Service) begin(agentID string, k *lease.Keeper) *delivery.Agent {
	return s.pool.Agent(rpc.WithFence(k.Context(), lease.DeliverResource(agentID), k.Token(), s.deps.Holder), agentID, k)
}
