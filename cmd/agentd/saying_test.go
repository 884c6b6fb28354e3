//go:build proof

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// S1-49, S1-52 under P1 and P3: agentd is killed at each instant of a turn whose tool
// sends a message that goes in three parts, and that says the same again at its end.
// Each part arrives, in its order; only one that was under way at a kill arrives
// twice, under the same key and flagged; and nothing is said a second time.
func TestKilledWhileItSpeaks(t *testing.T) {
	parts := []string{strings.Repeat("a", 60), strings.Repeat("b", 60), strings.Repeat("c", 60)}
	var blows []blow
	for _, label := range []string{"T4", "T5", "T6", "T7", "T8", "D1"} {
		blows = append(blows, blow{label: label + ".before", hit: 1}, blow{label: label + ".after", hit: 1})
	}
	for hit := range 3 {
		for _, label := range []string{"D2.before", "D2.after", "D3.before", "D3.after"} {
			blows = append(blows, blow{label: label, hit: hit + 1})
		}
	}
	kills, twice := 0, 0
	for _, b := range blows {
		t.Run(fmt.Sprint(b.label, b.hit), func(t *testing.T) {
			site, sink := world.NewSite(t, program(t)), world.NewSink(t)
			all := append([]string{"all"}, flags...)
			p := site.Start(t, all...)
			site.Create(t, "a1", sink.Config()+"\nreply: {message_tool: true}\ndeliver: {max_chars: 64}")
			p.Kill()
			p = site.StartWith(t, []string{fmt.Sprintf("%s=%s:%d", failpoint, b.label, b.hit)}, all...)
			site.Serving(t, p, everything...)
			wait := bob(t, site, "send: "+strings.Join(parts, "\n\n"))
			<-p.Done()
			if !p.Killed() {
				t.Fatalf("agentd ended by itself; its log:\n%s", p.Log())
			}
			p = site.Start(t, all...)
			defer p.Kill()
			if turn := wait(); turn.GetFate() != registryv1.Fate_FATE_SILENT {
				t.Errorf("ended %v", turn)
			}
			(&audit{TB: t, load: &load{site: site}, sink: sink}).settled("a1")
			var texts, keys []string
			o := invariant.Options{Live: true, Drained: true}
			for _, s := range sink.Arrivals("a1") {
				if slices.Contains(keys, s.Key) {
					twice++
					if !s.MaybeDuplicate {
						t.Errorf("%s arrived twice and is not flagged", s.Key)
					}
				} else {
					texts = append(texts, s.Text)
				}
				keys = append(keys, s.Key)
				o.Sink = append(o.Sink, invariant.Arrival{Key: s.Key, MaybeDuplicate: s.MaybeDuplicate, Agent: s.AgentID, Thread: s.ThreadID, EventID: s.EventID})
			}
			if !slices.Equal(texts, parts) {
				t.Errorf("arrived %q", texts)
			}
			// The deliverer works beside the turn, so a part may be under way at any kill.
			if extra := len(keys) - len(parts); extra > 1 {
				t.Errorf("%d parts arrived twice", extra)
			}
			for _, v := range violations(t, site.Home, o) {
				t.Errorf("%s", v)
			}
			kills++
		})
	}
	fmt.Fprintf(os.Stdout, "speaks kills=%d parts_twice_in_window=%d\n", kills, twice)
}
