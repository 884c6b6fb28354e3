package invariant_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/invariant"
)

// A seed breaks one promise in a good home; exactly that must be found. The
// control that proves that each check bites, and bites nothing else.
type seed struct {
	invariant, name string
	thread          string // "inbox", "bob", "alice", ""
	sql             []string
	change          func(t *testing.T, h layout.Home, o *invariant.Options)
	want            string // part of what is said
	count           int    // findings; default 1
}

const bobTurn1 = "(SELECT key FROM x_turn WHERE inbox_id = 1)"

var seeds = []seed{
	{
		invariant: "I1", name: "an acked event loses its fate", thread: "inbox", sql: []string{"DELETE FROM x_fate WHERE inbox_id = 2"}, want: "event 2 is acknowledged and has no fate",
		change: func(_ *testing.T, _ layout.Home, o *invariant.Options) { o.Drained = false },
	},
	{invariant: "I2", name: "the message event is not accounted", thread: "bob", sql: []string{"DELETE FROM x_dedupe WHERE key = " + bobTurn1 + " || ':in'"}, want: "inbox event 1 has no message event"},
	{invariant: "I2", name: "two messages of one inbox event", thread: "bob", sql: []string{
		"INSERT INTO events(source, type, content) SELECT source, type, content FROM events WHERE id = 1",
	}, want: "repeats message event 1"},
	{invariant: "I3", name: "a fate that is none", thread: "alice", sql: []string{"UPDATE x_turn SET fate = 'silent'", "DELETE FROM x_dedupe WHERE key LIKE '%:out'"}, want: "is replied in the inbox and done silent"},
	{invariant: "I3", name: "no reply", thread: "bob", sql: []string{"DELETE FROM x_dedupe WHERE key = " + bobTurn1 + " || ':out'"}, want: "replied and has no reply event"},
	{invariant: "I3", name: "two replies", thread: "bob", sql: []string{"UPDATE x_turn SET reply_id = 99 WHERE inbox_id = 3"}, want: "two replies"},
	{invariant: "I3", name: "merged into nothing", thread: "bob", sql: []string{"UPDATE x_turn SET leader = 'nobody' WHERE inbox_id = 3"}, want: `joined the turn "nobody", which cannot lead it`},
	{invariant: "I3", name: "dead and not a dead letter", thread: "inbox", sql: []string{
		"INSERT INTO events(id, source, type, content) VALUES(99, 's', 'message', '{}')",
		"INSERT INTO x_fate VALUES(99, 'other', '', 'dead', 0)",
	}, want: "another event under its id", count: 2},
	{invariant: "I3", name: "an acknowledged push is lost", change: func(_ *testing.T, _ layout.Home, o *invariant.Options) {
		o.History.Pushes = append(o.History.Pushes, invariant.Push{Agent: "a1", IDs: []int64{77}})
	}, want: "event 77 was acknowledged and is lost"},
	{invariant: "I3", name: "a key accepted twice", change: func(_ *testing.T, _ layout.Home, o *invariant.Options) {
		o.History.Pushes = append(o.History.Pushes, invariant.Push{Agent: "a1", Key: "key hello", IDs: []int64{2}})
	}, want: `key "key hello" was accepted as events [1] and again as [2]`},
	{
		invariant: "I4", name: "an older token later", thread: "bob", sql: []string{"UPDATE x_dedupe SET token = 5 WHERE event_id = 1", "UPDATE x_fence SET token = 5 WHERE resource LIKE 'agent/%'"},
		change: raiseLedger, want: "after event 1 under token 5",
	},
	{invariant: "I4", name: "an older token accepted", change: func(_ *testing.T, _ layout.Home, o *invariant.Options) {
		o.History.Commits = []invariant.Commit{{Agent: "a1", Thread: "inbox", Resource: "agent/a1", Token: 3}, {Agent: "a1", Thread: "inbox", Resource: "agent/a1", Token: 2}}
	}, want: "accepted with an older token"},
	{invariant: "I5", name: "written past the fence", thread: "bob", sql: []string{"UPDATE x_dedupe SET token = 9 WHERE event_id = (SELECT MAX(event_id) FROM x_dedupe)"}, want: "the fence stands at"},
	{invariant: "I6", name: "the ledger forgets a token", thread: "bob", sql: []string{"UPDATE x_fence SET token = 9 WHERE resource LIKE 'agent/%'"}, want: "token 9 of agent/a1 was accepted here"},
	{invariant: "I6", name: "two holders of a token", change: func(_ *testing.T, _ layout.Home, o *invariant.Options) {
		o.History.Grants = []invariant.Grant{{Resource: "agent/a1", Holder: "r1", Token: 1}, {Resource: "agent/a1", Holder: "r2", Token: 1}}
	}, want: "granted to r1 and to r2"},
	{invariant: "I6", name: "a ledger that is none", change: func(t *testing.T, h layout.Home, _ *invariant.Options) {
		write(t, h.RegistryDB(), strings.Repeat("not a database ", 400))
	}, want: "ledger cannot be read"},
	{invariant: "I7", name: "acked past the end", thread: "inbox", sql: []string{"UPDATE x_ack SET id = 50 WHERE consumer = 'inbox'"}, want: "acknowledged up to 50, and the newest event is"},
	{invariant: "I7", name: "the ack falls", change: func(_ *testing.T, _ layout.Home, o *invariant.Options) {
		o.Acks = map[string]int64{"a1/inbox/inbox": 6}
	}, want: "up to 6 before, and up to 5 now"},
	{invariant: "I8", name: "a result that nothing tells", thread: "bob", sql: []string{"DELETE FROM x_dedupe WHERE key LIKE '%tool%'"}, want: "no event tells its result"},
	{invariant: "I8", name: "done and never ran", change: func(_ *testing.T, _ layout.Home, o *invariant.Options) { o.Runs = []string{} }, want: "never ran"},
	{
		invariant: "I9", name: "another event's delivery key", thread: "bob", sql: []string{"UPDATE x_delivery SET key = 'k' || key, channel = 'console' WHERE event_id = 2"},
		change: func(_ *testing.T, _ layout.Home, o *invariant.Options) { o.Sink = nil }, want: "key of another event",
	},
	{invariant: "I9", name: "sent and lost", change: func(_ *testing.T, _ layout.Home, o *invariant.Options) { o.Sink = o.Sink[1:] }, want: "has not arrived"},
	{invariant: "I9", name: "arrived from nowhere", change: func(_ *testing.T, _ layout.Home, o *invariant.Options) {
		o.Sink = append(o.Sink, invariant.Arrival{Key: "zz", Agent: "a1", EventID: 999})
	}, want: "key zz, which no delivery has"},
	{invariant: "I9", name: "sent to an agent that has it not", thread: "a2", sql: []string{"DELETE FROM x_dedupe WHERE key LIKE 'push:%'"}, want: "whose inbox has never had it"},
	{invariant: "I9", name: "left behind", thread: "bob", sql: []string{"UPDATE x_delivery SET state = 'pending' WHERE event_id = 2"}, want: "pending and nothing is left to do"},
	{invariant: "I10", name: "a repeat without the flag", change: func(_ *testing.T, _ layout.Home, o *invariant.Options) { o.Sink = append(o.Sink, o.Sink[0]) }, want: "again without the flag"},
	{invariant: "I11", name: "replies out of order", change: func(_ *testing.T, _ layout.Home, o *invariant.Options) {
		o.Sink[0], o.Sink[1] = o.Sink[1], o.Sink[0]
	}, want: "arrived after event"},
	{invariant: "I11", name: "messages out of order", thread: "bob", sql: []string{
		"UPDATE x_turn SET inbound_id = CASE inbox_id WHEN 1 THEN 6 ELSE 1 END WHERE inbox_id IN (1, 3) AND (SELECT COUNT(*) FROM events WHERE id = 6 AND source <> 'self') = 1",
		"UPDATE x_dedupe SET event_id = CASE event_id WHEN 1 THEN 6 ELSE 1 END WHERE key LIKE '%:in' AND event_id IN (1, 6)",
	}, want: "stands before one that is older", count: 2},
	{
		invariant: "I12", name: "claimed and left", thread: "bob", sql: []string{"UPDATE x_turn SET state = 'claimed', fate = '' WHERE inbox_id = 3"},
		change: func(t *testing.T, h layout.Home, o *invariant.Options) {
			o.Live, o.Now, o.Drained = true, time.Now().Add(time.Hour), false
			edit(t, h, "inbox", "DELETE FROM x_fate WHERE inbox_id = 3", "UPDATE x_ack SET id = 2 WHERE consumer = 'inbox'")
			edit(t, h, made.thread, "DELETE FROM x_dedupe WHERE key LIKE '%:3:%:out'", "UPDATE x_turn SET reply_id = 0 WHERE inbox_id = 3")
		}, want: "nobody holds the lease",
	},
	{invariant: "I14", name: "a text of another thread", change: func(_ *testing.T, _ layout.Home, o *invariant.Options) {
		o.Canaries = []invariant.Canary{{Text: "once more", Agent: "a1", Thread: "threads/peers/nobody"}}
	}, want: "holds a text of a1 threads/peers/nobody", count: 3}, // the message, its answer, and the journal
	{invariant: "I14", name: "another peer in a prompt", change: func(_ *testing.T, _ layout.Home, o *invariant.Options) {
		o.Canaries = []invariant.Canary{{Text: "mango", Agent: "a1", Peer: "bob"}}
		o.Prompts = []invariant.Prompt{{Agent: "a1", Thread: "t", Peer: "bob", Text: "I like mango"}, {Agent: "a1", Thread: "t", Peer: "eve", Text: "he likes mango"}}
	}, want: "a prompt holds a text of a1"},
	{invariant: "I15", name: "a secret in a log", change: func(t *testing.T, h layout.Home, o *invariant.Options) {
		o.Secrets = []string{`hunter"2"`, "a secret that no file holds"}
		write(t, filepath.Join(h.AgentDir("a1"), "logs", "x.log"), strings.Repeat("x", 1<<18)+`{"key":"hunter\"2\""}`)
	}, want: "x.log holds a secret"},
	{invariant: "I15", name: "a secret in the metrics", change: func(_ *testing.T, _ layout.Home, o *invariant.Options) {
		o.Secrets, o.Texts = []string{"hunter2"}, map[string]string{"metrics": "a{key=\"hunter2\"} 1", "errors": "none"}
	}, want: "metrics holds a secret"},
	{invariant: "I16", name: "a file for everybody", change: func(t *testing.T, h layout.Home, _ *invariant.Options) {
		chmod(t, filepath.Join(h.AgentDir("a1"), "IDENTITY.md"), 0o644)
	}, want: "IDENTITY.md has mode 644"},
	{invariant: "I16", name: "a directory for the group", change: func(t *testing.T, h layout.Home, _ *invariant.Options) {
		chmod(t, filepath.Join(h.AgentDir("a1"), "memory"), 0o750)
	}, want: "memory has mode 750"},
	{invariant: "I17", name: "an event is changed", thread: "bob", sql: []string{"UPDATE x_chain SET sha256 = zeroblob(32) WHERE event_id = 2"}, want: "event 2 does not match its hash", count: 2},
	{
		invariant: "I17", name: "a blob in place of a text", thread: "inbox", sql: []string{"UPDATE events SET subtype = CAST('x' AS BLOB) WHERE id = 5"},
		change: func(_ *testing.T, _ layout.Home, o *invariant.Options) {}, want: "subtype of event 5 holds no text", count: -1,
	},
	{invariant: "I17", name: "a file that is no database", change: func(t *testing.T, h layout.Home, _ *invariant.Options) {
		write(t, filepath.Join(h.AgentDir("a2"), "inbox", "events.db"), strings.Repeat("not a database ", 400))
	}, want: "the database is damaged"},
	{invariant: "I18", name: "no index", thread: "bob", sql: []string{"DROP INDEX idx_events_type"}, want: "has no idx_events_type"},
	{invariant: "I18", name: "the text beside says something else", change: func(t *testing.T, h layout.Home, _ *invariant.Options) {
		path := filepath.Join(h.AgentDir("a1"), "inbox", "events.jsonl")
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		write(t, path, strings.Replace(string(b), "hello", "howdy", 1))
	}, want: "another event 1 than the database"},
}

