package runner

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/fault"
	events "github.com/theclaw/agents/internal/hook"
	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/internal/sandbox/docker"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
	"github.com/theclaw/agents/services/runner/internal/batch"
	"github.com/theclaw/agents/services/runner/internal/claim"
	"github.com/theclaw/agents/services/runner/internal/hook"
	"github.com/theclaw/agents/services/runner/internal/memory"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/provider"
	"github.com/theclaw/agents/services/runner/internal/model/retry"
	"github.com/theclaw/agents/services/runner/internal/run"
	"github.com/theclaw/agents/services/runner/internal/secret"
	"github.com/theclaw/agents/services/runner/internal/session"
	"github.com/theclaw/agents/services/runner/internal/toolset/mcp"
	"github.com/theclaw/agents/services/runner/internal/toolset/shell"
	"github.com/theclaw/agents/services/runner/internal/turn"
)

// Service is the runner.
type Service struct {
	runnerpb.UnimplementedRunnerServiceServer
	runnerpb.UnimplementedToolServiceServer

	cfg  Config
	deps Deps

	agents  registrypb.AgentServiceClient
	threads registrypb.ThreadServiceClient
	leases  registrypb.LeaseServiceClient
	turns   registrypb.TurnServiceClient
	homes   registrypb.HomeServiceClient

	models    *models
	sandboxes *sandboxes
	driver    *turn.Driver
	slots     *batch.Slots
	claims    *claim.Set
	hub       run.Hub
	began     time.Time
	active    atomic.Int32
	runs      activeRuns
	processes *shell.Processes
	servers   *mcp.Servers
	hooks     *hook.Programs
	calls     *events.Caller
}

// badProviders is the error for who starts the service: file, line, key and what is wrong.
func badProviders(err error) error {
	what := err.Error()
	if e := model.AsError(err); e != nil {
		what = e.Message
	}
	return fault.Wrap(fault.New(codes.FailedPrecondition, fault.ConfigInvalid, what, "correct that place and try again"), err)
}

// New reads the providers and makes a runner; it makes no call. The error is a
// providers.yaml that cannot be used.
func New(c Config, d Deps) (*Service, error) {
	c, d = c.withDefaults(), d.withDefaults()
	agent, show := shell.Locate(c.Agent)
	c.Sandbox.ReadOnly = append(slices.Clip(c.Sandbox.ReadOnly), show...)
	settings, err := provider.Load(c.ProvidersFile, d.Getenv, c.PaiConfig)
	if err != nil {
		return nil, badProviders(err)
	}
	if d.Redactor != nil {
		settings.OnKey = d.Redactor.Add
	}
	s := &Service{
		cfg: c, deps: d,
		agents: registrypb.NewAgentServiceClient(d.Registry), threads: registrypb.NewThreadServiceClient(d.Registry),
		leases: registrypb.NewLeaseServiceClient(d.Registry), turns: registrypb.NewTurnServiceClient(d.Registry),
		homes:     registrypb.NewHomeServiceClient(d.Registry),
		sandboxes: newSandboxes(c.Sandbox, d.Sandbox, containers(c, d)), began: time.Now(),
	}
	s.models = &models{settings, retry.NewPool(retry.Waits{Backoff: c.Backoff, Probe: c.Probe}), s.sandboxes, d.Trace, c.Probe}
	s.processes = shell.NewProcesses(s.turns, s.hold, d.Logger)
	s.processes.Meter = d.Metrics
	secrets := secret.Source{Home: c.Home, Getenv: d.Getenv}
	if d.Redactor != nil {
		secrets.Read = d.Redactor.Add
	}
	tools, programs, err := newTools(d, s.sandboxes, s.processes, agent, c.Version, secrets)
	if err != nil {
		return nil, fmt.Errorf("list tools: %w", err)
	}
	s.servers = mcp.New(mcp.Options{
		Sandbox: func(mode string) (mcp.Sandbox, error) { return s.sandboxes.get(mode) },
		Pins:    registrypb.NewPinServiceClient(d.Registry), Values: secrets, Root: c.Servers, Logger: d.Logger, Meter: d.Metrics,
	})
	tools.Servers, tools.Approvals = s.servers, registrypb.NewApprovalServiceClient(d.Registry)
	s.hooks = &hook.Programs{Sandbox: s.sandboxes.forHook, Values: secrets, Home: c.Home}
	s.driver = &turn.Driver{
		Journal: s.turns, Root: c.Root, Models: s.models, Tools: tools, Sources: newSources(), Trace: d.Trace, Meter: d.Metrics, Logger: d.Logger,
		Media: mediaClient{registrypb.NewMediaServiceClient(d.Registry)}, Transcribers: s.models, Programs: programs,
		Memory:   &memory.Registry{Threads: s.threads, Files: s.agents, Journal: s.turns, Tools: tools, Failures: &memory.Failures{}},
		Sessions: &session.Writer{}, Commands: commands{s}, Observe: s.observe,
	}
	s.calls = &events.Caller{Run: s.callHook, Meter: d.Metrics, Logger: d.Logger}
	if d.Redactor != nil {
		s.calls.Clean = d.Redactor.Clean
	}
	s.slots = batch.NewSlots(c.Slots)
	s.claims = claim.New(claim.Config{
		Holder: d.Holder, Address: c.Address, Agents: c.Agents, TTL: c.TTL, Keep: c.Keep, Poll: c.Poll, Grace: c.Grace, Quarantine: c.Quarantine,
	}, claim.Deps{Leases: s.leases, Inbox: s.turns, Turn: s.turn, End: s.end, Cut: s.cut, Slots: s.slots, Abort: d.Abort, Logger: d.Logger})
	return s, nil
}

