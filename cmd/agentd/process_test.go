package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/serve"
	processv1 "github.com/theclaw/agents/proto/gen/theclaw/process/v1"
)

// startProcess serves a process on a socket and answers a way to call it.
func startProcess(t *testing.T, o processOptions) func(as rpc.Identity) processv1.ProcessServiceClient {
	t.Helper()
	dir := t.TempDir()
	token, err := rpc.NewToken(filepath.Join(dir, "token"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	srv, err := serve.New(serve.Options{
		Listener: l, Services: []serve.Registrar{newProcessService(o).Register}, Policy: processPolicy(), Token: func() string { return token }, Grace: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return func(as rpc.Identity) processv1.ProcessServiceClient {
		cc, err := rpc.Dial("unix://"+l.Addr().String(), rpc.DialOptions{TokenPath: filepath.Join(dir, "token"), As: as, DefaultTimeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cc.Close() })
		return processv1.NewProcessServiceClient(cc)
	}
}

// The level changes while the process runs, is told, and goes back.
func TestLogLevel(t *testing.T) {
	var log bytes.Buffer
	level := new(slog.LevelVar)
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: level}))
	c := startProcess(t, processOptions{Version: "v1", Services: []string{"runner"}, Level: level, Logger: logger, Started: time.Now()})(rpc.Identity{})
	for _, to := range []processv1.LogLevel{processv1.LogLevel_LOG_LEVEL_DEBUG, processv1.LogLevel_LOG_LEVEL_ERROR, processv1.LogLevel_LOG_LEVEL_INFO} {
		before, err := c.GetProcess(t.Context(), &processv1.GetProcessRequest{})
		if err != nil || before.GetVersion() != "v1" || before.GetServices()[0] != "runner" {
			t.Fatalf("%v, %v", before, err)
		}
		set, err := c.SetLogLevel(t.Context(), &processv1.SetLogLevelRequest{LogLevel: to})
		if err != nil || set.GetBefore() != before.GetLogLevel() {
			t.Fatalf("%v, %v", set, err)
		}
		after, err := c.GetProcess(t.Context(), &processv1.GetProcessRequest{})
		if err != nil || after.GetLogLevel() != to {
			t.Fatalf("%v, %v", after, err)
		}
	}
	if n := strings.Count(log.String(), "log level changed"); n != 3 {
		t.Errorf("%d lines: %s", n, log.String())
	}
	if _, err := c.SetLogLevel(t.Context(), &processv1.SetLogLevelRequest{}); !fault.Is(err, fault.InvalidArgument) {
		t.Errorf("no level: %v", err)
	}
}

// A profile of each kind comes whole, and for the owner alone (SECURITY: what is
// in memory is nobody else's business).
func TestProfile(t *testing.T) {
	as := startProcess(t, processOptions{Level: new(slog.LevelVar), Logger: slog.New(slog.DiscardHandler)})
	take := func(id rpc.Identity, req *processv1.ProfileProcessRequest) (int, error) {
		s, err := as(id).ProfileProcess(t.Context(), req)
		if err != nil {
			return 0, err
		}
		var all []byte
		for {
			r, err := s.Recv()
			if err == io.EOF {
				if !bytes.HasPrefix(all, []byte{0x1f, 0x8b}) {
					t.Errorf("%v is no gzip: %q", req.GetKind(), all[:min(len(all), 8)])
				}
				return len(all), nil
			}
			if err != nil {
				return 0, err
			}
			all = append(all, r.GetChunk()...)
		}
	}
	for _, kind := range []processv1.ProfileKind{processv1.ProfileKind_PROFILE_KIND_CPU, processv1.ProfileKind_PROFILE_KIND_HEAP, processv1.ProfileKind_PROFILE_KIND_GOROUTINE} {
		req := &processv1.ProfileProcessRequest{Kind: kind, Duration: durationpb.New(50 * time.Millisecond)}
		if n, err := take(rpc.Identity{}, req); err != nil || n < 100 {
			t.Errorf("%v: %d bytes, %v", kind, n, err)
		}
		for _, id := range []rpc.Identity{{Kind: rpc.Service, Name: "runner"}, {Kind: rpc.Agent, Name: "a1"}} {
			if _, err := take(id, req); fault.From(err).Code != codes.PermissionDenied {
				t.Errorf("%v as %v: %v", kind, id, err)
			}
		}
	}
	if _, err := take(rpc.Identity{}, &processv1.ProfileProcessRequest{Kind: processv1.ProfileKind_PROFILE_KIND_CPU, Duration: durationpb.New(time.Hour)}); !fault.Is(err, fault.InvalidArgument) {
		t.Errorf("an hour: %v", err)
	}
}
