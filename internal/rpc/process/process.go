// Package process owns the service by which a person looks into a running process:
// which it is, from which level on it logs, and its profiles.
//
// It stands on the sockets of the process, behind the same access table as every
// other service: the owner, with the token, and nobody else. A profile tells what
// is in memory and in the program's arguments, so it is never served over HTTP.
// It changes nothing but the log level, and that ends with the process.
package process

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
	defaultCPU = 10 * time.Second
	maxChunk   = 1 << 20
)

// Options of a process.
type Options struct {
	Version  string
	Services []string       // by the names of their sockets
	Level    *slog.LevelVar // of its logger
	Logger   *slog.Logger   // is told of a changed level
	Started  time.Time
}

// Service answers for the process it is in.
type Service struct {
	processv1.UnimplementedProcessServiceServer
	o   Options
	cpu sync.Mutex // a process takes one CPU profile at a time
}

// New makes the service.
func New(o Options) *Service { return &Service{o: o} }

// Register adds it to a server.
func (s *Service) Register(r grpc.ServiceRegistrar) { processv1.RegisterProcessServiceServer(r, s) }

// Policy is its access table.
func Policy() serve.Policy {
	profile := serve.Allow(rpc.Owner)
	profile.Waits, profile.EndOnDrain = true, true
	return serve.Policy{
		processv1.ProcessService_GetProcess_FullMethodName:     serve.Allow(rpc.Owner),
		processv1.ProcessService_SetLogLevel_FullMethodName:    serve.Allow(rpc.Owner),
		processv1.ProcessService_ProfileProcess_FullMethodName: profile,
	}
}

var levels = map[processv1.LogLevel]slog.Level{
	processv1.LogLevel_LOG_LEVEL_DEBUG: slog.LevelDebug,
	processv1.LogLevel_LOG_LEVEL_INFO:  slog.LevelInfo,
	processv1.LogLevel_LOG_LEVEL_WARN:  slog.LevelWarn,
	processv1.LogLevel_LOG_LEVEL_ERROR: slog.LevelError,
}

func (s *Service) level() processv1.LogLevel {
	for name, l := range levels {
		if l == s.o.Level.Level() {
			return name
		}
	}
	return processv1.LogLevel_LOG_LEVEL_UNSPECIFIED
}

// GetProcess describes the process.
func (s *Service) GetProcess(context.Context, *processv1.GetProcessRequest) (*processv1.GetProcessResponse, error) {
	return &processv1.GetProcessResponse{
		Version: s.o.Version, Pid: int32(os.Getpid()), Services: s.o.Services, LogLevel: s.level(),
		Uptime: durationpb.New(time.Since(s.o.Started)),
	}, nil
}

// SetLogLevel changes the level of the log until the process ends.
func (s *Service) SetLogLevel(ctx context.Context, req *processv1.SetLogLevelRequest) (*processv1.SetLogLevelResponse, error) {
	before := s.level()
	to := levels[req.GetLogLevel()]
	s.o.Level.Set(to)
	if before != req.GetLogLevel() {
		s.o.Logger.Log(ctx, max(to, slog.LevelWarn), "log level changed", "level", to.String())
	}
	return &processv1.SetLogLevelResponse{Before: before}, nil
}

// ProfileProcess takes a profile and sends it.
func (s *Service) ProfileProcess(req *processv1.ProfileProcessRequest, out grpc.ServerStreamingServer[processv1.ProfileProcessResponse]) error {
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
		n := min(len(rest), maxChunk)
		if err := out.Send(&processv1.ProfileProcessResponse{Chunk: rest[:n:n]}); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

func (s *Service) sample(ctx context.Context, b *bytes.Buffer, d time.Duration) error {
	busy := fault.New(codes.FailedPrecondition, fault.Overloaded, "a CPU profile of this process is being taken", "wait until it is done")
	if !s.cpu.TryLock() {
		return busy
	}
	defer s.cpu.Unlock()
	if d == 0 {
		d = defaultCPU
	}
	if pprof.StartCPUProfile(b) != nil { // somebody else in this process
		return busy
	}
	err := pause.For(ctx, d)
	pprof.StopCPUProfile()
	return err
}
