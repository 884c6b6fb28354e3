package fsck

import (
	"bytes"
	"database/sql"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/invariant"
)

// found is what must be reported of a damage; What is a part of what is said.
type found struct {
	invariant, thread string
	event             int64
	what, fix         string
}

const (
	repairs = "run 'agentctl fsck --repair --agent a1'"
	looks   = "keep a copy of agents/a1"
)

// damages are done to a1. want is every finding; left are the invariants that a
// repair cannot decide.
var damages = []struct {
	name string
	do   func(t *testing.T, h layout.Home)
	want []found
	left []string
}{
	{"a flipped bit in a row", func(t *testing.T, h layout.Home) {
		file(t, h, bob+"/events.db", func(b []byte) []byte {
			i := bytes.Index(b, []byte(`"one"`)) + 1
			b[i] ^= 1
			return b
		})
	}, []found{{"I17", bob, 2, "event 2 does not match its hash", repairs}, {"I9", bob, 2, "the key of another event", looks}, {"I18", bob, 2, "another event 2", repairs}}, nil},
	{"a missing event", func(t *testing.T, h layout.Home) { edit(t, h, bob, "DELETE FROM events WHERE id = 1") }, []found{
		{"I17", bob, 1, "event 1 is in the chain and gone", repairs},
		{"I2", bob, 1, "message event 1 of inbox event 1 is gone", repairs},
		{"I18", bob, 1, "events.jsonl has event 1, and the database has not", repairs},
	}, nil},
	{"a truncated database", func(t *testing.T, h layout.Home) {
		file(t, h, bob+"/events.db", func(b []byte) []byte { return b[:len(b)*2/3/4096*4096] })
	}, []found{{"I17", bob, 0, "the database is damaged", repairs}}, []string{"I3", "I3"}},
	{"a garbage header", func(t *testing.T, h layout.Home) {
		file(t, h, "inbox/events.db", func(b []byte) []byte { copy(b, bytes.Repeat([]byte("garbage!"), 16)); return b })
	}, []found{{"I17", "inbox", 0, "file is not a database", repairs}}, nil},
	{
		"the inbox lost its -wal", func(t *testing.T, h layout.Home) { loseWAL(t, h, "inbox") },
		[]found{{"I18", "inbox", 4, "its last commits are lost", repairs}},
		nil,
	},
	{
		"a thread lost its -wal", func(t *testing.T, h layout.Home) { loseWAL(t, h, bob) },
		[]found{{"I18", bob, 5, "its last commits are lost", "restore the agent from a backup"}},
		[]string{"I18"},
	},
	{"a row of the chain is gone", func(t *testing.T, h layout.Home) { edit(t, h, bob, "DELETE FROM x_chain WHERE event_id = 2") }, []found{
		{"I17", bob, 3, "the chain is broken before event 3", repairs}, {"I17", bob, 2, "event 2 was put between chained ones", repairs},
	}, nil},
	{
		"the last row of the chain is gone", func(t *testing.T, h layout.Home) { edit(t, h, bob, "DELETE FROM x_chain WHERE event_id = 4") },
		[]found{{"I17", bob, 4, "event 4 is ours and not in the chain", repairs}},
		nil,
	},
	{
		"acked past what is done", func(t *testing.T, h layout.Home) { edit(t, h, "inbox", "DELETE FROM x_fate WHERE inbox_id = 3") },
		[]found{{"I1", "inbox", 3, "event 3 is acknowledged and has no fate", looks}},
		[]string{"I1"},
	},
	{
		"acked past the end", func(t *testing.T, h layout.Home) {
			edit(t, h, "inbox", "UPDATE x_ack SET id = 9 WHERE consumer = 'inbox'")
		},
		[]found{{"I7", "inbox", 0, "inbox is acknowledged up to 9, and the newest event is 3", looks}},
		[]string{"I7"},
	},
	{"two fates of one message", func(t *testing.T, h layout.Home) {
		edit(t, h, "inbox", "INSERT INTO x_fate(inbox_id, key, thread, fate, at) SELECT 9, key, thread, fate, at FROM x_fate WHERE inbox_id = 3")
	}, []found{{"I3", "inbox", 9, "event 9 has the fate replied and is gone", repairs}}, []string{"I3"}},
	{"a reply without a turn", func(t *testing.T, h layout.Home) { edit(t, h, bob, "DELETE FROM x_turn WHERE inbox_id = 3") }, []found{
		{"I3", bob, 4, "reply event 4 answers no turn", looks}, {"I3", "inbox", 3, "event 3 is replied, and thread " + bob + " knows nothing of it", looks},
	}, []string{"I3", "I3"}},
	{
		"a turn done without its reply", func(t *testing.T, h layout.Home) { edit(t, h, bob, "DELETE FROM x_dedupe WHERE event_id = 4") },
		[]found{{"I3", bob, 3, "inbox event 3 is replied and has no reply event", looks}},
		[]string{"I3"},
	},
	{"a delivery without its event", func(t *testing.T, h layout.Home) {
		edit(t, h, bob, "INSERT INTO x_delivery(event_id, key, state, created_at, updated_at) VALUES(9, 'k', 'sent', 0, 0)")
	}, []found{{"I9", bob, 9, "event 9 has a delivery and is gone", repairs}}, []string{"I9"}},
	{"events.jsonl is missing", func(t *testing.T, h layout.Home) {
		file(t, h, bob+"/events.jsonl", func([]byte) []byte { return nil })
	}, []found{{"I18", bob, 1, "events.jsonl is missing", repairs}}, nil},
	{"events.jsonl is behind", func(t *testing.T, h layout.Home) {
		file(t, h, bob+"/events.jsonl", func(b []byte) []byte { return b[:bytes.LastIndexByte(b[:len(b)-1], '\n')+1] })
	}, []found{{"I18", bob, 4, "events.jsonl has no line for 1 of the events", repairs}}, nil},
	{"a line of events.jsonl differs", func(t *testing.T, h layout.Home) {
		file(t, h, bob+"/events.jsonl", func(b []byte) []byte { return bytes.Replace(b, []byte("three"), []byte("thief"), 1) })
	}, []found{{"I18", bob, 3, "events.jsonl has another event 3 than the database", repairs}}, nil},
	{"modes", func(t *testing.T, h layout.Home) {
		for name, mode := range map[string]os.FileMode{"config.yaml": 0o644, "memory": 0o755} {
			if err := os.Chmod(filepath.Join(h.AgentDir("a1"), name), mode); err != nil {
				t.Fatal(err)
			}
		}
	}, []found{{"I16", "", 0, "config.yaml has mode 644", "chmod 600"}, {"I16", "", 0, "memory has mode 755", "chmod 700"}}, nil},
	{"stray temporary files", func(t *testing.T, h layout.Home) {
		for _, name := range []string{".config.yaml12", "inbox/.events.db.7"} {
			file(t, h, name, func([]byte) []byte { return []byte("half") })
		}
	}, []found{{"I19", "", 0, ".config.yaml12 was left behind", "agentctl fsck --repair"}, {"I19", "", 0, ".events.db.7 was left behind", "agentctl fsck --repair"}}, nil},
	{
		"a fence below what was written", func(t *testing.T, h layout.Home) { edit(t, h, bob, "UPDATE x_fence SET token = 0") },
		[]found{{"I5", bob, 0, "the fence stands at 0", repairs}},
		nil,
	},
	{"the fence of the inbox below the lease that worked", func(t *testing.T, h layout.Home) { edit(t, h, "inbox", "UPDATE x_fence SET token = 0") }, []found{
		{"I6", bob, 0, "the fence of the inbox stands at 0", repairs}, {"I6", alice, 0, "the fence of the inbox stands at 0", repairs},
	}, nil},
	{"no inbox", func(t *testing.T, h layout.Home) {
		if err := os.RemoveAll(filepath.Join(h.AgentDir("a1"), "inbox")); err != nil {
			t.Fatal(err)
		}
	}, []found{{"I17", "inbox", 0, "the database is missing", "restore"}}, []string{"I17"}},
	{"the database of the inbox is gone", func(t *testing.T, h layout.Home) {
		file(t, h, "inbox/events.db", func([]byte) []byte { return nil })
	}, []found{{"I17", "inbox", 0, "the database is missing", repairs}}, nil},
	{"settings that cannot be read", func(t *testing.T, h layout.Home) {
		file(t, h, "config.yaml", func([]byte) []byte { return []byte("a: [b\n") })
	}, []found{{"config", "", 0, "the settings cannot be read: config.yaml:1:", "agentctl migrate a1"}}, []string{"config"}},
	{
		"no settings", func(t *testing.T, h layout.Home) { file(t, h, "config.yaml", func([]byte) []byte { return nil }) },
		[]found{{"config", "", 0, "there is no config.yaml", "agent_id: a1"}},
		[]string{"config"},
	},
}

