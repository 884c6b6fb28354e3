// Package server runs the `agentd all` that is measured: its start, its connections, and
// what the kernel reports about it.
//
// It promises that what was started is stopped by Stop or with the context. It compares
// nothing with a goal. It is a package of its own because the programs for tables and for
// curves both use it.
package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/theclaw/agents/internal/pause"
	"github.com/theclaw/agents/internal/rpc"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Server is a running `agentd all`.
type Server struct {
	Home  string
	Conn  *grpc.ClientConn // to the registry
	Ready time.Duration    // from its start to serving

	cmd *exec.Cmd
}

// Start starts agentd on a home and waits until it serves.
func Start(ctx context.Context, agentd, home string) (*Server, error) {
	began := time.Now()
	cmd := exec.CommandContext(ctx, agentd, "all", "--home", home, "--log-level", "error")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", agentd, err)
	}
	conn, err := Dial(home, "registry")
	if err != nil {
		return nil, err
	}
	s := &Server{Home: home, Conn: conn, cmd: cmd}
	// The runner's is the last socket. Tight on purpose: the connection's own backoff would be in
	// the figure, and so would be the connections that are made in vain.
	for last := filepath.Join(home, "run", "runner.sock"); ; {
		ready, err := serves(ctx, last)
		if ready {
			s.Ready = time.Since(began)
			return s, nil
		}
		if time.Since(began) > 30*time.Second || ctx.Err() != nil {
			return nil, errors.Join(fmt.Errorf("%s does not serve: %w", agentd, err), s.Stop())
		}
		time.Sleep(500 * time.Microsecond)
	}
}

// serves asks a socket whether its service serves, once something listens there.
func serves(ctx context.Context, socket string) (bool, error) {
	probe, err := net.Dial("unix", socket)
	if err != nil {
		return false, err
	}
	_ = probe.Close()
	c, err := rpc.Dial("unix://"+socket, rpc.DialOptions{})
	if err != nil {
		return false, err
	}
	defer func() { _ = c.Close() }()
	r, err := healthpb.NewHealthClient(c).Check(ctx, &healthpb.HealthCheckRequest{})
	return err == nil && r.GetStatus() == healthpb.HealthCheckResponse_SERVING, err
}

// Dial connects to a service of a home; it waits until that serves.
func Dial(home, service string) (*grpc.ClientConn, error) {
	conn, err := rpc.Dial("unix://"+filepath.Join(home, "run", service+".sock"), rpc.DialOptions{
		TokenPath: filepath.Join(home, "run", "token"), WaitForReady: true, DefaultTimeout: time.Minute,
	})
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", service, err)
	}
	return conn, nil
}

// Settle waits until what is read at the start has been read.
func (s *Server) Settle(ctx context.Context) error {
	_, err := registryv1.NewAgentServiceClient(s.Conn).ListAgents(ctx, &registryv1.ListAgentsRequest{})
	return err
}

// Agent makes and starts one that answers without a model and has no outbound channel.
func (s *Server) Agent(ctx context.Context, id string) error {
	return s.AgentWith(ctx, id, "offline", [2]string{"outbound", "[]"})
}

// AgentWith makes and starts one of a provider with settings.
func (s *Server) AgentWith(ctx context.Context, id, provider string, settings ...[2]string) error {
	agents := registryv1.NewAgentServiceClient(s.Conn)
	if _, err := agents.CreateAgent(ctx, &registryv1.CreateAgentRequest{AgentId: id, Provider: provider}); err != nil {
		return err
	}
	// It may use all that the load needs, and is counted as any agent.
	for _, kv := range append([][2]string{{"quota.tokens_per_day", "1000000000000"}}, settings...) {
		if _, err := agents.SetAgentConfig(ctx, &registryv1.SetAgentConfigRequest{AgentId: id, Key: kv[0], Value: kv[1]}); err != nil {
			return err
		}
	}
	_, err := agents.StartAgent(ctx, &registryv1.StartAgentRequest{AgentId: id})
	return err
}

// WaitIdle waits until a process has given back what only its start needed, which it
// does after three seconds: only then it is at rest.
func WaitIdle(ctx context.Context) error {
	return pause.For(ctx, 4*time.Second)
}

// Stop ends it as an operator would.
func (s *Server) Stop() error {
	_ = s.Conn.Close()
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	return s.cmd.Wait()
}

// Written is how many bytes the process has caused to be written to the disk.
func (s *Server) Written() (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for _, l := range strings.Split(string(b), "\n") {
		if v, ok := strings.CutPrefix(l, "write_bytes: "); ok {
			return strconv.ParseInt(v, 10, 64)
		}
	}
	return 0, errors.New("no write_bytes")
}

// CPU is the user and system time of the process.
func (s *Server) CPU() (time.Duration, error) {
	stat, err := readStat(s.cmd.Process.Pid)
	return stat.own, err
}

// CPUOfTree is CPU with that of the processes below it, also of those that have ended and were
// waited for.
func (s *Server) CPUOfTree() (time.Duration, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	below, used := map[int][]int{}, map[int]time.Duration{}
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(d))
		if err != nil {
			return 0, err
		}
		stat, err := readStat(pid)
		if err != nil {
			continue // it has ended
		}
		below[stat.parent] = append(below[stat.parent], pid)
		used[pid] = stat.own + stat.waited
	}
	var sum func(pid int) time.Duration
	sum = func(pid int) time.Duration {
		all := used[pid]
		for _, child := range below[pid] {
			all += sum(child)
		}
		return all
	}
	return sum(s.cmd.Process.Pid), nil
}

// processStat is what /proc/PID/stat says: user and system time of the process, and of those
// that it has waited for.
type processStat struct {
	parent      int
	own, waited time.Duration
}

func readStat(pid int) (processStat, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return processStat{}, err
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	var n [5]int // ppid, utime, stime, cutime, cstime
	for i, field := range []int{1, 11, 12, 13, 14} {
		if n[i], err = strconv.Atoi(f[field]); err != nil {
			return processStat{}, err
		}
	}
	const tick = time.Second / 100
	return processStat{n[0], time.Duration(n[1]+n[2]) * tick, time.Duration(n[3]+n[4]) * tick}, nil
}

// RSS is the resident memory in MB.
func (s *Server) RSS() (float64, error) {
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
