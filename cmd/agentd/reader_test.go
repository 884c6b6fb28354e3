package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/channel/telegram/telegramtest"
	"github.com/theclaw/agents/internal/rpc"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/testing/world"
	gatewayv1 "github.com/theclaw/agents/proto/gen/theclaw/gateway/v1"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// reader is a gateway as a process of its own.
type reader struct {
	*world.Process
	gatewayv1.GatewayServiceClient
	start func() *world.Process
}

// state is the account tg there; nil: it does not answer.
func (r *reader) state(ctx context.Context) *gatewayv1.Channel {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	list, err := r.ListChannels(ctx, &gatewayv1.ListChannelsRequest{})
	if err != nil || len(list.GetChannels()) == 0 {
		return nil
	}
	return list.GetChannels()[0]
}

// await waits until the account is in a state there.
func (r *reader) await(t *testing.T, want gatewayv1.ChannelState) *gatewayv1.Channel {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; <-time.After(5 * time.Millisecond) {
		if c := r.state(t.Context()); c.GetState() == want {
			return c
		}
		if time.Now().After(end) {
			t.Fatalf("tg is not %v but %v; the log:\n%s", want, r.state(t.Context()), r.Log())
		}
	}
}

// readers are two gateways over one home, or over two registries and one database; all other services run in
// the first home.
func readers(t *testing.T, api *telegramtest.Server, dsn string) (*world.Site, []*reader) {
	t.Helper()
	program := program(t)
	program.Env = append(program.Env, "TG="+api.Token())
	settings := fmt.Sprintf("channels:\n  tg: {type: telegram, token: \"env:TG\", api: %q, dm: open, rate: 0}\n", api.URL())
	sites, file := []*world.Site{world.NewSite(t, program)}, "gateway: {http: off}\n"
	if dsn == "" {
		file += settings
	} else {
		sites = append(sites, world.NewSite(t, program))
	}
	var all []*reader
	for i, site := range sites {
		if err := os.MkdirAll(site.Home, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(site.Home, "theclaw.yaml"), []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args := []string{"registry"}
		if dsn != "" {
			args = append(args, "--dsn", dsn)
		}
		site.Serving(t, site.Start(t, append(args, flags...)...), "registry")
		names := []string{"gateway-1", "gateway-2"}
		if i == 0 {
			site.Create(t, "admin", "")
			site.Start(t, append([]string{"runner"}, flags...)...)
			site.Start(t, append([]string{"deliverer"}, flags...)...)
		}
		if dsn != "" {
			names = names[i : i+1]
		}
		for _, name := range names {
			r := &reader{
				GatewayServiceClient: gatewayv1.NewGatewayServiceClient(site.Dial(t, name, rpc.Identity{})),
				start:                func() *world.Process { return site.Start(t, append([]string{"gateway", "--name", name}, flags...)...) },
			}
			r.Process = r.start()
			all = append(all, r)
		}
	}
	if dsn != "" {
		if _, err := sites[0].Homes.SetHomeConfig(t.Context(), &registryv1.SetHomeConfigRequest{Text: settings}); err != nil {
			t.Fatal(err)
		}
	}
	return sites[0], all
}

// S2-12: an account moves to the other gateway when the one that receives for it stops, is killed, or is stopped
// past its lease (SIGSTOP); then that one, awake again, takes no update and ends no request of the other. No update
// is lost or answered twice.
func TestAccountMoves(t *testing.T) {
	for _, name := range []string{"sqlite", "postgres"} {
		t.Run(name, func(t *testing.T) {
			dsn := ""
			if name == "postgres" {
				dsn = pgtest.Shared(t).Database(t)
			}
			api, err := telegramtest.Start(telegramtest.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer api.Close()
			site, all := readers(t, api, dsn)
			bob, sent := telegramtest.User{ID: 1207, FirstName: "Bob"}, 0
			say := func(n int) {
				for range n {
					api.Say(telegramtest.Message{Chat: telegramtest.Private(bob), From: &bob, Text: fmt.Sprintf("say: %d", sent)})
					sent++
				}
			}
			answered := func() {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
				defer cancel()
				var got []string
				err := api.Wait(ctx, func() bool {
					got = nil
					for _, m := range api.Messages(bob.ID) {
						if m.From != nil && m.From.IsBot {
							got = append(got, m.Text)
						}
					}
					return len(got) >= sent
				})
				for n, text := range got {
					if text != fmt.Sprint(n) {
						err = fmt.Errorf("%d is answered by %s", n, text)
					}
				}
				if err != nil {
					t.Fatalf("%v: %d sent, answers %q; the logs:\n%s\n%s", err, sent, got, all[0].Log(), all[1].Log())
				}
			}
			for _, how := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGKILL} {
				i := -1
				for end := time.Now().Add(30 * time.Second); i < 0; <-time.After(5 * time.Millisecond) {
					i = slices.IndexFunc(all, func(r *reader) bool {
						return r.state(t.Context()).GetState() == gatewayv1.ChannelState_CHANNEL_STATE_UP
					})
					if time.Now().After(end) {
						t.Fatalf("no gateway receives: %v, %v", all[0].state(t.Context()), all[1].state(t.Context()))
					}
				}
				one, two := all[i], all[1-i]
				two.await(t, gatewayv1.ChannelState_CHANNEL_STATE_STANDBY)
				say(3)
				answered()
				say(2) // on their way
				one.Signal(how)
				say(2)
				up := two.await(t, gatewayv1.ChannelState_CHANNEL_STATE_UP)
				answered()
				if how != syscall.SIGSTOP {
					one.Exit()
					one.Process = one.start()
				} else {
					say(1)
					answered()
					conflicts := api.Stats().Conflicts
					one.Signal(syscall.SIGCONT)
					one.await(t, gatewayv1.ChannelState_CHANNEL_STATE_STANDBY)
					say(2)
					answered()
					if now := two.state(t.Context()); !now.GetSince().AsTime().Equal(up.GetSince().AsTime()) || api.Stats().Conflicts != conflicts {
						t.Errorf("the gateway that was stopped disturbs the other one: %v, %d conflicts more", now, api.Stats().Conflicts-conflicts)
					}
				}
				two.await(t, gatewayv1.ChannelState_CHANNEL_STATE_UP)
				one.await(t, gatewayv1.ChannelState_CHANNEL_STATE_STANDBY)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if err := api.Wait(ctx, func() bool { s := api.Stats(); return s.Acked == s.Updates }); err != nil {
				t.Fatalf("%v: %+v", err, api.Stats())
			}
			turns, err := site.Turns.ListTurns(ctx, &registryv1.ListTurnsRequest{AgentId: "admin"})
			if err != nil || len(turns.GetTurns()) != sent {
				t.Errorf("%d turns of %d messages: %v", len(turns.GetTurns()), sent, err)
			}
			answered()
			if s := api.Stats(); s.Lost != 0 {
				t.Errorf("%+v", s)
			}
			t.Logf("%d messages over 4 moves: %+v", sent, api.Stats())
		})
	}
}
