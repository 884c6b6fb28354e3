//go:build proof

package outside_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/theclaw/agents/proofs/drill"
)

// TestDeliverFromOutside lets another program speak as the agent in a conversation:
// the dispatcher starts `agent deliver`, which sends it, again and again since no
// lock stays; one whose dispatch was lost goes out with the next reply. The home's
// path has a space and a quote, which the handler's command line must survive.
// S0-13, S0-120, S0-122, S0-123; CONTRACTS 1.5.
func TestDeliverFromOutside(t *testing.T) {
	m := newMachine(t, filepath.Join(t.TempDir(), "it's home"))
	w := m.serve(nil)
	w.Create(t, agent, "")
	m.push("ann", "say: first")
	m.delivered(1)
	ann := m.thread("threads/peers/tui-main-ann")
	speak := func(text string) {
		m.must("thread", "push", "--thread", ann, "--source", "self", "--type", "message", "--content",
			`{"text":"`+text+`","reply_context":{"channel_type":"external","channel_id":"tui-main","peer_id":"ann","session_id":"ann"}}`)
	}
	for n, text := range []string{"second", "third"} {
		speak(text)
		m.must("thread", "dispatch", "--thread", ann) // as the notifier would
		m.delivered(n + 2)
		m.noLocks()
	}
	speak("fourth") // and its dispatch is lost
	m.push("ann", "say: fifth")
	var got []string
	for _, s := range m.delivered(5) {
		got = append(got, s.Text)
	}
	if all := strings.Join(got, " "); all != "first second third fourth fifth" {
		t.Errorf("sent %s", all)
	}
	drill.Line("outside-deliver spoken=3 dispatched=2 sent=%d", len(got))
}
