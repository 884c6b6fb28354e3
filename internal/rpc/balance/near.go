package balance

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"

	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// policy is the name of the balancer in a service config.
const policy = "theclaw_near"

func init() { //nolint:gochecknoinits // gRPC wants its balancers registered before anybody dials
	balancer.Register(base.NewBalancerBuilder(policy, pickers{}, base.Config{HealthCheck: true}))
}

// about is a call about an agent, or of a worker that asks for any: how often a registry
// was picked for it.
type about struct {
	name  string
	picks atomic.Int32
}

type aboutKey struct{}

// tag says in ctx which agent a request is about, or else which worker it is of, so that
// what a worker waits for is told to one registry.
func tag(ctx context.Context, req any) context.Context {
	name := ""
	switch r := req.(type) {
	case interface{ GetAgentId() string }:
		name = r.GetAgentId()
	case interface{ GetThread() *registryv1.ThreadRef }:
		name = r.GetThread().GetAgentId()
	case interface{ GetHolder() string }:
		name = r.GetHolder()
	}
	if name == "" {
		return ctx
	}
	return context.WithValue(ctx, aboutKey{}, &about{name: name})
}

// pickers makes the picker of the registries that say they serve.
type pickers struct{}

func (pickers) Build(info base.PickerBuildInfo) balancer.Picker {
	if len(info.ReadySCs) == 0 {
		return base.NewErrPicker(balancer.ErrNoSubConnAvailable)
	}
	p := &picker{}
	for conn, at := range info.ReadySCs {
		p.all = append(p.all, registry{conn, at.Address.Addr})
	}
	slices.SortFunc(p.all, func(a, b registry) int { return cmp.Compare(a.address, b.address) })
	return p
}

type registry struct {
	conn    balancer.SubConn
	address string
}

// weight is how near an agent or a worker is to a registry: the same wherever it is asked, and spread
// evenly, so that a registry that goes or comes moves no agents but its own.
func (r registry) weight(name string) uint64 {
	sum := sha256.Sum256([]byte(name + "\x00" + r.address))
	return binary.BigEndian.Uint64(sum[:8])
}

type picker struct {
	all  []registry // never empty
	next atomic.Uint32
}

func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	a, ok := info.Ctx.Value(aboutKey{}).(*about)
	if !ok || len(p.all) == 1 {
		return balancer.PickResult{SubConn: p.all[int(p.next.Add(1)-1)%len(p.all)].conn}, nil
	}
	n := int(a.picks.Add(1) - 1)
	return balancer.PickResult{SubConn: near(p.all, a.name, n).conn}, nil
}

// near is the registry for the nth try of a call about a name: the nearest, then the next
// after it, and round again.
func near(all []registry, name string, n int) registry {
	nearest := func(a, b registry) int { return cmp.Compare(b.weight(name), a.weight(name)) }
	if n == 0 {
		return slices.MinFunc(all, nearest)
	}
	return slices.SortedFunc(slices.Values(all), nearest)[n%len(all)]
}

// nearUnary lets a call go to the registry near its agent.
func nearUnary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoke(tag(ctx, req), method, req, reply, cc, opts...)
}

// nearStream does so with a stream that one request opens: it is made when that is known.
func nearStream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if desc.ClientStreams {
		return open(ctx, desc, cc, method, opts...)
	}
	return &asked{ctx: ctx, open: func(ctx context.Context) (grpc.ClientStream, error) { return open(ctx, desc, cc, method, opts...) }}, nil
}

// asked is a stream of answers that is opened by its one request. gRPC's generated code
// sends that before anything else, and one goroutine alone.
type asked struct {
	grpc.ClientStream                 // nil before the request
	ctx               context.Context //nolint:containedctx // of the stream, which outlives no call
	open              func(context.Context) (grpc.ClientStream, error)
}

func (s *asked) SendMsg(req any) (err error) {
	if s.ClientStream == nil {
		if s.ClientStream, err = s.open(tag(s.ctx, req)); err != nil {
			return err
		}
	}
	return s.ClientStream.SendMsg(req)
}

func (s *asked) Context() context.Context {
	if s.ClientStream == nil {
		return s.ctx
	}
	return s.ClientStream.Context()
}
