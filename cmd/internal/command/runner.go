package command

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc"

	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/rpc/mtls"
	"github.com/theclaw/agents/internal/rpc/runs"
	runner "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

// RunnerService asks the runner that --runner names; without it, what is about an agent
// is asked of the runner that works on it, and all else of the one in the home.
func (e *Env) RunnerService() runner.RunnerServiceClient {
	if e.Flags.Runner != "" {
		return runner.NewRunnerServiceClient(e.Conn(Runner))
	}
	near, registry := e.Conn(Runner), e.Conn(Registry)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.runs == nil {
		r := e.Flags.Registry
		e.runs = runs.New(runs.Options{
			Registry: registry, Near: near, Stranger: r != "" && !strings.HasPrefix(r, "unix:"), Dial: e.dialRunner,
		})
	}
	return e.runs
}

// dialRunner connects to a runner where its lease says it is: at a socket of this home,
// or by TCP as the owner that our certificate names.
func (e *Env) dialRunner(address string) (*grpc.ClientConn, error) {
	home, err := e.Home()
	if err != nil {
		return nil, err
	}
	o := rpc.DialOptions{DefaultTimeout: e.Flags.Timeout, Safe: safe, UserAgent: "agentctl/" + e.Version}
	if path, local := strings.CutPrefix(address, "unix://"); local {
		ours, err := home.Socket(Runner)
		if err != nil {
			return nil, err
		}
		if !same(filepath.Dir(path), filepath.Dir(ours)) {
			return nil, fmt.Errorf("dial %s: it is a socket of another home", address)
		}
		o.TokenPath = home.TokenFile()
		return rpc.Dial(address, o)
	}
	store, err := mtls.Open(cmp.Or(e.Flags.TLS, home.TLSDir()), "owner", nil)
	if err != nil {
		return nil, err
	}
	o.Creds = mtls.Client(store, Runner)
	return rpc.Dial(address, o)
}

// same tells whether two paths are one directory; a home may be known by a link to it.
func same(a, b string) bool {
	one, err1 := os.Stat(a)
	two, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(one, two)
}
