package drill

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

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc"
	registry "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// site is a home of its own and the services in it, which come and go.
type site struct {
	dir, program, path string
	home               layout.Home
	log                string
	conns              []*grpc.ClientConn
	agents             registry.AgentServiceClient
	threads            registry.ThreadServiceClient
	turns              registry.TurnServiceClient
	runner             runner.RunnerServiceClient
	cmd                *exec.Cmd
	gone               chan struct{}
}

func newSite(dir, program, path string) (*site, error) {
	s := &site{dir: dir, program: program, path: path, home: layout.At(filepath.Join(dir, "home")), log: filepath.Join(dir, "agentd.log")}
	dial := func(service string) (*grpc.ClientConn, error) {
		socket, err := s.home.Socket(service)
		if err != nil {
			return nil, err
		}
		c, err := rpc.Dial("unix://"+socket, rpc.DialOptions{TokenPath: s.home.TokenFile(), WaitForReady: true, Dialer: dial, DefaultTimeout: patience})
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
	s.agents, s.threads = registry.NewAgentServiceClient(r), registry.NewThreadServiceClient(r)
	s.turns, s.runner = registry.NewTurnServiceClient(r), runner.NewRunnerServiceClient(n)
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
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, err
		}
	}
}

// start starts agentd with an environment in which nothing leads to the user's.
func (s *site) start() error {
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	c := exec.Command(s.program, "all", "--lease-ttl", "1s")
	c.Dir = s.dir
	c.Env = []string{"THECLAW_HOME=" + s.home.Path(), "HOME=" + s.dir, "PATH=" + s.path}
	c.Stdout, c.Stderr = log, log
	// Ctrl-C reaches us alone; should we die, the kernel ends it.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
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

func (s *site) exited() <-chan struct{} { return s.gone }

// kill is kill -9; it answers when it was done, after the process is gone.
func (s *site) kill() time.Time {
	at := time.Now()
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Kill() // gone already is as good
		<-s.gone
	}
	return at
}

// stop ends agentd in order.
func (s *site) stop() error {
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // an error means that it is gone
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-s.gone:
		return nil
	case <-t.C:
	}
	s.kill()
	return fault.New(codes.DeadlineExceeded, fault.Deadline, "agentd does not end", "run 'agentctl doctor'")
}

func (s *site) close() {
	for _, c := range s.conns {
		_ = c.Close()
	}
}

// explain adds the last words of agentd to an error of a start.
func (s *site) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ctx.Err()
	}
	b, _ := os.ReadFile(s.log)
	words := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	return fault.Wrap(fault.New(codes.Unavailable, fault.ServiceUnavailable,
		"agentd does not serve: "+strings.TrimPrefix(string(words[len(words)-1]), "Error: "), "run 'agentctl doctor'"), err)
}

func (s *site) create(ctx context.Context, id, extra string) error {
	if _, err := s.agents.CreateAgent(ctx, &registry.CreateAgentRequest{AgentId: id}); err != nil {
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

func (s *site) sandboxed(ctx context.Context) (bool, error) {
	r, err := s.runner.GetRunnerInfo(ctx, &runner.GetRunnerInfoRequest{})
	return r.GetSandbox() != "none", err
}

// again repeats a call that was cut off or answered by nobody; calls are made so
// that this is safe.
func again[R any](ctx context.Context, call func(context.Context) (R, error)) (R, error) {
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
