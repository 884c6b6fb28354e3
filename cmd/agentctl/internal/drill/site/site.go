// Package site provides the environment of a drill: a temporary home, an agentd that is
// started and killed in it, and connections that wait for that agentd.
//
// Nothing in the environment of this agentd leads to the user's home. It dies with this
// process.
package site

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/pause"
	"github.com/theclaw/agents/internal/rpc"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// Patience bounds every wait for something that is bound to happen.
const Patience = 60 * time.Second

// Site is a home of its own and the services in it, which come and go.
type Site struct {
	dir, program, path string
	Home               layout.Home
	Threads            registry.ThreadServiceClient
	Turns              registry.TurnServiceClient
	log                string
	conns              []*grpc.ClientConn
	agents             registry.AgentServiceClient
	runner             runner.RunnerServiceClient
	cmd                *exec.Cmd
	gone               chan struct{}
}

// New makes the place in dir for the program; path is the PATH of what it runs.
func New(dir, program, path string) (*Site, error) {
	s := &Site{dir: dir, program: program, path: path, Home: layout.At(filepath.Join(dir, "home")), log: filepath.Join(dir, "agentd.log")}
	dial := func(service string) (*grpc.ClientConn, error) {
		socket, err := s.Home.Socket(service)
		if err != nil {
			return nil, err
		}
		c, err := rpc.Dial("unix://"+socket, rpc.DialOptions{TokenPath: s.Home.TokenFile(), WaitForReady: true, Dialer: dial, DefaultTimeout: Patience})
		if err == nil {
			s.conns = append(s.conns, c)
		}
		return c, err
	}
	r, err := dial("registry")
	if err != nil {
		return nil, err
	}
	n, err := dial("runner")
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	s.agents, s.Threads = registry.NewAgentServiceClient(r), registry.NewThreadServiceClient(r)
	s.Turns, s.runner = registry.NewTurnServiceClient(r), runner.NewRunnerServiceClient(n)
	return s, nil
}

// dial waits for a listener at short distances: the services are away for
// milliseconds, and gRPC's own waits grow to seconds.
func dial(ctx context.Context, target string) (net.Conn, error) {
	path := "/" + strings.TrimLeft(strings.TrimPrefix(target, "unix:"), "/")
	for wait := time.Millisecond; ; wait = min(2*wait, 16*time.Millisecond) {
		c, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
		if err == nil || !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.ENOENT) {
			return c, err
		}
		if pause.For(ctx, wait) != nil {
			return nil, err
		}
	}
}

// Start starts agentd with an environment in which nothing leads to the user's.
func (s *Site) Start() error {
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	c := exec.Command(s.program, "all", "--lease-ttl", "1s")
	c.Dir = s.dir
	c.Env = []string{"THECLAW_HOME=" + s.Home.Path(), "HOME=" + s.dir, "PATH=" + s.path}
	c.Stdout, c.Stderr = log, log
	c.SysProcAttr = command.Child(syscall.SIGKILL)
	s.cmd, s.gone = c, make(chan struct{})
	begun, gone := make(chan error), s.gone
	go func() {
		defer close(gone)
		runtime.LockOSThread() // the death signal is tied to the thread
		defer runtime.UnlockOSThread()
		err := c.Start()
		_ = log.Close()
		begun <- err
		if err == nil {
			_ = c.Wait() // how it ended is for the log to say
		}
	}()
	if err := <-begun; err != nil {
		return fmt.Errorf("start %s: %w", s.program, err)
	}
	return nil
}

// Exited is closed when the agentd that was started last is gone.
func (s *Site) Exited() <-chan struct{} { return s.gone }

// Kill is kill -9; it answers when it was done, after the process is gone.
func (s *Site) Kill() time.Time {
	at := time.Now()
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Kill() // gone already is as good
		<-s.gone
	}
	return at
}

// Stop ends agentd in order.
func (s *Site) Stop() error {
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // an error means that it is gone
	t := time.NewTimer(Patience)
	defer t.Stop()
	select {
	case <-s.gone:
		return nil
	case <-t.C:
	}
	s.Kill()
	return fault.New(codes.DeadlineExceeded, fault.Deadline, "agentd does not end", "run 'agentctl doctor'")
}

// Close ends the connections.
func (s *Site) Close() {
	for _, c := range s.conns {
		_ = c.Close()
	}
}

// Explain adds the last words of agentd to an error of a start.
func (s *Site) Explain(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ctx.Err()
	}
	b, _ := os.ReadFile(s.log)
	words := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	return fault.Wrap(fault.New(codes.Unavailable, fault.ServiceUnavailable,
		"agentd does not serve: "+strings.TrimPrefix(string(words[len(words)-1]), "Error: "), "run 'agentctl doctor'"), err)
}

// Create makes and starts an agent whose settings get the lines of extra.
func (s *Site) Create(ctx context.Context, id, extra string) error {
	if _, err := s.agents.CreateAgent(ctx, &registry.CreateAgentRequest{AgentId: id, Provider: "offline"}); err != nil {
		return err
	}
	f, err := s.agents.ReadAgentFile(ctx, &registry.ReadAgentFileRequest{AgentId: id, Name: "config.yaml"})
	if err != nil {
		return err
	}
	if _, err := s.agents.WriteAgentFile(ctx, &registry.WriteAgentFileRequest{AgentId: id, Name: "config.yaml", Content: append(f.GetContent(), extra...)}); err != nil {
		return err
	}
	_, err = s.agents.StartAgent(ctx, &registry.StartAgentRequest{AgentId: id})
	return err
}

// Sandboxed reports whether programs can be run here.
func (s *Site) Sandboxed(ctx context.Context) (bool, error) {
	r, err := s.runner.GetRunnerInfo(ctx, &runner.GetRunnerInfoRequest{})
	return r.GetSandbox() != "none", err
}

// Again repeats a call that was interrupted or not answered; calls are made so
// that this is safe.
func Again[R any](ctx context.Context, call func(context.Context) (R, error)) (R, error) {
	for {
		r, err := call(ctx)
		if err == nil || ctx.Err() != nil {
			return r, err
		}
		switch e := fault.From(err); {
		case e.Code == codes.Unavailable, e.Code == codes.Unauthenticated, e.Code == codes.Canceled, errors.Is(err, io.EOF):
		default:
			return r, err
		}
	}
}