// loseWAL makes a push whose commit is in the write-ahead log only, and loses it.
func loseWAL(t *testing.T, h layout.Home, thread string) {
	t.Helper()
	path := filepath.Join(h.AgentDir("a1"), thread, "events.db")
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(t.Context(), "INSERT INTO events(source, type, content) VALUES('external:telegram:main:dm:bob:bob', 'record', '{}')"); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path) // nothing of it is in here
	if err != nil {
		t.Fatal(err)
	}
	id := map[string]string{"inbox": "4", bob: "5"}[thread]
	file(t, h, thread+"/events.jsonl", func(b []byte) []byte {
		return append(b, `{"id":`+id+`,"created_at":"2026-01-01T00:00:00.000Z","source":"external:telegram:main:dm:bob:bob","type":"record","subtype":null,"content":"{}"}`+"\n"...)
	})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, before, 0o600); err != nil {
		t.Fatal(err)
	}
}

// I1-I19: each damage is reported as what it is, with exit code 1, and by itself
// fsck changes nothing. A repair does what is safe; afterwards nothing is found,
// or what remains is said.
func TestDamage(t *testing.T) {
	for _, c := range damages {
		t.Run(c.name, func(t *testing.T) {
			h := home(t)
			c.do(t, h)
			before := digest(t, h)
			got, code := runJSON(t, h)
			if code != 1 || got.OK || len(got.Actions) != 0 {
				t.Errorf("exit code %d, %+v", code, got)
			}
			if !maps.Equal(before, digest(t, h)) {
				t.Error("looking changed something")
			}
			for _, w := range c.want {
				if !slices.ContainsFunc(got.Findings, w.is) {
					t.Errorf("not found: %+v", w)
				}
			}
			for _, f := range got.Findings {
				if !slices.ContainsFunc(c.want, func(w found) bool { return w.is(f) }) {
					t.Errorf("also found: %+v", f)
				}
			}
			if text, code := run(t, h); code != 1 || !strings.Contains(text, c.want[0].what) || !strings.Contains(text, c.want[0].invariant) {
				t.Errorf("exit code %d: %s", code, text)
			}
			if other, code := runJSON(t, h, "--agent", "a2"); code != 0 || other.Agents != 1 || len(other.Findings) != 0 {
				t.Errorf("of the other agent: exit code %d, %+v", code, other)
			}

			fixed, code := runJSON(t, h, "--repair")
			var left []string
			for _, f := range fixed.Findings {
				left = append(left, f.Invariant)
				if f.Fix == "" {
					t.Errorf("no way out: %+v", f)
				}
			}
			if !slices.Equal(left, c.left) || (code == 1) != (len(left) > 0) {
				t.Errorf("after the repair, exit code %d: %+v", code, fixed.Findings)
			}
			if len(c.left) == 0 && len(fixed.Actions) == 0 {
				t.Error("the repair says nothing of what it did")
			}
			again, _ := runJSON(t, h, "--repair")
			if len(again.Actions) != 0 || len(again.Findings) != len(left) {
				t.Errorf("a second repair: %+v", again)
			}
		})
	}
}

