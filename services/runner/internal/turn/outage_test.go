package turn_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/model/retry"
	"github.com/theclaw/agents/services/runner/internal/modelcall"
)

// provider is a driver that is away for a while, in some way.
type provider struct {
	begin time.Time
	back  time.Time
	away  func(ctx context.Context) error

	mu    sync.Mutex
	calls []time.Duration // since begin
}

func (p *provider) Name() string { return "p" }

func (p *provider) Generate(ctx context.Context, _ model.Request, onDelta func(model.Delta)) (model.Response, error) {
	p.mu.Lock()
	p.calls = append(p.calls, time.Since(p.begin))
	p.mu.Unlock()
	if time.Now().Before(p.back) {
		return model.Response{}, p.away(ctx)
	}
	onDelta(model.Delta{Text: "here"})
	return model.Response{Text: "here", FinishReason: model.FinishStop}, nil
}

// Find implements modelcall.Models with what the runner makes of package retry.
type finder struct {
	pool *retry.Pool
	p    *provider
}

func (f finder) Find(string, string) (modelcall.Model, error) {
	c := f.pool.Caller(f.p)
	return modelcall.Model{Provider: "p", Name: "m", Try: func(ctx context.Context, req model.Request, emit func(model.Delta)) (model.Response, modelcall.Try) {
		r, o := c.Try(ctx, req, emit)
		return r, modelcall.Try{Err: o.Err, Counts: o.Counts, Again: o.Retry, Wait: o.Wait, Held: !o.Sent && o.Err != nil, Back: o.Back}
	}}, nil
}

// F4: a provider is away for ten minutes, in each way; 24 conversations of three agents
// wait for it. No message dies and no try is charged; once it is known, one call is made
// each 30 s; and all are answered within 30 s of its return.
func TestOutageOfTenMinutes(t *testing.T) {
	const conversations, away = 24, 10 * time.Minute
	status := func(code int, class model.Class, after time.Duration) func(context.Context) error {
		return func(context.Context) error {
			return &model.Error{Class: class, Status: code, RetryAfter: after, Message: "p: not now"}
		}
	}
	for name, how := range map[string]func(context.Context) error{
		"503":     status(503, model.Unavailable, 0),
		"429":     status(429, model.RateLimited, 5*time.Second),
		"refused": status(0, model.Unreachable, 0),
		"hangs": func(ctx context.Context) error {
			select { // as package wire does
			case <-time.After(3 * time.Minute):
				return model.Errorf(model.Unavailable, "p: the provider sent nothing for too long")
			case <-ctx.Done():
				return model.AsError(ctx.Err())
			}
		},
		"cut": func(context.Context) error { return model.Errorf(model.CutStream, "p: the connection was lost") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				p := &provider{begin: begin, back: begin.Add(away), away: how}
				pool := retry.NewPool(retry.Waits{})
				benches := make([]*bench, conversations)
				var all sync.WaitGroup
				for i := range benches {
					b := newBench(t, fmt.Sprint("message of agent ", i%3))
					b.models = finder{pool, p}
					benches[i] = b
					all.Go(func() {
						time.Sleep(time.Duration(i) * 700 * time.Millisecond)
						if _, err := b.run(t.Context()); err != nil {
							t.Errorf("conversation %d: %v", i, err)
						}
					})
				}
				all.Wait()
				if late := time.Since(p.back); late > 30*time.Second {
					t.Errorf("the last answer came %v after the return", late)
				}
				for i, b := range benches {
					if b.journal.fin.GetFate() != pb.Fate_FATE_REPLIED || b.journal.errors != 0 {
						t.Errorf("conversation %d: %v, %d tries charged", i, b.journal.fin, b.journal.errors)
					}
				}
				during := slices.DeleteFunc(slices.Clone(p.calls), func(at time.Duration) bool { return at >= away })
				// What is under way when the breaker opens has been called already: with a
				// provider that hangs, all conversations.
				opened := time.Minute
				if name == "hangs" {
					opened = 4 * time.Minute
				}
				probes := slices.DeleteFunc(slices.Clone(during), func(at time.Duration) bool { return at < opened })
				for i := 1; i < len(probes); i++ {
					if gap := probes[i] - probes[i-1]; gap < retry.ProbeEvery {
						t.Errorf("two calls within %v at %v", gap, probes[i])
					}
				}
				if most := int((away-opened)/retry.ProbeEvery) + 1; len(probes) < 5 || len(probes) > most {
					t.Errorf("%d probes, at most %d", len(probes), most)
				}
			})
		})
	}
}
