package migrate

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/cmd/agentctl/internal/legacy"
	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/testing/world"
)

// R7: wherever an undo is interrupted, the next one finishes it: names, settings and
// tables are those of the earlier agent.
func TestUndoInterrupted(t *testing.T) {
	for done := 0; ; done++ {
		h := earlier(t)
		e1 := h.AgentDir("e1")
		was := map[string]string{}
		for _, name := range []string{"config.yaml", "memory/user-Alice.md", "memory/user-bob.md", "memory/agent.md"} {
			was[name] = read(t, filepath.Join(e1, name))
		}
		if text, code := run(t, h, "e1", "--apply"); code != 1 { // two things are left to a person
			t.Fatalf("exit code %d: %s", code, text)
		}
		found, err := legacy.Undo(t.Context(), h, "e1", legacy.Options{Now: time.Now()})
		if err != nil || len(found.Changes) < 5 {
			t.Fatalf("%+v, %v", found, err)
		}
		if _, err := legacy.Apply(t.Context(), found.Changes[:min(done, len(found.Changes))], time.Now()); err != nil {
			t.Fatal(err)
		}
		if text, code := run(t, h, "e1", "--undo", "--apply"); code != 0 {
			t.Errorf("after %d: exit code %d: %s", done, code, text)
		}
		for name, text := range was {
			if now := read(t, filepath.Join(e1, name)); now != text {
				t.Errorf("after %d: %s is %q", done, name, now)
			}
		}
		alice := filepath.Join(e1, "threads/peers/tui-main-Alice")
		for _, dir := range []string{alice, filepath.Join(e1, "threads/peers/tg-main-a-b"), filepath.Join(e1, "inbox")} {
			if n := one(t, filepath.Join(dir, "events.db"), "SELECT COUNT(*) FROM sqlite_master WHERE name LIKE 'x!_%' ESCAPE '!'"); n != "0" {
				t.Errorf("after %d: %s has %s names of ours", done, dir, n)
			}
		}
		if c := one(t, filepath.Join(alice, "events.db"), "SELECT handler_cmd FROM subscriptions"); !strings.Contains(c, alice+" ") {
			t.Errorf("after %d: handler %q", done, c)
		}
		if _, err := os.Lstat(filepath.Join(e1, "migration.json")); !os.IsNotExist(err) {
			t.Errorf("after %d: the record is left: %v", done, err)
		}
		if text, code := run(t, h, "e1", "--undo"); code != 0 || !strings.Contains(text, "nothing to do") {
			t.Errorf("after %d: exit code %d: %s", done, code, text)
		}
		if done >= len(found.Changes) {
			return
		}
	}
}

// R7: an agent that was made here has no way back, and one with work under way has none
// until that is done; nothing of them is changed.
func TestUndoRefused(t *testing.T) {
	t.Run("made here", func(t *testing.T) {
		w := world.Start(t, world.Options{})
		w.Create(t, "new", "outbound: []")
		w.Stop()
		h := layout.At(w.Home)
		if text := read(t, filepath.Join(h.AgentDir("new"), "config.yaml")); strings.Contains(text, h.Path()) {
			t.Errorf("config.yaml has an absolute path: %s", text)
		}
		refused(t, h, "new", "it was made by this version")
	})
	for name, c := range map[string]struct{ where, change, says string }{
		"a turn":  {"threads/peers/tui-main-bob", "UPDATE x_turn SET state = 'claimed'", "1 message is being worked on"},
		"a send":  {"threads/peers/tui-main-bob", "UPDATE x_delivery SET state = 'sending'", "sent before an earlier one"},
		"a reply": {"threads/peers/tui-main-bob", "UPDATE x_ack SET id = id - 1 WHERE consumer = 'outbound'", "sent before an earlier one"},
		"a fate":  {"inbox", "UPDATE x_ack SET id = id - 1", "1 message is finished before an earlier one"},
	} {
		t.Run(name, func(t *testing.T) {
			h := earlier(t)
			if text, code := run(t, h, "e1", "--apply"); code != 1 {
				t.Fatalf("exit code %d: %s", code, text)
			}
			sink := world.NewSink(t)
			config := filepath.Join(h.AgentDir("e1"), "config.yaml")
			put(t, config, strings.Replace(read(t, config), "via: xgw", "via: sink", 1)+"channels:\n  sink: {type: webhook, url: \""+sink.URL+"\", allow_private: true}\n")
			w := world.Start(t, world.Options{Home: h.Path()})
			w.Say(t, "e1", bob, "say: hello")
			await(t, sink, 2) // this one, and what waited
			w.Stop()
			exec1(t, filepath.Join(h.AgentDir("e1"), c.where, "events.db"), c.change)
			refused(t, h, "e1", c.says)
		})
	}
}

// refused compares what an undo says, and that it changes nothing.
func refused(t *testing.T, h layout.Home, id, says string) {
	t.Helper()
	before := tree(t, h)
	text, code := run(t, h, id, "--undo", "--apply")
	if code != 1 || !strings.Contains(text, says) || !strings.Contains(text, "0 changes done, 1 left to you") {
		t.Errorf("exit code %d: %s", code, text)
	}
	if !maps.Equal(before, tree(t, h)) {
		t.Error("something changed")
	}
}