// containers are the options of the driver of docker.
func containers(c Config, d Deps) docker.Options {
	return docker.Options{
		Program: c.Docker, Home: c.Home, Forbidden: append(slices.Clone(config.NoBinds), c.Sandbox.Forbidden...), Logger: d.Logger,
		Count: func(scope string, n int) { d.Metrics.AddSandbox("docker", scope, n) },
	}
}

// Register adds the services to a server.
func (s *Service) Register(r grpc.ServiceRegistrar) {
	runnerpb.RegisterRunnerServiceServer(r, s)
	runnerpb.RegisterToolServiceServer(r, s)
}

// Hint is one line about the model that answers when an agent names none.
func (s *Service) Hint() string { return s.models.settings.Hint() }

// Problem is why the model that answers when an agent names none cannot be called, with
// what to do; empty when it can.
func (s *Service) Problem() (what, fix string) {
	what, _, fix = s.models.problem("", "")
	return what, fix
}

// Run takes work until ctx ends, then drains: turns under way finish within the
// grace, the rest is left to the next holder, and every lease is given back.
func (s *Service) Run(ctx context.Context) error {
	var probe sync.WaitGroup
	probe.Go(s.probe) // not waited for: messages without tools need no sandbox
	maintained, end := context.WithCancel(ctx)
	probe.Go(func() { s.sandboxes.docker.Maintain(maintained) })
	err := s.claims.Run(ctx)
	end()
	s.driver.Sessions.Flush()
	probe.Wait()
	s.servers.Close()
	s.models.settings.Close()
	s.sandboxes.close()
	return err
}

// probe finds out once, by really starting a program, how well tools can be
// kept in.
func (s *Service) probe() {
	if _, err := s.sandboxes.get(string(s.cfg.Sandbox.Mode)); err != nil {
		s.deps.Logger.Error("sandbox not set up", "error", fault.Chain(err))
		return
	}
	report, _ := s.sandboxes.report()
	s.deps.Metrics.SetSandboxLevel(string(report.Level))
	if report.Level == sandbox.LevelNone {
		s.deps.Logger.Error("no sandbox works here: tools that run programs are refused", "problems", report.Problems)
	}
}
