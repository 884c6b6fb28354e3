// Package server runs the `agentd all` that is measured: its start, its connections, and
// what the kernel reports about it.
//
// It promises that what was started is stopped by Stop or with the context. It compares
// nothing with a goal. It is a package of its own because the programs for tables and for
// curves both use it.
package server

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

	cmd     *exec.Cmd
	metrics string // its address of metrics; empty: none
	only    string // the service that is a process of its own; empty: one process has all
	others  []*exec.Cmd
}

// An Option of Start.
type Option func(s *Server) error

// WithMetrics has the server serve its metrics on a free port, for [Server.Metric].
func WithMetrics(s *Server) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.metrics = l.Addr().String()
	return l.Close()
}

// Only has a service be a process of its own, which is then the one that is measured; the others are
// one more each.
func Only(service string) Option {
	return func(s *Server) error { s.only = service; return nil }
}

// Start starts agentd on a home and waits until it serves.
func Start(ctx context.Context, agentd, home string, options ...Option) (*Server, error) {
	s := &Server{Home: home}
	for _, o := range options {
		if err := o(s); err != nil {
			return nil, err
		}
	}
	conn, err := Dial(home, "registry")
	if err != nil {
		return nil, err
	}
	s.Conn = conn
	if s.only != "" {
		if err := s.startOthers(ctx, agentd); err != nil {
			return nil, errors.Join(err, s.Stop())
		}
	}
	began := time.Now()
	var args []string
	if s.metrics != "" {
		args = []string{"--metrics-listen", s.metrics}
	}
	if s.cmd, err = command(ctx, agentd, cmp.Or(s.only, "all"), home, args...); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	// The runner's is the last socket.
	if err := await(ctx, home, cmp.Or(s.only, "runner")); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	s.Ready = time.Since(began)
	return s, nil
}

// startOthers starts the services but the one that is measured, each when the one before serves.
func (s *Server) startOthers(ctx context.Context, agentd string) error {
	for _, name := range []string{"registry", "deliverer", "runner", "gateway"} {
		if name == s.only {
			continue
		}
		c, err := command(ctx, agentd, name, s.Home)
		if err != nil {
			return err
		}
		s.others = append(s.others, c)
		if err := await(ctx, s.Home, name); err != nil {
			return err
		}
	}
	return nil
}

func command(ctx context.Context, agentd, service, home string, args ...string) (*exec.Cmd, error) {
	cmd := exec.CommandContext(ctx, agentd, append([]string{service, "--home", home, "--log-level", "error"}, args...)...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", agentd, err)
	}
	return cmd, nil
}

// await waits until a service serves. Tight on purpose: the connection's own backoff would be in the
// figure, and so would be the connections that are made in vain.
func await(ctx context.Context, home, service string) error {
	for began := time.Now(); ; {
		ready, err := serves(ctx, filepath.Join(home, "run", service+".sock"))
		if ready {
			return nil
		}
		if time.Since(began) > 30*time.Second || ctx.Err() != nil {
			return fmt.Errorf("%s does not serve: %w", service, err)
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
	var err error
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		err = s.cmd.Wait()
	}
	for _, c := range slices.Backward(s.others) {
		_ = c.Process.Signal(syscall.SIGTERM)
		err = errors.Join(err, c.Wait())
	}
	return err
}

// Kill ends it as a crash does.
func (s *Server) Kill() error {
	_ = s.Conn.Close()
	if err := s.cmd.Process.Kill(); err != nil {
		return err
	}
	_ = s.cmd.Wait() // it was killed
	return nil
}

// Metric is the value of one metric, named with its labels as the page of metrics does; 0 where it
// is not there yet.
func (s *Server) Metric(ctx context.Context, name string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.metrics+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	a, err := (&http.Client{}).Do(q)
	if err != nil {
		return 0, err
	}
	defer func() { _ = a.Body.Close() }()
	for in := bufio.NewScanner(a.Body); ; {
		if !in.Scan() {
			return 0, in.Err()
		}
		if v, ok := strings.CutPrefix(in.Text(), name+" "); ok {
			return strconv.ParseFloat(v, 64)
		}
	}
}

// Reach waits until a metric has a value, for at most a minute.
func (s *Server) Reach(ctx context.Context, name string, want float64) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		got, err := s.Metric(ctx, name)
		if err != nil {
			return err
		}
		if got == want {
			return nil
		}
		if err := pause.For(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("%s is %g, not %g: %w", name, got, want, err)
		}
	}
}

// Programs are the processes of this machine that run exactly this command.
func Programs(argv ...string) (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		b, err := os.ReadFile(filepath.Join(d, "cmdline"))
		if pid, bad := strconv.Atoi(filepath.Base(d)); err == nil && bad == nil && string(b) == strings.Join(argv, "\x00")+"\x00" {
			pids = append(pids, pid)
		}
	}
	return pids
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
func (s *Server) RSS() (float64, error) { return s.memory("VmRSS:") }

// Anonymous is the resident memory in MB without pages of files, which are those of the program: the
// kernel maps them as they are used, and takes them back when it needs memory.
func (s *Server) Anonymous() (float64, error) { return s.memory("RssAnon:") }

func (s *Server) memory(name string) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for _, l := range strings.Split(string(b), "\n") {
		if v, ok := strings.CutPrefix(l, name); ok {
			kb, err := strconv.ParseFloat(strings.Fields(v)[0], 64)
			return kb / 1024, err
		}
	}
	return 0, fmt.Errorf("no %s of the process", name)
}
