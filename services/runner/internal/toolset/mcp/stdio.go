package mcp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/egress"
	"github.com/theclaw/agents/internal/egress/proxy"
	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/netguard"
	"github.com/theclaw/agents/internal/reference"
	"github.com/theclaw/agents/internal/sandbox"
)

// process is the transport of a server that is started here.
type process struct {
	out    *stream
	errs   tail
	in     *input
	cancel context.CancelCauseFunc
	over   atomic.Bool   // it has ended, and why is set
	done   chan struct{} // closed after that
	why    error
}

var _ transport = (*process)(nil)

// Connect implements [sdk.Transport].
func (p *process) Connect(ctx context.Context) (sdk.Connection, error) {
	return (&sdk.IOTransport{Reader: p.out, Writer: p.in, MaxLineLength: maxMessage}).Connect(ctx)
}

// process starts the command of a server. It lives until end.
func (s *server) process(p launch) (*process, error) {
	command, err := s.command(p)
	if err != nil {
		return nil, err
	}
	box, err := s.o.Sandbox(p.sandboxMode)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	read, write, err := os.Pipe()
	if err != nil {
		cancel(nil)
		return nil, err
	}
	t := &process{in: &input{write, func() { cancel(errDeaf) }}, cancel: cancel, done: make(chan struct{})}
	t.out = newStream(func() { cancel(errFlood) })
	command.Stdin, command.OnStdout, command.OnStderr = read, t.out.add, t.errs.add
	go func() {
		defer close(t.done)
		defer cancel(nil)
		result, err := box.Run(ctx, command)
		switch cause := context.Cause(ctx); {
		case err != nil:
			t.why = errors.New(fault.From(err).What)
		case cause != nil:
			t.why = cause
		case result.TimedOut:
			t.why = fmt.Errorf("after %s, when every process is ended", sandbox.MaxAge)
		case result.Signal != "":
			t.why = errors.New(result.Signal)
		default:
			t.why = fmt.Errorf("exit %d", result.ExitCode)
		}
		t.over.Store(true)
		_, _ = t.out.Close(), write.Close() // they never fail
	}()
	return t, nil
}

// writeLimit is how long a server may leave its input unread that is full.
const writeLimit = 10 * time.Second

var errDeaf = errors.New("it does not read its input")

// input is the input of a process. A write ends, also where nothing reads it: the protocol waits for a write whatever
// has become of its call.
type input struct {
	*os.File
	deaf func()
}

// Write implements [io.Writer].
func (i *input) Write(b []byte) (int, error) {
	if err := i.SetWriteDeadline(time.Now().Add(writeLimit)); err != nil {
		return 0, err
	}
	n, err := i.File.Write(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		i.deaf()
	}
	return n, err
}

// end implements [transport]: it ends the process, with everything that it has started.
func (p *process) end() { p.cancel(errStopped) }

// failure implements [transport]: the reason has the last lines that the process wrote to stderr.
func (p *process) failure(err error) (why string, refused bool) {
	exited := p.over.Load()
	p.end()
	<-p.done
	if exited || errors.Is(p.why, errFlood) || errors.Is(p.why, errDeaf) {
		err = p.why
	}
	why = clean(err.Error())
	if lines := strings.TrimSpace(p.errs.text()); lines != "" {
		why += ": " + lines
	}
	return why, false
}

// limits are those of a program, all its processes included. It lives long, and a browser has 130 threads with one page
// and reserves more address space than 16 times the memory.
var limits = sandbox.Limits{CPUSeconds: sandbox.Unlimited.CPUSeconds, PIDs: 1024, OpenFiles: 4096, AddressBytes: sandbox.Unlimited.MemoryBytes}

// command is what the settings say.
func (s *server) command(p launch) (c sandbox.Command, err error) {
	cfg := p.server
	c = sandbox.Command{
		Argv: slices.Clone(cfg.GetCommand()), Workdir: p.workdir, Network: cfg.GetNetwork(), Timeout: sandbox.MaxAge, OutputCap: 1,
		ReadOnly: slices.Clone(cfg.GetPaths()), Limits: limits, Env: map[string]string{},
	}
	switch {
	case cfg.GetInWorkdir():
	case s.o.Root == "":
		return c, errors.New("this runner has no directory for MCP servers")
	default:
		c.Workdir = filepath.Join(s.o.Root, s.agent, s.name)
	}
	if err := os.MkdirAll(c.Workdir, 0o700); err != nil {
		return c, fmt.Errorf("its directory cannot be made: %w", err)
	}
	for name, value := range cfg.GetEnv() {
		if c.Env[name], err = s.value(p, name, value); err != nil {
			return c, err
		}
	}
	c.Locate()
	if len(cfg.GetNetworkHosts()) > 0 && !c.Network && p.sandboxMode != string(sandbox.Off) {
		hosts, err := egress.Parse(cfg.GetNetworkHosts())
		if err != nil {
			return c, err
		}
		c.Through(proxy.New(hosts, "mcp.servers."+s.name+".network", netguard.Guard{}, func(host string) {
			s.o.Meter.AddEgressRefused()
			s.o.Logger.Info("an MCP server wanted to reach a host that its settings do not name", "agent_id", s.agent, "server", s.name, "host", host)
		}).Serve)
	}
	return c, nil
}

// value returns the value of a variable: a text, or what a reference stands for.
func (s *server) value(p launch, name, value string) (string, error) {
	if !reference.Is(value) {
		return value, nil
	}
	v, err := s.o.Values.Value(value)
	if err != nil || v == "" {
		missing := fault.New(codes.FailedPrecondition, fault.SecretMissing, fmt.Sprintf("the value of %s cannot be read from %s", name, value), "set it where the runner is")
		return "", fmt.Errorf("%w: %w", errUnsent, missing)
	}
	p.sent[v] = name
	return v, nil
}