func raiseLedger(t *testing.T, h layout.Home, _ *invariant.Options) {
	editFile(t, h.RegistryDB(), "UPDATE lease SET token = 20")
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func TestEachSeedIsFoundAndNothingElse(t *testing.T) {
	for _, s := range seeds {
		t.Run(s.invariant+" "+s.name, func(t *testing.T) {
			h, o := home(t)
			switch s.thread {
			case "bob":
				edit(t, h, made.thread, s.sql...)
			case "alice":
				edit(t, h, made.other, s.sql...)
			case "a2":
				editFile(t, filepath.Join(h.AgentDir("a2"), "inbox", "events.db"), s.sql...)
			case "inbox":
				edit(t, h, "inbox", s.sql...)
			}
			if s.change != nil {
				s.change(t, h, &o)
			}
			found := check(t, h, o)
			found = slices.DeleteFunc(found, func(f invariant.Finding) bool { return f.Severity == invariant.Warning }) // of the hand in the database
			said := false
			for _, f := range found {
				said = said || strings.Contains(f.What, s.want)
				if f.Invariant != s.invariant && s.count >= 0 {
					t.Errorf("also found: %v", f)
				}
				if f.Fix == "" || f.Severity == "" {
					t.Errorf("no way out: %+v", f)
				}
			}
			if want := max(s.count, 1); !said || (s.count >= 0 && len(found) != want) {
				t.Errorf("want %d findings, one with %q; got %s", want, s.want, list(found))
			}
		})
	}
}

func list(f []invariant.Finding) string {
	return strings.Trim(strings.Join(strings.Split(fmt.Sprint(f), " I"), "\n I"), "[]")
}
