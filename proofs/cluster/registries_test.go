//go:build proof

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/testing/world"
	"github.com/theclaw/agents/proofs/drill"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// threeRegistries is a site of registries alone. Of three, two serve while one is gone.
func threeRegistries(t *testing.T) (*site, world.Client) {
	t.Helper()
	s := build(t, plan{dsn: pgtest.Start(t).Database(t), registries: 3})
	c := s.client(t)
	for a := range agents {
		c.Create(t, agentID(a), "")
	}
	return s, c
}

// strike takes registries away one after the other, each other one by a kill, and waits
// until each is there again.
func (s *site) strike(ctx context.Context, t *testing.T, every time.Duration) (drains, kills int) {
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return drains, kills
		case <-time.After(every):
		}
		p := s.of("registry")[n%3]
		if n%2 == 0 {
			p.Signal(syscall.SIGTERM)
			if code := p.Exit(); code != 0 {
				t.Errorf("a drained registry ended with %d", code)
			}
			drains++
		} else {
			p.Kill()
			kills++
		}
		s.start(t, p)
		p.Says("serving with TLS")
	}
}

// A stream of events goes on at another registry by the id of the last one: 20 watch a
// thread while registries are drained and killed, and each sees each event once.
func TestRegistriesWatch(t *testing.T) {
	lasts, every := drill.Span(t, "DURATION", 6*time.Second), drill.Span(t, "KILL_EVERY", 2*time.Second)
	s, c := threeRegistries(t)
	ref := &registryv1.ThreadRef{AgentId: agentID(0), ThreadId: "inbox"}
	var resumed, missed, repeated atomic.Int64
	var last atomic.Int64 // id of the last event; 0 until it is known
	all, stop := context.WithTimeout(t.Context(), lasts+bound)
	defer stop()
	var watchers, there sync.WaitGroup
	for w := range 20 {
		there.Add(1)
		once := sync.OnceFunc(there.Done)
		// Each knows two registries, so that they are not all near one, nor where it is pushed.
		known := slices.Delete(strings.Split(s.registries(), ","), w%3, w%3+1)
		client := world.NewClient(s.dial(t, strings.Join(known, ","), "registry"), s.dial(t, "dns:///127.0.0.1:1", "runner"))
		watchers.Go(func() {
			after := int64(0)
			if w%2 == 1 {
				after = -1 // from now on, which is before the first
			}
			for next := int64(1); all.Err() == nil; resumed.Add(1) {
				in, err := client.Threads.WatchEvents(all, &registryv1.WatchEventsRequest{Thread: ref, AfterId: after, Heartbeat: durationpb.New(500 * time.Millisecond)})
				for err == nil {
					var r *registryv1.WatchEventsResponse
					if r, err = in.Recv(); err != nil {
						break
					}
					once()
					for _, e := range r.GetEvents() {
						repeated.Add(max(next-e.GetId(), 0))
						missed.Add(max(e.GetId()-next, 0))
						next = e.GetId() + 1
					}
					if after = r.GetAfterId(); last.Load() > 0 && after >= last.Load() {
						missed.Add(last.Load() + 1 - next)
						return
					}
				}
				rest(all)
			}
		})
	}
	there.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	// Nobody answers: the inbox takes 200 messages of a person and 10,000 of all.
	pause := max(20*time.Millisecond, lasts/2000)
	var pushed, failed atomic.Int64
	var people sync.WaitGroup
	for p := range 4 {
		people.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				key := fmt.Sprintf("k-%d-%d", p, n)
				if _, err := c.Push(t.Context(), ref.GetAgentId(), world.Peer(fmt.Sprintf("p%d-%d", p, n/100)), key, key); err != nil {
					failed.Add(1)
					t.Errorf("push %s: %v", key, err)
				}
				pushed.Add(1)
				select {
				case <-ctx.Done():
				case <-time.After(pause):
				}
			}
		})
	}
	drains, kills := s.strike(ctx, t, every)
	people.Wait()
	last.Store(pushed.Load())
	watchers.Wait()
	drill.Line("registries of=watch watchers=20 events=%d drains=%d kills=%d resumed=%d missed=%d repeated=%d errors=%d",
		pushed.Load(), drains, kills, resumed.Load(), missed.Load(), repeated.Load(), failed.Load())
	if events := c.Events(t, ref.GetAgentId(), "inbox", ""); int64(len(events)) != pushed.Load() {
		t.Errorf("%d events of %d pushes", len(events), pushed.Load())
	}
	if missed.Load() != 0 || repeated.Load() != 0 || all.Err() != nil || resumed.Load() == 0 {
		t.Errorf("missed %d, repeated %d, resumed %d, %v", missed.Load(), repeated.Load(), resumed.Load(), all.Err())
	}
}

