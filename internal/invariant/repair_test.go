package invariant_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/invariant/repair"
	"github.com/theclaw/agents/internal/testing/world"
	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// What fsck may put right it puts right: afterwards the same checks find nothing,
// nothing was deleted, and the services go on where they were, answering and
// sending nothing a second time.
func TestRepair(t *testing.T) {
	notADatabase := func(thread string) func(*testing.T, layout.Home) {
		return func(t *testing.T, h layout.Home) {
			write(t, filepath.Join(h.AgentDir("a1"), thread, "events.db"), strings.Repeat("not a database ", 4000))
		}
	}
	for _, c := range []struct {
		name   string
		harm   func(t *testing.T, h layout.Home)
		aside  string // what must be there afterwards
		did    string
		remain int // findings that no program may decide
	}{
		{"a flipped bit in an event", func(t *testing.T, h layout.Home) {
			edit(t, h, made.thread, "UPDATE events SET content = replace(content, 'hello', 'hellp') WHERE id = 1")
		}, "*/*/*/events.db.corrupt-*", "7 as the chain has them, 1 of those from events.jsonl, 0 unproved", 0},
		{"an event is gone", func(t *testing.T, h layout.Home) {
			edit(t, h, made.thread, "DELETE FROM events WHERE id = 4")
		}, "*/*/*/events.db.corrupt-*", "1 of those from events.jsonl", 0},
		{"the chain is wrong", func(t *testing.T, h layout.Home) {
			edit(t, h, "inbox", "UPDATE x_chain SET sha256 = zeroblob(32) WHERE event_id = 2")
		}, "inbox/events.db.corrupt-*", "1 unproved", 0},
		{"an inbox that is no database", notADatabase("inbox"), "inbox/events.db.corrupt-*", "5 unproved", 0},
		{"no index and no table of ours", func(t *testing.T, h layout.Home) {
			edit(t, h, "inbox", "DROP INDEX idx_events_source", "DROP TABLE x_step")
		}, "", "made x_step, idx_events_source", 0},
		{"events.jsonl says something else", func(t *testing.T, h layout.Home) {
			write(t, filepath.Join(h.AgentDir("a1"), "inbox", "events.jsonl"), `{"id":1,"created_at":"","source":"x","type":"message","subtype":null,"content":"?"}`+"\n")
		}, "inbox/events.jsonl.replaced-*", "wrote events.jsonl anew", 0},
		{"the ledger is gone, and the inbox does not know the deliverer", func(t *testing.T, h layout.Home) {
			edit(t, h, "inbox", "DELETE FROM x_fence WHERE resource LIKE 'deliver/%'")
			if err := os.Remove(h.RegistryDB()); err != nil {
				t.Fatal(err)
			}
		}, "", "", 0},
		{"modes", func(t *testing.T, h layout.Home) {
			chmod(t, filepath.Join(h.AgentDir("a1"), "memory"), 0o755)
			chmod(t, filepath.Join(h.AgentDir("a1"), "config.yaml"), 0o664)
		}, "", "config.yaml has mode 600 now", 0},
		{"a thread that is no database", func(t *testing.T, h layout.Home) { notADatabase(made.other)(t, h) }, "*/*/*/events.db.corrupt-*", "not all rows of", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, o := home(t)
			c.harm(t, h)
			if len(check(t, h, o)) == 0 {
				t.Fatal("the harm is not found")
			}
			actions, err := repair.Home(t.Context(), h, repair.Options{})
			if err != nil {
				t.Fatal(err)
			}
			said := ""
			for _, a := range actions {
				said += a.What + "\n"
			}
			if !strings.Contains(said, c.did) {
				t.Errorf("did %q, want %q", said, c.did)
			}
			if found := check(t, h, o); len(found) != c.remain {
				t.Errorf("still found:\n%s", list(found))
			}
			if c.aside != "" {
				if kept, _ := filepath.Glob(filepath.Join(h.AgentDir("a1"), c.aside)); len(kept) == 0 {
					t.Error("the damaged file was not kept")
				}
			}
			again, err := repair.Home(t.Context(), h, repair.Options{})
			if err != nil || len(again) > 0 {
				t.Errorf("a second repair does %v, %v", again, err)
			}
			goOn(t, h)
		})
	}
}

// goOn lets the services work in a repaired home: bob's next message is the only
// one that is answered.
func goOn(t *testing.T, h layout.Home) {
	t.Helper()
	before, _, err := invariant.Check(t.Context(), h, invariant.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := world.Start(t, world.Options{Home: h.Path()})
	// An inbox that was lost may not say that its agent was started.
	if _, err := w.Agents.StartAgent(t.Context(), &registryv1.StartAgentRequest{AgentId: "a1"}); err != nil {
		t.Logf("started already: %v", err)
	}
	replies := len(w.Events(t, "a1", made.thread, "source = 'self' AND type = 'message'"))
	others := len(w.Events(t, "a1", made.other, ""))
	w.Say(t, "a1", peer("bob"), "are you there?")
	if n := len(w.Events(t, "a1", made.thread, "source = 'self' AND type = 'message'")); n != replies+1 {
		t.Errorf("%d replies after %d and one message", n, replies)
	}
	if n := len(w.Events(t, "a1", made.other, "")); n != others {
		t.Errorf("a thread that nobody spoke in went from %d events to %d", others, n)
	}
	w.Stop()
	after, _, err := invariant.Check(t.Context(), h, invariant.Options{})
	if err != nil || len(after) > len(before) {
		t.Errorf("going on broke something: %v %s", err, list(after))
	}
}
