//go:build proof

package main

import (
	"context"
	"encoding/json"
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
	"github.com/theclaw/agents/internal/thread"
)

// S1-40, S1-41: agentd is killed at each instant of two messages, of which a hook drops the first, and of the reply to
// the second, whose text a hook replaces, by another one each time it is asked. The message is stored once. The reply
// has the text that was recorded, and is sent once, or once more where the kill was between the send and its record.
func TestKilledWithHooks(t *testing.T) {
	// Once the decision is recorded, it was made before the kill.
	decided := []string{"hook.decided", "D2.before", "D2.after", "D3.before", "D3.after"}
	var blows []blow
	for _, label := range append([]string{"G1", "T0.before", "T0.after", "D1.before", "D1.after", "hook.answered"}, decided...) {
		blows = append(blows, blow{label: label, hit: 1})
	}
	texts, twice := map[string]bool{}, 0
	for _, b := range blows {
		t.Run(fmt.Sprint(b.label, b.hit), func(t *testing.T) {
			api, err := telegramtest.Start(telegramtest.Config{})
			check(t, err)
			t.Cleanup(api.Close)
			site, env := world.NewSite(t, program(t)), []string{"TG=" + api.Token()}
			check(t, os.MkdirAll(filepath.Join(site.Home, "hooks"), 0o700))
			for name, text := range map[string]string{
				"hooks/received.sh": "#!/bin/sh\nif grep -q spam; then exit 2; fi\n",
				"hooks/sending.sh":  "#!/bin/sh\necho \"{\\\"text\\\": \\\"changed$(od -An -N8 -tx8 /dev/urandom)\\\"}\"\n",
				"theclaw.yaml": fmt.Sprintf("gateway: {http: off}\nchannels:\n  tg: {type: telegram, token: \"env:TG\", api: %q, dm: open}\nhooks:\n"+
					"- {name: received, events: [message_received], command: [received.sh]}\n- {name: sending, events: [message_sending], command: [sending.sh]}\n", api.URL()),
			} {
				mode := os.FileMode(0o600)
				if strings.HasPrefix(text, "#!") {
					mode = 0o700
				}
				check(t, os.WriteFile(filepath.Join(site.Home, name), []byte(text), mode))
			}
			all := append([]string{"all"}, flags...)
			p := site.StartWith(t, append(env, fmt.Sprintf("%s=%s:%d", failpoint, b.label, b.hit)), all...)
			site.Create(t, "a1", "")
			bob := telegramPlatform{api}
			bob.say(7, "say: spam", "")
			bob.say(7, "say: hello", "")
			select {
			case <-p.Done():
			case <-time.After(30 * time.Second):
				t.Fatalf("nothing met %+v; the log:\n%s", b, p.Log())
			}
			if !p.Killed() {
				t.Fatalf("agentd ended without a kill; its log:\n%s", p.Log())
			}
			killed := time.Now()
			p = site.StartWith(t, env, all...)
			defer p.Kill()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			err = api.Wait(ctx, func() bool { return bob.calm() && len(bob.heard(7)) > 0 })
			if err == nil {
				err = settled(ctx, site, "a1")
			}
			if err != nil {
				t.Fatalf("%v: %q; the log:\n%s", err, bob.heard(7), p.Log())
			}
			if list := site.Events(t, "a1", "inbox", "type = 'message'"); len(list) != 1 || !strings.Contains(list[0].GetContent(), "say: hello") {
				t.Errorf("stored are %v", list)
			}
			records := site.Events(t, "a1", "threads/peers/tg-7", "subtype = 'hook'")
			if len(records) != 1 {
				t.Fatalf("%d decisions are recorded: %v", len(records), records)
			}
			var d struct{ Hook, Text string }
			check(t, json.Unmarshal([]byte(records[0].GetContent()), &d))
			if d.Hook != "sending" || !strings.HasPrefix(d.Text, "changed ") || texts[d.Text] {
				t.Errorf("%+v is recorded after %v", d, texts)
			}
			texts[d.Text] = true
			if before := thread.ParseStamp(records[0].GetCreatedAt()).Before(killed); before != slices.Contains(decided, b.label) {
				t.Errorf("decided before the kill: %v", before)
			}
			got := bob.heard(7)
			if !slices.Equal(slices.Compact(slices.Clone(got)), []string{d.Text}) || len(got) > 2 || len(got) == 2 && b.label != "D2.after" && b.label != "D3.before" {
				t.Errorf("Bob sees %q, recorded is %q", got, d.Text)
			}
			twice += len(got) - 1
			for _, v := range violations(t, site.Home, invariant.Options{Live: true, Drained: true}) {
				t.Errorf("%s", v)
			}
		})
	}
	fmt.Fprintf(os.Stdout, "hooks kills=%d sent_twice_in_window=%d\n", len(blows), twice)
}
