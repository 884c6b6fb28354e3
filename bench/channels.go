package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/theclaw/agents/bench/limits"
	"github.com/theclaw/agents/bench/load"
	"github.com/theclaw/agents/bench/server"
	"github.com/theclaw/agents/bench/table"
	"github.com/theclaw/agents/internal/channel/telegram/telegramtest"
	"github.com/theclaw/agents/internal/pause"
	gatewayv1 "github.com/theclaw/agents/proto/gen/theclaw/gateway/v1"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// sendGap is the least time between two messages of a bot: Telegram takes 30 a second, and the sender
// holds that. Messages that come sooner would measure it.
const sendGap = 40 * time.Millisecond

// channels measures what a message costs that comes from a chat platform, next to the push that it is
// compared with. The platform is a Bot API on loopback.
func (r *run) channels(ctx context.Context) error {
	for _, part := range []func(context.Context) error{r.channelCounts, r.channelTimes, r.channelBurst, r.channelStops, r.channelMemory, r.versionOfAgentctl} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

// channelCounts are figures that a test and a Go benchmark of this source print.
func (r *run) channelCounts(ctx context.Context) error {
	out, err := goTest(ctx, "-v", "-run", "^TestCostOfAChannelMessage$", "./services/gateway")
	if err != nil {
		return err
	}
	for _, c := range []struct {
		what string
		most float64
	}{
		{"fsyncs of a channel message", 2.1},
		{"calls that the gateway adds", 1},
		{"fsyncs of a context-only message", 1},
		{"leases of a context-only message", 0},
		{"runner calls of a context-only message", 0},
	} {
		got, err := counted(out, c.what)
		if err != nil {
			return err
		}
		r.Count(c.what+", counted", got, c.most)
	}
	sent, err := counted(out, "fsyncs of a channel message with its delivery")
	if err != nil {
		return err
	}
	r.Figure("fsyncs of a channel message with its delivery, counted", fmt.Sprintf("%.3g", sent))
	times, err := benchmarkTimes(ctx, "./internal/binding", "^BenchmarkResolve$", r.size(5, 3), "0.3s")
	if err != nil {
		return err
	}
	r.AtMost("route over 10,000 bindings, p99", time.Duration(times["BenchmarkResolve p99-ns"]), time.Millisecond)
	r.Below("route over 10,000 bindings, allocations", times["BenchmarkResolve allocs/op"], 3)
	return nil
}

// chat is the agent and the account of a measurement, with the Bot API.
type chat struct {
	api   *telegramtest.Server
	seen  chan telegramtest.Call // sendMessage
	token string                 // the file with it
}

// newChat starts a Bot API of a bot of its own.
func (r *run) newChat(name string, bot int) (*chat, error) {
	c := &chat{seen: make(chan telegramtest.Call, 1<<16), token: filepath.Join(r.dir, name+".token")}
	token := fmt.Sprintf("%d:BENCH", bot)
	if err := os.WriteFile(c.token, []byte(token), 0o600); err != nil {
		return nil, err
	}
	var err error
	c.api, err = telegramtest.Start(telegramtest.Config{Token: token, OnCall: func(call telegramtest.Call) {
		if call.Method == "sendMessage" && call.Status == 200 {
			c.seen <- call
		}
	}})
	return c, err
}

// entry is the account in theclaw.yaml.
func (c *chat) entry(name string) string {
	return fmt.Sprintf("  %s: {type: telegram, token: %q, api: %q, dm: open, rate: 0, groups: {allow: ['*']}}\n", name, "file:"+c.token, c.api.URL())
}

// say makes a person write in a chat of its own, which has the person's number.
func (c *chat) say(person int64, text string) {
	u := telegramtest.User{ID: person, FirstName: "P"}
	c.api.Say(telegramtest.Message{Chat: telegramtest.Private(u), From: &u, Text: text})
}

// reply waits for the next message of the bot in a chat.
func (c *chat) reply(ctx context.Context, person int64) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		select {
		case call := <-c.seen:
			if call.Chat == person {
				return call.At, nil
			}
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("the bot sent nothing to %d: %w", person, ctx.Err())
		}
	}
}

// home makes a home with accounts, which does not listen.
func (r *run) home(name, accounts string) (string, error) {
	home := filepath.Join(r.dir, name)
	if err := os.MkdirAll(home, 0o700); err != nil {
		return "", err
	}
	text := "gateway: {http: off}\n"
	if accounts != "" {
		text += "channels:\n" + accounts
	}
	return home, os.WriteFile(filepath.Join(home, "theclaw.yaml"), []byte(text), 0o600)
}

