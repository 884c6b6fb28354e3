package delivery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/lease"
)

// sink is the receiver at the far end: it answers by a script.
type sink struct {
	mu     sync.Mutex
	got    []channel.Message
	at     []time.Time
	answer func(n int, m channel.Message) error // n: sends before this one
	hold   func(ctx context.Context) error      // run during each send
	limit  channel.Limit
}

func (s *sink) Name() string                 { return "xgw" }
func (s *sink) Guarantee() channel.Guarantee { return channel.None }
func (s *sink) Limit() channel.Limit         { return s.limit }

func (s *sink) Send(ctx context.Context, m channel.Message) (channel.Receipt, error) {
	s.mu.Lock()
	n := len(s.got)
	s.got, s.at = append(s.got, m), append(s.at, time.Now())
	answer, hold := s.answer, s.hold
	s.mu.Unlock()
	if hold != nil {
		if err := hold(ctx); err != nil {
			return channel.Receipt{}, err
		}
	}
	if answer != nil {
		if err := answer(n, m); err != nil {
			return channel.Receipt{}, err
		}
	}
	return channel.Receipt{ProviderID: fmt.Sprint(n)}, nil
}

// texts returns what arrived, in order.
func (s *sink) texts() (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.got {
		out = append(out, m.Text)
	}
	return out
}

func (s *sink) sends() int { return len(s.texts()) }

// ways leads everything into one sink.
type ways struct {
	settings channel.Settings
	sink     channel.Channel
}

func (w ways) For(threadID, source string, rc channel.ReplyContext) (channel.Channel, bool) {
	via, ok := channel.Choose(w.settings, threadID, source, rc)
	if via == channel.NameConsole {
		return channel.Console{}, ok
	}
	return w.sink, ok
}

// registry renews until it is told that the lease is lost.
type registry struct {
	mu    sync.Mutex
	err   error
	yield bool
}

func (r *registry) Renew(context.Context, string, uint64) (lease.RenewReply, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return lease.RenewReply{YieldRequested: r.yield}, r.err
}

func (r *registry) say(err error, yield bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err, r.yield = err, yield
}

// world is one agent being drained.
type world struct {
	*testing.T
	journal  *memory
	sink     *sink
	registry *registry
	pool     *Pool
	agent    *Agent
	ended    chan error
	out      channel.Channel // nil: sink
}

// carry has everything go to a channel, which stands for the sink.
func (w *world) carry(c channel.Channel) { w.out = c }

func newWorld(t *testing.T, j *memory, s *sink) *world {
	w := &world{T: t, journal: j, sink: s}
	w.pool = NewPool(Config{Concurrency: 4}, Deps{
		Journal: j,
		Media: func(context.Context, string, string, int64) (io.ReadCloser, error) {
			return nil, errors.New("nothing reads it")
		},
		Open: func(c channel.Settings) (Channels, error) {
			if w.out != nil {
				return ways{c, w.out}, c.Validate()
			}
			return ways{c, s}, c.Validate()
		},
	})
	w.start()
	return w
}

// start begins a term under the journal's present token.
func (w *world) start() {
	w.registry, w.ended = new(registry), make(chan error, 1)
	ctx := context.WithValue(context.Background(), tokenKey{}, w.journal.token)
	keeper := lease.Keep(ctx, w.registry, lease.Grant{Resource: "deliver/a1", Token: w.journal.token, Sent: time.Now()}, lease.Options{})
	agent := w.pool.Agent(keeper.Context(), "a1", keeper)
	w.agent = agent
	go func(ended chan error) {
		err := agent.Run()
		keeper.Stop()
		ended <- err
	}(w.ended)
}

// end closes the drain and waits for it.
func (w *world) end() error {
	w.agent.Close()
	err := <-w.ended
	w.pool.Wait()
	return err
}
