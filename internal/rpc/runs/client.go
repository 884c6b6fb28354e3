package runs

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/rpc/runs/wording"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	runnerpb "github.com/theclaw/agents/proto/gen/theclaw/runner/v1"
)

const (
	// slice is how long one question to the registry waits for news.
	slice = 25 * time.Second
	// asking bounds a question that does not wait.
	asking = 10 * time.Second
	// firstRest and longestRest are the pauses before a runner is tried again that
	// could not be asked, while the registry says that it still has the agent.
	firstRest, longestRest = 500 * time.Millisecond, 8 * time.Second
)

// Options say what a client works with.
type Options struct {
	// Registry is the connection to the registry, or to several.
	Registry grpc.ClientConnInterface
	// Near is the runner that is asked what any can answer. It need not be there.
	Near grpc.ClientConnInterface
	// Stranger says that Near may be another registry's: it is not asked about runs.
	Stranger bool
	// Dial connects to a runner at the address that its lease has; the error says why it
	// cannot be reached from here. The client closes what it answers.
	Dial func(address string) (*grpc.ClientConn, error)
}

// Client is a RunnerServiceClient that finds the runner of a run. What is not
// about an agent goes to the runner nearby. The caller closes it.
type Client struct {
	runnerpb.RunnerServiceClient      // of the runner nearby
	ours                         bool // which is one of this registry's
	leases                       registrypb.LeaseServiceClient
	turns                        registrypb.TurnServiceClient
	threads                      registrypb.ThreadServiceClient
	dial                         func(address string) (*grpc.ClientConn, error)

	mu    sync.Mutex
	known map[string]*grpc.ClientConn // by address
}

// New makes a client; it calls nobody.
func New(o Options) *Client {
	c := &Client{
		leases: registrypb.NewLeaseServiceClient(o.Registry), turns: registrypb.NewTurnServiceClient(o.Registry),
		threads: registrypb.NewThreadServiceClient(o.Registry), dial: o.Dial, known: map[string]*grpc.ClientConn{},
	}
	c.RunnerServiceClient, c.ours = runnerpb.NewRunnerServiceClient(o.Near), !o.Stranger
	return c
}

// Close closes the connections to runners that were found.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cc := range c.known {
		_ = cc.Close()
	}
	clear(c.known)
}

var errNobody = fault.New(codes.Unavailable, fault.ServiceUnavailable, "no runner is known here", "name one with --runner dns:///host:port")

// where asks the registry who works on an agent, and waits until a lease after one is
// there, or the run has ended.
func (c *Client) where(ctx context.Context, agent, run string, after uint64, wait time.Duration) (*registrypb.FindRunnerResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, wait+asking)
	defer cancel()
	r, err := c.leases.FindRunner(ctx, &registrypb.FindRunnerRequest{AgentId: agent, RunId: run, AfterToken: after, Wait: durationpb.New(wait)})
	return r, wording.NoRun(agent, run, err)
}

// holder is the runner of a lease, if it can be reached and is the one. Another process
// may stand at its address: one that was started in its place, or, where addresses are
// those of a machine, another machine's.
func (c *Client) holder(ctx context.Context, l *registrypb.Lease) (runnerpb.RunnerServiceClient, error) {
	cc, err := c.at(l.GetAddress())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	r := runnerpb.NewRunnerServiceClient(cc)
	info, err := r.GetRunnerInfo(ctx, &runnerpb.GetRunnerInfoRequest{})
	if err != nil {
		return nil, err
	}
	if info.GetHolder() != l.GetHolder() {
		return nil, fault.New(codes.Unavailable, fault.ServiceUnavailable, "another runner answers at "+l.GetAddress()+" than "+l.GetHolder(), "wait until its lease has ended")
	}
	return r, nil
}

// at is the connection to an address.
func (c *Client) at(address string) (*grpc.ClientConn, error) {
	if address == "" || c.dial == nil {
		return nil, errNobody
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if cc := c.known[address]; cc != nil {
		return cc, nil
	}
	cc, err := c.dial(address)
	if err == nil {
		c.known[address] = cc
	}
	return cc, err
}

// anybody calls try with runners that can tell of a run from its journal, the one
// nearby first, until one does; false when none was there.
func (c *Client) anybody(ctx context.Context, try func(r runnerpb.RunnerServiceClient) (done bool)) bool {
	if c.ours && try(c.RunnerServiceClient) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	page, err := c.leases.ListLeases(ctx, &registrypb.ListLeasesRequest{PageSize: 50})
	if err != nil {
		return false
	}
	asked := map[string]bool{}
	for _, l := range page.GetLeases() {
		if asked[l.GetAddress()] || !isRun(l) {
			continue
		}
		if asked[l.GetAddress()] = true; len(asked) > 4 {
			break
		}
		if r, err := c.holder(ctx, l); err == nil && try(r) {
			return true
		}
	}
	return false
}