// chatHome is a home with an agent "admin" that people of a chat platform write to.
type chatHome struct {
	name  string
	bots  int    // accounts tg0, tg1 and so on, each with a Bot API of its own
	more  string // further accounts that do not poll
	sends bool   // answers go to the chats; else the agent has no outbound channel
}

// withChats starts agentd in such a home, and calls fn when all accounts receive.
func (r *run) withChats(ctx context.Context, h chatHome, fn func(s *server.Server, bots []*chat) error, options ...server.Option) (err error) {
	var bots []*chat
	accounts := h.more
	for i := range h.bots {
		c, err := r.newChat(fmt.Sprint(h.name, i), 8000+i)
		if err != nil {
			return err
		}
		defer c.api.Close()
		bots, accounts = append(bots, c), accounts+c.entry(fmt.Sprint("tg", i))
	}
	home, err := r.home(h.name, accounts)
	if err != nil {
		return err
	}
	s, err := server.Start(ctx, r.agentd, home, options...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	if h.sends {
		err = s.AgentWith(ctx, "admin", "offline")
	} else {
		err = s.Agent(ctx, "admin")
	}
	if err != nil {
		return err
	}
	if err := up(ctx, home, h.bots); err != nil {
		return err
	}
	return fn(s, bots)
}

// up waits until n accounts of a home receive.
func up(ctx context.Context, home string, n int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	conn, err := server.Dial(home, "gateway")
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	for {
		list, err := gatewayv1.NewGatewayServiceClient(conn).ListChannels(ctx, &gatewayv1.ListChannelsRequest{})
		if err != nil {
			return fmt.Errorf("list channels: %w", err)
		}
		ready := 0
		for _, c := range list.GetChannels() {
			if c.GetState() == gatewayv1.ChannelState_CHANNEL_STATE_UP {
				ready++
			}
		}
		if ready == n {
			return nil
		}
		if err := pause.For(ctx, 5*time.Millisecond); err != nil {
			return fmt.Errorf("%d of %d accounts are up: %w", ready, n, err)
		}
	}
}

// channelTimes measures the way of a message from the platform to the sent reply, alone and while
// the platform holds back another chat, and the time until it is stored.
func (r *run) channelTimes(ctx context.Context) error {
	receiver, err := newReceiver()
	if err != nil {
		return err
	}
	defer receiver.Close()
	h := chatHome{name: "channel-times", bots: 1, more: "  wh: {type: webhook, dm: open, rate: 0}\n", sends: true}
	return r.withChats(ctx, h, func(s *server.Server, bots []*chat) error {
		if err := r.timesOf(ctx, s, bots[0], receiver); err != nil {
			return err
		}
		return r.accepts(ctx, s)
	})
}

func (r *run) timesOf(ctx context.Context, s *server.Server, c *chat, receiver *fakeServer) error {
	err := s.AgentWith(ctx, "sends", "offline",
		[2]string{"channels.sink", `{type: webhook, url: "` + receiver.URL + `", allow_private: true}`},
		[2]string{"outbound", `[{thread_pattern: "**", via: sink}]`})
	if err != nil {
		return err
	}
	push, err := load.NewSender(ctx, s.Conn, "sends", "sent", receiver.Seen)
	if err != nil {
		return err
	}
	defer push.Close()
	// Each chat gets one message a second: there are so many that each has its turn later than that.
	const chats, first = 40, 1000
	said := 0
	// measure sends n messages over the account and as many pushes, by turns.
	measure := func(n int) (sent, pushed []time.Duration, err error) {
		for range n {
			one, err := push.Send(ctx)
			if err != nil {
				return nil, nil, err
			}
			pushed = append(pushed, one)
			person := int64(first + said%chats)
			began := time.Now()
			c.say(person, fmt.Sprint("say: ", said))
			said++
			at, err := c.reply(ctx, person)
			if err != nil {
				return nil, nil, err
			}
			sent = append(sent, at.Sub(began))
			if err := pause.For(ctx, sendGap-time.Since(began)); err != nil {
				return nil, nil, err
			}
		}
		slices.Sort(sent)
		slices.Sort(pushed)
		return sent, pushed, nil
	}
	if _, _, err := measure(chats); err != nil { // the first of each chat begins its conversation
		return err
	}
	n := r.size(240, 80)
	sent, pushed, err := measure(n)
	if err != nil {
		return err
	}
	r.Within("fake Bot API has an update -> sendMessage arrives, p50", load.Percentile(sent, .5), 1.6, "x push -> receiver called", load.Percentile(pushed, .5))
	// The platform has one chat wait for a minute; a notice to it is tried in vain meanwhile.
	const refused = 999
	c.api.Fail(telegramtest.Fault{Method: "sendMessage", Chat: refused, Status: 429, RetryAfter: 60, Times: -1})
	c.say(refused, "say: held")
	held, meanwhile, err := measure(n)
	if err != nil {
		return err
	}
	c.api.Heal()
	after, later, err := measure(n)
	if err != nil {
		return err
	}
	// Each is a ratio to the pushes of its time, so that what happens to the machine happens to both; without is that
	// before and that after it, as the conversations grow.
	ratio := func(a, b []time.Duration) float64 {
		return float64(load.Percentile(a, .5)) / float64(load.Percentile(b, .5))
	}
	without := (ratio(sent, pushed) + ratio(after, later)) / 2
	r.Below(fmt.Sprintf("the same of other chats while one has a 429 of 60 s (%s) / without, p50", table.Short(load.Percentile(held, .5))), ratio(held, meanwhile)/without, 1.1)
	return nil
}

// accepts compares the call that stores a message of a channel with a push, by turns, to an agent that is
// stopped: its messages wait.
func (r *run) accepts(ctx context.Context, s *server.Server) error {
	const agent = "waits"
	if _, err := registryv1.NewAgentServiceClient(s.Conn).CreateAgent(ctx, &registryv1.CreateAgentRequest{AgentId: agent, Provider: "offline"}); err != nil {
		return err
	}
	_, err := registryv1.NewHomeServiceClient(s.Conn).SetHomeValue(ctx, &registryv1.SetHomeValueRequest{
		Path: []string{"bindings"}, Value: "[{agent_id: " + agent + ", match: {channel: webhook, account_id: wh}}]",
	})
	if err != nil {
		return err
	}
	channels, threads := registryv1.NewChannelServiceClient(s.Conn), registryv1.NewThreadServiceClient(s.Conn)
	var accepted, pushed []time.Duration
	for i := range r.size(600, 150) {
		peer := fmt.Sprint("p", i)
		began := time.Now()
		got, err := channels.AcceptMessages(ctx, &registryv1.AcceptMessagesRequest{Account: "wh", Messages: []*registryv1.InboundMessage{{
			Key: fmt.Sprint("bench:", i), Kind: "dm", SessionId: peer, PeerId: peer, PeerName: "P", MessageId: fmt.Sprint(i), Text: "say: hello",
		}}})
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		accepted = append(accepted, time.Since(began))
		if o := got.GetResults()[0]; o.GetOutcome() != registryv1.AcceptOutcome_ACCEPT_OUTCOME_ACCEPTED || o.GetAgentId() != agent {
			return fmt.Errorf("accept: %v", o)
		}
		began = time.Now()
		_, err = threads.PushEvents(ctx, &registryv1.PushEventsRequest{
			Thread: &registryv1.ThreadRef{AgentId: agent, ThreadId: "inbox"}, IdempotencyKey: fmt.Sprint("push:", i),
			Events: []*registryv1.NewEvent{{Source: benchSource(peer), Type: "message", Content: `{"text":"say: hello"}`}},
		})
		if err != nil {
			return fmt.Errorf("push: %w", err)
		}
		pushed = append(pushed, time.Since(began))
	}
	slices.Sort(accepted)
	slices.Sort(pushed)
	r.Within("AcceptMessages of one message, p50", load.Percentile(accepted, .5), 1.3, "x PushEvents", load.Percentile(pushed, .5))
	return nil
}

// channelBurst measures many chats that write at once over one account, each next to the same
// messages pushed: the middle of three rounds.
func (r *run) channelBurst(ctx context.Context) error {
	h := chatHome{name: "channel-burst", bots: 1} // it sends nothing: the platform permits 30 messages a second
	return r.withChats(ctx, h, func(s *server.Server, bots []*chat) error { return r.burstOf(ctx, s, bots[0]) })
}

func (r *run) burstOf(ctx context.Context, s *server.Server, c *chat) error {
	chats := r.size(100, 25)
	const messages = 10
	var ratios, rates []float64
	for round := range 3 {
		threads, push := load.Push(ctx, s.Conn, "admin", fmt.Sprint("b", round, "x"), chats, messages)
		pushed, err := load.Burst(ctx, s.Conn, "admin", threads, messages, push)
		if err != nil {
			return fmt.Errorf("pushes: %w", err)
		}
		threads = nil
		for i := range chats {
			threads = append(threads, fmt.Sprint("threads/peers/tg0-", 10_000*(round+1)+i))
		}
		took, err := load.Burst(ctx, s.Conn, "admin", threads, messages, func() error {
			for m := range messages {
				for i := range chats {
					c.say(int64(10_000*(round+1)+i), fmt.Sprint("say: ", m))
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("chats: %w", err)
		}
		ratios, rates = append(ratios, float64(pushed)/float64(took)), append(rates, float64(chats*messages)/took.Seconds())
	}
	name := fmt.Sprintf("%d chats x %d messages over one account, in order: ", chats, messages)
	r.AtLeast(fmt.Sprintf("%sturns/s (%.0f) / of the same pushes", name, middle(rates)), middle(ratios), .8)
	return nil
}

// channelStops measures how soon the processes of a tool are gone after /stop in the chat.
func (r *run) channelStops(ctx context.Context) error {
	h := chatHome{name: "channel-stops", bots: 1, sends: true}
	return r.withChats(ctx, h, func(_ *server.Server, bots []*chat) error { return r.stopsOf(ctx, bots[0]) })
}

func (r *run) stopsOf(ctx context.Context, c *chat) error {
	var took []time.Duration
	const limit = time.Second
	n, within := r.size(20, 5), 0
	for i := range n {
		// The number of seconds is what the process is recognized by.
		mark := fmt.Sprint(96400 + i)
		person := int64(2000 + i)
		c.say(person, "run: sleep "+mark)
		if err := until(ctx, func() bool { return len(server.Programs("sleep", mark)) > 0 }); err != nil {
			return fmt.Errorf("the command does not run: %w", err)
		}
		began := time.Now()
		c.say(person, "/stop")
		if err := until(ctx, func() bool { return len(server.Programs("sleep", mark)) == 0 }); err != nil {
			return fmt.Errorf("the command does not end: %w", err)
		}
		if took = append(took, time.Since(began)); took[i] <= limit {
			within++
		}
	}
	slices.Sort(took)
	r.AtMost(fmt.Sprintf("/stop in a chat -> processes of the tool gone, longest of %d", n), took[n-1], limit)
	r.AtLeast(fmt.Sprintf("of %d: in time", n), float64(within), float64(n))
	return nil
}

// channelMemory measures what accounts and chats at rest hold in a gateway that is a process of its own.
func (r *run) channelMemory(ctx context.Context) error {
	const accounts = 10
	none, err := r.gatewayAtRest(ctx, "none", 0, 0)
	if err != nil {
		return err
	}
	many, err := r.gatewayAtRest(ctx, "many", accounts, 0)
	if err != nil {
		return err
	}
	chats := r.size(10_000, 300)
	one, err := r.gatewayAtRest(ctx, "one", 1, chats)
	if err != nil {
		return err
	}
	base, err := r.delivererAtRest(ctx)
	if err != nil {
		return err
	}
	r.Below(fmt.Sprintf("gateway without an account, a process of its own (%.1f MB): MB more than a deliverer", none.rss), none.rss-base, 6)
	r.Below("10 accounts at rest: goroutines of each", (many.routines-none.routines)/accounts, 8)
	r.Below(fmt.Sprintf("10 accounts at rest: MB of each, without pages of the program (%.1f with them)", (many.rss-none.rss)/accounts), (many.anonymous-none.anonymous)/accounts, 1)
	name := fmt.Sprintf("%d idle chats of one account: ", chats)
	r.Below(name+"goroutines more", one.routines-one.before.routines, 8)
	r.Below(fmt.Sprintf("%sMB more, without pages of the program (%.1f with them)", name, one.rss-one.before.rss), one.anonymous-one.before.anonymous, 4)
	return nil
}

// atRest is what a process holds.
type atRest struct{ rss, anonymous, routines float64 }

// measureAtRest waits until the process has returned the memory of its work, which it does in idle
// intervals of 10 s, and reports what it holds then.
func measureAtRest(ctx context.Context, s *server.Server) (a atRest, err error) {
	const interval, intervals, returned = 11 * time.Second, 6, 0.3
	for n := range intervals {
		if err := pause.For(ctx, interval); err != nil {
			return a, err
		}
		before := a.rss
		if a.rss, err = s.RSS(); err != nil {
			return a, err
		}
		if n > 1 && before-a.rss < returned { // MB: nothing more is returned
			break
		}
	}
	if a.anonymous, err = s.Anonymous(); err != nil {
		return a, err
	}
	a.routines, err = s.Metric(ctx, "go_goroutines")
	return a, err
}

// gatewayRest is a gateway after its chats, and before them.
type gatewayRest struct {
	atRest
	before atRest
}

// gatewayAtRest measures a gateway of a home with accounts, and after a message in each of some
// chats that its agent has answered.
func (r *run) gatewayAtRest(ctx context.Context, name string, accounts, chats int) (out gatewayRest, err error) {
	h := chatHome{name: "channel-memory-" + name, bots: accounts}
	err = r.withChats(ctx, h, func(s *server.Server, bots []*chat) error {
		say := func(from, to int) error {
			for i := from; i < to; i++ {
				bots[0].say(int64(100_000+i), "say: hello")
			}
			return awaitTurns(ctx, s, "admin", to)
		}
		const warm = 20
		if chats > 0 {
			if err := say(0, warm); err != nil { // what the first messages need stays
				return err
			}
			if out.before, err = measureAtRest(ctx, s); err != nil {
				return err
			}
			if err := say(warm, warm+chats); err != nil {
				return err
			}
		}
		out.atRest, err = measureAtRest(ctx, s)
		return err
	}, server.WithMetrics, server.Only("gateway"))
	return out, err
}

// awaitTurns waits until the message with an inbox id and all before it have ended.
func awaitTurns(ctx context.Context, s *server.Server, agent string, n int) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	turns := registryv1.NewTurnServiceClient(s.Conn)
	for id := 1; id <= n; id++ {
		for {
			t, err := turns.GetTurn(ctx, &registryv1.GetTurnRequest{AgentId: agent, InboxId: int64(id), Wait: durationpb.New(10 * time.Second)})
			if err == nil && t.GetTurn().GetFate() != registryv1.Fate_FATE_UNSPECIFIED {
				break
			}
			if err := pause.For(ctx, 5*time.Millisecond); err != nil {
				return fmt.Errorf("message %d of %d is not answered: %w", id, n, err)
			}
		}
	}
	return nil
}

// delivererAtRest is the memory of a worker that has nothing to do, as a process of its own.
func (r *run) delivererAtRest(ctx context.Context) (rss float64, err error) {
	home, err := r.home("channel-memory-worker", "")
	if err != nil {
		return 0, err
	}
	s, err := server.Start(ctx, r.agentd, home, server.WithMetrics, server.Only("deliverer"))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	a, err := measureAtRest(ctx, s)
	return a.rss, err
}

// versionOfAgentctl measures `agentctl --version`, in turns with an empty program, in a home whose
// registry is a socket that counts connections.
func (r *run) versionOfAgentctl(ctx context.Context) error {
	home := filepath.Join(r.dir, "version")
	if err := os.MkdirAll(filepath.Join(home, "run"), 0o700); err != nil {
		return err
	}
	var connections []net.Listener
	made := make(chan struct{}, 1000)
	for _, name := range []string{"registry", "runner", "deliverer", "gateway"} {
		l, err := net.Listen("unix", filepath.Join(home, "run", name+".sock"))
		if err != nil {
			return err
		}
		connections = append(connections, l)
		go func() { // ends with Close
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_ = conn.Close()
				made <- struct{}{}
			}
		}()
	}
	defer func() {
		for _, l := range connections {
			_ = l.Close()
		}
	}()
	empty, err := limits.Empty(ctx, filepath.Join(r.dir, "empty-version"))
	if err != nil {
		return err
	}
	var least, whole []time.Duration
	for range r.size(100, 30) {
		d, err := timed(ctx, home, empty)
		if err != nil {
			return err
		}
		least = append(least, d)
		if d, err = timed(ctx, home, filepath.Join(filepath.Dir(r.agentd), "agentctl"), "--version"); err != nil {
			return err
		}
		whole = append(whole, d)
	}
	slices.Sort(least)
	slices.Sort(whole)
	r.Within("agentctl --version, whole process, p50", load.Percentile(whole, .5), 12, "X0", load.Percentile(least, .5))
	r.Count("agentctl --version: connections to services", float64(len(made)), 0)
	return nil
}

// counted is what a test counted.
func counted(out, what string) (float64, error) {
	_, rest, ok := strings.Cut(out, what+": ")
	var v float64
	if _, err := fmt.Sscan(rest, &v); !ok || err != nil {
		return 0, fmt.Errorf("the test does not report the %s", what)
	}
	return v, nil
}
