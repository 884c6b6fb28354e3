package delivery

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/theclaw/agents/internal/channel"
	"github.com/theclaw/agents/internal/hook"
	"github.com/theclaw/agents/internal/lease"
)

// path is one URL of a host: a channel of an agent's own settings.
type path struct {
	url  string
	send func(ctx context.Context, m channel.Message) error
}

func (path) Name() string                         { return "hook" }
func (path) Guarantee() channel.Guarantee         { return channel.Keyed }
func (path) Host(channel.Message) string          { return "example.org" }
func (p path) Destination(channel.Message) string { return "example.org " + p.url }
func (p path) Send(ctx context.Context, m channel.Message) (channel.Receipt, error) {
	return channel.Receipt{}, p.send(ctx, m)
}
func (p path) For(string, string, channel.ReplyContext) (channel.Channel, bool) { return p, true }

// agents drains several agents over one pool: the settings of each name its path as their url.
type agents struct {
	pool  *Pool
	ended []chan error
}

func newAgents(paths map[string]path) *agents {
	return &agents{pool: NewPool(Config{}, Deps{Journal: newMemory(), Open: func(s channel.Settings) (Channels, error) {
		return paths[s.Channels["hook"].URL], nil
	}})}
}

// start drains threads of one agent; each holds one message.
func (a *agents) start(id string, j *memory, threads ...string) {
	ctx := context.WithValue(context.Background(), tokenKey{}, uint64(1))
	keeper := lease.Keep(ctx, new(registry), lease.Grant{Resource: "deliver/" + id, Token: 1, Sent: time.Now()}, lease.Options{})
	agent := a.pool.Agent(keeper.Context(), id, keeper)
	ended := make(chan error, 1)
	a.ended = append(a.ended, ended)
	go func() {
		err := agent.Run()
		keeper.Stop()
		ended <- err
	}()
	for _, t := range threads {
		j.push(t, "hi")
	}
	agent.Wake(threads...)
}

func (a *agents) wait(t *testing.T) {
	t.Helper()
	for _, ended := range a.ended {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	a.pool.Wait()
}

// journals gives each agent a journal of its own.
type journals map[string]*memory

func (j journals) Begin(ctx context.Context, agentID, threadID string, peek bool) (Due, error) {
	return j[agentID].Begin(ctx, agentID, threadID, peek)
}

func (j journals) Finish(ctx context.Context, agentID, threadID string, f Finish) (Finished, error) {
	return j[agentID].Finish(ctx, agentID, threadID, f)
}

func (j journals) Decide(ctx context.Context, agentID, threadID string, due Due, d hook.Decision) (hook.Decision, error) {
	return j[agentID].Decide(ctx, agentID, threadID, due, d)
}

func (j journals) add(id, url string) *memory {
	j[id] = newMemory()
	j[id].settings = channel.Settings{Channels: map[string]channel.Definition{"hook": {URL: url}}}
	return j[id]
}

func threads(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("threads/peers/%d", i))
	}
	return out
}

// F2: one agent's receiver that is down, asks for an hour, or hangs for each of hundreds
// of conversations delays no reply of another agent to another path of the same host.
func TestBrokenReceiverDelaysNobodyElse(t *testing.T) {
	for name, broken := range map[string]func(context.Context, channel.Message) error{
		"503": func(context.Context, channel.Message) error {
			return &channel.Error{Class: channel.Unavailable, What: "answered 503"}
		},
		"429 for an hour": func(context.Context, channel.Message) error {
			return &channel.Error{Class: channel.Unavailable, RetryAfter: time.Hour, What: "answered 429"}
		},
		"hangs": func(context.Context, channel.Message) error {
			time.Sleep(30 * time.Second)
			return &channel.Error{Class: channel.Unavailable, InDoubt: true, What: "did not answer in time"}
		},
		"slow": func(context.Context, channel.Message) error {
			time.Sleep(29 * time.Second)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var up bool
				began := map[string]time.Time{}
				delivered, slowest := 0, time.Duration(0)
				w := newAgents(map[string]path{
					"bad": {"bad", func(ctx context.Context, m channel.Message) error {
						mu.Lock()
						ok := up
						mu.Unlock()
						if ok {
							return nil
						}
						return broken(ctx, m)
					}},
					"good": {"good", func(_ context.Context, m channel.Message) error {
						time.Sleep(10 * time.Millisecond)
						mu.Lock()
						defer mu.Unlock()
						delivered++
						slowest = max(slowest, time.Since(began[m.AgentID]))
						return nil
					}},
				})
				j := journals{}
				w.pool.Journal = j
				w.start("bad", j.add("bad", "bad"), threads(300)...)
				for i := range 60 { // a minute of replies, one a second
					time.Sleep(time.Second)
					id := fmt.Sprintf("good%d", i)
					mu.Lock()
					began[id] = time.Now()
					mu.Unlock()
					w.start(id, j.add(id, "good"), "threads/main")
				}
				time.Sleep(time.Second)
				synctest.Wait()
				mu.Lock()
				if delivered != 60 || slowest > 50*time.Millisecond {
					t.Errorf("%d of 60 delivered to the healthy path, the slowest after %v", delivered, slowest)
				}
				up = true
				mu.Unlock()
				w.wait(t)
			})
		})
	}
}

