package main

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/pause"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/serve"
	processv1 "github.com/theclaw/agents/proto/gen/theclaw/process/v1"
)

const (
	defaultCPUProfile = 10 * time.Second
	maxProfileChunk   = 1 << 20
)

// processOptions configure a processService.
type processOptions struct {
	Version  string
	Services []string       // names of the services in this process
	Level    *slog.LevelVar // of its logger
	Logger   *slog.Logger   // is told of a changed level
	Started  time.Time
}

// processService lets the owner inspect this process: its version, services and log level,
// and its profiles. It is served on the sockets of the process, with the same access
// table as every other service: the owner, with the token, and nobody else. A profile
// contains memory and the arguments of the program, so it is never served over HTTP. The
// service changes nothing but the log level, until the process ends.
type processService struct {
	processv1.UnimplementedProcessServiceServer
	o   processOptions
	cpu sync.Mutex // a process takes one CPU profile at a time
}

// newProcessService returns the service.
func newProcessService(o processOptions) *processService { return &processService{o: o} }

// Register adds it to a server.
func (s *processService) Register(r grpc.ServiceRegistrar) {
	processv1.RegisterProcessServiceServer(r, s)
}

// processPolicy is its access table.
func processPolicy() serve.Policy {
	profile := serve.Allow(rpc.Owner)
	profile.Waits, profile.EndOnDrain = true, true
	return serve.Policy{
		processv1.ProcessService_GetProcess_FullMethodName:     serve.Allow(rpc.Owner),
		processv1.ProcessService_SetLogLevel_FullMethodName:    serve.Allow(rpc.Owner),
		processv1.ProcessService_ProfileProcess_FullMethodName: profile,
	}
}

var logLevels = map[processv1.LogLevel]slog.Level{
	processv1.LogLevel_LOG_LEVEL_DEBUG: slog.LevelDebug,
	processv1.LogLevel_LOG_LEVEL_INFO:  slog.LevelInfo,
	processv1.LogLevel_LOG_LEVEL_WARN:  slog.LevelWarn,
	processv1.LogLevel_LOG_LEVEL_ERROR: slog.LevelError,
}

func (s *processService) level() processv1.LogLevel {
	for name, l := range logLevels {
		if l == s.o.Level.Level() {
			return name
		}
	}
	return processv1.LogLevel_LOG_LEVEL_UNSPECIFIED
}

// GetProcess describes the process.
func (s *processService) GetProcess(context.Context, *processv1.GetProcessRequest) (*processv1.GetProcessResponse, error) {
	return &processv1.GetProcessResponse{
		Version: s.o.Version, Pid: int32(os.Getpid()), Services: s.o.Services, LogLevel: s.level(),
		Uptime: durationpb.New(time.Since(s.o.Started)),
	}, nil
}

// SetLogLevel changes the level of the log until the process ends.
func (s *processService) SetLogLevel(ctx context.Context, req *processv1.SetLogLevelRequest) (*processv1.SetLogLevelResponse, error) {
	before := s.level()
	to := logLevels[req.GetLogLevel()]
	s.o.Level.Set(to)
	if before != req.GetLogLevel() {
		s.o.Logger.Log(ctx, max(to, slog.LevelWarn), "log level changed", "level", to.String())
	}
	return &processv1.SetLogLevelResponse{Before: before}, nil
}

// ProfileProcess takes a profile and sends it.
func (s *processService) ProfileProcess(req *processv1.ProfileProcessRequest, out grpc.ServerStreamingServer[processv1.ProfileProcessResponse]) error {
	var b bytes.Buffer
	var err error
	switch req.GetKind() {
	case processv1.ProfileKind_PROFILE_KIND_CPU:
		err = s.sample(out.Context(), &b, req.GetDuration().AsDuration())
	case processv1.ProfileKind_PROFILE_KIND_HEAP:
		runtime.GC() // what is in use, and not what was when it last looked
		err = pprof.Lookup("heap").WriteTo(&b, 0)
	default:
		err = pprof.Lookup("goroutine").WriteTo(&b, 0)
	}
	if err != nil {
		return err
	}
	for rest := b.Bytes(); len(rest) > 0; {
		n := min(len(rest), maxProfileChunk)
		if err := out.Send(&processv1.ProfileProcessResponse{Chunk: rest[:n:n]}); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

func (s *processService) sample(ctx context.Context, b *bytes.Buffer, d time.Duration) error {
	busy := fault.New(codes.FailedPrecondition, fault.Overloaded, "a CPU profile of this process is being taken", "wait until it is done")
	if !s.cpu.TryLock() {
		return busy
	}
	defer s.cpu.Unlock()
	if d == 0 {
		d = defaultCPUProfile
	}
	if pprof.StartCPUProfile(b) != nil { // somebody else in this process
		return busy
	}
	err := pause.For(ctx, d)
	pprof.StopCPUProfile()
	return err
}
