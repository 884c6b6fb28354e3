//go:build proof

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/channel/telegram/telegramtest"
	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// S4-68: agentd is killed at each instant of a turn that writes in another conversation, and of its deliveries.
// The message is stored once and sent once, or once more where the kill was between the send and its record; the
// edit of it is made until it is recorded, and shown once.
func TestKilledInMessageTool(t *testing.T) {
	blows := []blow{{label: "T6.before", hit: 1}, {label: "T6.after", hit: 1}}
	for hit := 1; hit <= 2; hit++ { // the message and its edit
		for _, label := range []string{"D2.before", "D2.after", "D3.after"} {
			blows = append(blows, blow{label: label, hit: hit})
		}
	}
	twice := 0
	for _, b := range blows {
		t.Run(fmt.Sprint(b.label, b.hit), func(t *testing.T) {
			api, err := telegramtest.Start(telegramtest.Config{})
			check(t, err)
			t.Cleanup(api.Close)
			site, env := world.NewSite(t, program(t)), []string{"TG=" + api.Token()}
			check(t, os.MkdirAll(site.Home, 0o700))
			check(t, os.WriteFile(filepath.Join(site.Home, "theclaw.yaml"), fmt.Appendf(nil, "gateway: {http: off}\nchannels:\n  tg: {type: telegram, token: \"env:TG\", api: %q, dm: open}\n", api.URL()), 0o600))
			all := append([]string{"all"}, flags...)
			p := site.StartWith(t, env, all...)
			site.Create(t, "a1", "reply: {message_tool: true}")
			bob := telegramPlatform{api}
			bob.say(7, "say: hello", "")
			// delivered waits until Bob has seen so many messages, and everything is recorded.
			delivered := func(n int) {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				err := api.Wait(ctx, func() bool { return len(bob.heard(7)) >= n })
				if err == nil {
					err = settled(ctx, site, "a1")
				}
				if err != nil {
					t.Fatalf("%v: %q; the log:\n%s", err, bob.heard(7), p.Log())
				}
			}
			delivered(1)
			p.Kill()
			p = site.StartWith(t, append(env, fmt.Sprintf("%s=%s:%d", failpoint, b.label, b.hit)), all...)
			site.Serving(t, p, everything...)
			console := "external:console:cli:dm:cli:cli"
			// The first bot message of the chat is hello, whose id the platform shows: the second one of the turn edits it.
			id, err := site.Push(t.Context(), "a1", console, fmt.Sprintf("call: message_send {\"text\":\"from afar\",\"channel\":\"tg\",\"to\":\"7\"}\ncall: message_send {\"action\":\"edit\",\"text\":\"hello again\",\"channel\":\"tg\",\"to\":\"7\",\"message_id\":\"%d\"}", api.Messages(7)[0].ID), "k")
			check(t, err)
			<-p.Done()
			if !p.Killed() {
				t.Fatalf("agentd ended by itself; its log:\n%s", p.Log())
			}
			p = site.StartWith(t, env, all...)
			defer p.Kill()
			if turn := site.Await(t, "a1", id); turn.GetFate() != registryv1.Fate_FATE_REPLIED {
				t.Errorf("ended %v", turn)
			}
			delivered(2)
			got := bob.heard(7)
			if got[0] != "hello again" || api.Messages(7)[0].Edits != 1 {
				t.Errorf("%q after %+v", got, api.Calls(""))
			}
			if rest := slices.Compact(slices.Clone(got[1:])); !slices.Equal(rest, []string{"from afar"}) || len(got) > 3 || len(got) == 3 && (!strings.HasPrefix(b.label, "D") || b.hit > 1) {
				t.Errorf("Bob sees %q", got)
			}
			twice += len(got) - 2
			stored := site.Events(t, "a1", "threads/peers/cli-cli", "subtype = 'action'")
			if len(stored) != 2 {
				t.Errorf("%v", stored)
			}
			for _, v := range violations(t, site.Home, invariant.Options{Live: true, Drained: true}) {
				t.Errorf("%s", v)
			}
		})
	}
	fmt.Fprintf(os.Stdout, "message tool kills=%d sent_twice_in_window=%d\n", len(blows), twice)
}
