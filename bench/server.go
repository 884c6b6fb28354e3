package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/theclaw/agents/internal/rpc"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// server is a running `agentd all`.
type server struct {
	cmd   *exec.Cmd
	conn  *grpc.ClientConn
	ready time.Duration
}

func startServer(ctx context.Context, agentd, home string) (*server, error) {
	began := time.Now()
	cmd := exec.CommandContext(ctx, agentd, "all", "--home", home, "--log-level", "error")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", agentd, err)
	}
	conn, err := rpc.Dial("unix://"+filepath.Join(home, "run", "registry.sock"), rpc.DialOptions{
		TokenPath: filepath.Join(home, "run", "token"), WaitForReady: true, DefaultTimeout: time.Minute,
	})
	if err != nil {
		return nil, err
	}
	s := &server{cmd: cmd, conn: conn}
	// Tight on purpose: the connection's own backoff would be in the figure.
	for {
		c, err := rpc.Dial("unix://"+filepath.Join(home, "run", "deliverer.sock"), rpc.DialOptions{})
		if err != nil {
			return nil, err
		}
		r, err := healthpb.NewHealthClient(c).Check(ctx, &healthpb.HealthCheckRequest{})
		_ = c.Close()
		if err == nil && r.GetStatus() == healthpb.HealthCheckResponse_SERVING {
			s.ready = time.Since(began)
			return s, nil
		}
		if time.Since(began) > 30*time.Second {
			return nil, errors.Join(fmt.Errorf("%s does not serve: %w", agentd, err), s.stop())
		}
		time.Sleep(time.Millisecond)
	}
}

// settle waits until what is read at the start has been read.
func (s *server) settle(ctx context.Context) error {
	_, err := registryv1.NewAgentServiceClient(s.conn).ListAgents(ctx, &registryv1.ListAgentsRequest{})
	return err
}

// agent makes and starts one that answers by itself and sends nothing on.
func (s *server) agent(ctx context.Context, id string) error {
	agents := registryv1.NewAgentServiceClient(s.conn)
	if _, err := agents.CreateAgent(ctx, &registryv1.CreateAgentRequest{AgentId: id, Provider: "offline"}); err != nil {
		return err
	}
	if _, err := agents.SetAgentConfig(ctx, &registryv1.SetAgentConfigRequest{AgentId: id, Key: "outbound", Value: "[]"}); err != nil {
		return err
	}
	_, err := agents.StartAgent(ctx, &registryv1.StartAgentRequest{AgentId: id})
	return err
}

// rest waits until a process has given back what only its start needed, which it
// does after three seconds: only then it is at rest.
func rest(ctx context.Context) error {
	t := time.NewTimer(4 * time.Second)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *server) stop() error {
	_ = s.conn.Close()
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	return s.cmd.Wait()
}

// cpu is the user and system time of the process.
func (s *server) cpu() (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	user, err1 := strconv.ParseInt(f[11], 10, 64)
	sys, err2 := strconv.ParseInt(f[12], 10, 64)
	return time.Duration(user+sys) * (time.Second / 100), errors.Join(err1, err2)
}

// rss is the resident memory in MB.
func (s *server) rss() (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for _, l := range strings.Split(string(b), "\n") {
		if v, ok := strings.CutPrefix(l, "VmRSS:"); ok {
			kb, err := strconv.ParseFloat(strings.Fields(v)[0], 64)
			return kb / 1024, err
		}
	}
	return 0, errors.New("no VmRSS")
}