func (w found) is(f invariant.Finding) bool {
	return f.Invariant == w.invariant && f.Agent == "a1" && f.Thread == w.thread && f.Event == w.event &&
		strings.Contains(f.What, w.what) && strings.Contains(f.Fix, w.fix)
}

// A home that was killed has its last commits in the logs beside the databases.
// They count, and looking leaves files and logs as they are.
func TestKilled(t *testing.T) {
	h := home(t)
	path := filepath.Join(h.AgentDir("a1"), "inbox", "events.db")
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(t.Context(), "DELETE FROM x_fate WHERE inbox_id = 3"); err != nil {
		t.Fatal(err)
	}
	g := layout.At(filepath.Join(t.TempDir(), "killed")) // as a kill leaves it
	if err := os.CopyFS(g.Path(), os.DirFS(h.Path())); err != nil {
		t.Fatal(err)
	}
	private(t, g)
	before := digest(t, g)
	got, code := runJSON(t, g)
	want := found{"I1", "inbox", 3, "event 3 is acknowledged and has no fate", looks}
	if code != 1 || len(got.Findings) != 1 || !want.is(got.Findings[0]) {
		t.Errorf("exit code %d, %+v", code, got)
	}
	after := digest(t, g)
	for name := range before {
		if !strings.HasSuffix(name, "-shm") && before[name] != after[name] {
			t.Errorf("looking changed %s", name)
		}
	}
}

// A good home has exit code 0 and no finding; an agent that is not there and a
// wrong command line are what they are everywhere.
func TestGood(t *testing.T) {
	h := home(t)
	if got, code := runJSON(t, h); code != 0 || !got.OK || got.Agents != 2 || len(got.Findings) != 0 {
		t.Errorf("exit code %d, %+v", code, got)
	}
	if got, code := runJSON(t, h, "--repair"); code != 0 || len(got.Actions) != 0 {
		t.Errorf("repair: exit code %d, %+v", code, got)
	}
	if text, code := run(t, h, "--agent", "a9"); code != 1 || !strings.Contains(text, "not found") {
		t.Errorf("exit code %d: %s", code, text)
	}
	if text, code := run(t, h, "--agent", "../a1"); code != 2 {
		t.Errorf("exit code %d: %s", code, text)
	}
}