// A4: a reply that is refused is tried at 0, 5 and 65 s and holds up its conversation until
// then, and no other one of the same agent and channel.
func TestRefusedHoldsItsConversationAlone(t *testing.T) {
	s := &sink{answer: func(_ int, m channel.Message) error {
		if m.Text == "refused" {
			return &channel.Error{Class: channel.Failed, What: "no"}
		}
		return nil
	}}
	inBubble(t, s, func(t *testing.T, w *world) {
		began := time.Now()
		w.journal.push("threads/a", "refused", "behind it")
		for _, id := range threads(20) {
			w.journal.push(id, id)
		}
		w.agent.Wake(append(threads(20), "threads/a")...)
		<-w.ended
		at := map[string][]time.Duration{}
		for i, m := range s.got {
			at[m.Text] = append(at[m.Text], s.at[i].Sub(began))
		}
		want := []time.Duration{0, 5 * time.Second, 65 * time.Second}
		if !slices.Equal(at["refused"], want) || !slices.Equal(at["behind it"], want[2:]) {
			t.Errorf("refused at %v, the next of its conversation at %v", at["refused"], at["behind it"])
		}
		for _, id := range threads(20) {
			if !slices.Equal(at[id], want[:1]) {
				t.Errorf("%s was sent at %v", id, at[id])
			}
		}
	})
}

// TestManyToOneDestination: a healthy receiver gets the messages of many conversations
// without waits in between, although only some of them at a time.
func TestManyToOneDestination(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		now, most := 0, 0
		w := newAgents(map[string]path{"good": {"good", func(context.Context, channel.Message) error {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(10 * time.Millisecond)
			mu.Lock()
			now--
			mu.Unlock()
			return nil
		}}})
		j := journals{}
		w.pool.Journal = j
		began := time.Now()
		a := j.add("a", "good")
		w.start("a", a, threads(200)...)
		w.wait(t)
		if took := time.Since(began) - lease.GrantKeep; took > 300*time.Millisecond || most != 8 {
			t.Errorf("200 messages took %v, %d at a time", took, most)
		}
		for _, id := range threads(200) {
			if r := a.row(id, 1); r.state != "sent" || r.attempts != 1 || r.duplicate {
				t.Errorf("%s: %+v", id, r)
			}
		}
	})
}

// TestCloseWhileWaitingForOthers: what was begun and waits for the sends of others is put
// back unsent when the drain closes, without an attempt and without the flag.
func TestCloseWhileWaitingForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newAgents(map[string]path{"good": {"good", func(context.Context, channel.Message) error {
			time.Sleep(10 * time.Second)
			return nil
		}}})
		j := journals{}
		w.pool.Journal = j
		a := j.add("a", "good")
		ctx := context.WithValue(context.Background(), tokenKey{}, uint64(1))
		keeper := lease.Keep(ctx, new(registry), lease.Grant{Resource: "deliver/a", Token: 1, Sent: time.Now()}, lease.Options{})
		defer keeper.Stop()
		agent := w.pool.Agent(keeper.Context(), "a", keeper)
		for _, id := range threads(20) {
			a.push(id, "hi")
		}
		agent.Wake(threads(20)...)
		synctest.Wait()
		agent.Close()
		if err := agent.Run(); err != nil {
			t.Error(err)
		}
		w.pool.Wait()
		sent := 0
		for _, id := range threads(20) {
			switch r := a.row(id, 1); {
			case r.state == "sent":
				sent++
			case r.state != "pending" || r.attempts != 0:
				t.Errorf("%s: %+v", id, r)
			}
		}
		if sent != 8 {
			t.Errorf("%d sent", sent)
		}
	})
}