// attempts counts how often a call was sent.
type attempts struct{ total, most atomic.Int64 }

type attemptsKey struct{}

func (a *attempts) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (a *attempts) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if _, begun := s.(*stats.Begin); !begun {
		return
	}
	a.total.Add(1)
	if n, ok := ctx.Value(attemptsKey{}).(*atomic.Int64); ok {
		for now, most := n.Add(1), a.most.Load(); now > most && !a.most.CompareAndSwap(most, now); most = a.most.Load() {
		}
	}
}

func (a *attempts) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (a *attempts) HandleConn(context.Context, stats.ConnStats) {}

// A registry that is drained or killed costs its callers a retry and no error: whoever
// asks, looks, waits and pushes under a key meanwhile gets his answer.
func TestRegistriesDrain(t *testing.T) {
	lasts, every := drill.Span(t, "DURATION", 6*time.Second), drill.Span(t, "KILL_EVERY", 2*time.Second)
	s, c := threeRegistries(t)
	o, tries := s.options(t, "registry"), &attempts{}
	o.Stats = tries
	caller := world.NewClient(dialWith(t, s.registries(), o), s.dial(t, "dns:///127.0.0.1:1", "runner"))
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var calls, pushes, failed atomic.Int64
	var g sync.WaitGroup
	for a := range agents {
		id := agentID(a)
		try := func(what string, call func(ctx context.Context) error) {
			calls.Add(1)
			// Not ctx: a call that is under way at the end may finish.
			if err := call(context.WithValue(t.Context(), attemptsKey{}, new(atomic.Int64))); err != nil {
				failed.Add(1)
				t.Errorf("%s: %v", what, err)
			}
		}
		for n := range 3 {
			g.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					key := fmt.Sprintf("%s-%d-%d", id, n, i)
					var inbox int64
					try("push", func(ctx context.Context) (err error) {
						pushes.Add(1)
						inbox, err = caller.Push(ctx, id, world.Peer(fmt.Sprintf("bob%d-%d", n, i/100)), key, key)
						return err
					})
					try("look", func(ctx context.Context) error {
						_, err := caller.Agents.GetAgent(ctx, &registryv1.GetAgentRequest{AgentId: id})
						return err
					})
					try("read", func(ctx context.Context) error {
						r, err := caller.Threads.PeekEvents(ctx, &registryv1.PeekEventsRequest{Thread: &registryv1.ThreadRef{AgentId: id, ThreadId: "inbox"}, AfterId: inbox - 1, Limit: 1})
						if err == nil && len(r.GetEvents()) != 1 {
							err = errors.New("what was pushed is not there")
						}
						return err
					})
					try("wait", func(ctx context.Context) error {
						_, err := caller.Turns.GetTurn(ctx, &registryv1.GetTurnRequest{AgentId: id, InboxId: inbox, Wait: durationpb.New(300 * time.Millisecond)})
						return err
					})
				}
			})
		}
	}
	drains, kills := s.strike(ctx, t, every)
	g.Wait()
	events := 0
	for a := range agents {
		events += len(c.Events(t, agentID(a), "inbox", ""))
	}
	drill.Line("registries of=drain calls=%d pushes=%d events=%d drains=%d kills=%d retries=%d most_tries=%d errors=%d",
		calls.Load(), pushes.Load(), events, drains, kills, tries.total.Load()-calls.Load(), tries.most.Load(), failed.Load())
	if int64(events) != pushes.Load() || drains+kills == 0 {
		t.Errorf("%d events of %d pushes, %d drains and %d kills", events, pushes.Load(), drains, kills)
	}
}
