package invariant_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/store/postgres/pgtest"
	"github.com/theclaw/agents/internal/testing/world"
)

// damages break one promise each in a good database; exactly that must be found.
var damages = []struct {
	invariant, name string
	sql             []string
	want            string
	count           int // findings; default 1
}{
	{invariant: "I1", name: "an acked event loses its fate", sql: []string{"DELETE FROM fate WHERE agent_id = 'a1' AND inbox_id = 2"}, want: "event 2 is acknowledged and has no fate"},
	{invariant: "I2", name: "the message event is not accounted", sql: []string{"DELETE FROM dedupe WHERE thread_id = $1 AND event_id = 1"}, want: "inbox event 1 has no message event"},
	{invariant: "I3", name: "no reply", sql: []string{"DELETE FROM dedupe WHERE thread_id = $1 AND key LIKE '%:out' AND event_id = 2"}, want: "replied and has no reply event"},
	{invariant: "I3", name: "two replies", sql: []string{"UPDATE turn SET reply_id = 99 WHERE thread_id = $1 AND inbox_id = 3"}, want: "two replies"},
	{invariant: "I4", name: "an older token later", sql: []string{
		"UPDATE dedupe SET token = 9 WHERE thread_id = $1 AND event_id = 1", "UPDATE fence SET token = 9 WHERE agent_id = 'a1'", "UPDATE lease SET token = 9 WHERE agent_id = 'a1'",
	}, want: "after event 1 under token 9"},
	{invariant: "I5", name: "written past the fence", sql: []string{"UPDATE dedupe SET token = 9 WHERE thread_id = $1 AND event_id = (SELECT MAX(event_id) FROM dedupe WHERE thread_id = $1)"}, want: "the fence stands at"},
	{invariant: "I6", name: "the lease forgets a token", sql: []string{"UPDATE fence SET token = 9 WHERE thread_id = $1 AND resource LIKE 'agent/%'"}, want: "token 9 of agent/a1 was accepted here"},
	{invariant: "I7", name: "acked past the end", sql: []string{"UPDATE thread SET acked = 50 WHERE thread_id = $1"}, want: "acknowledged up to 50, and the newest event is"},
	{invariant: "I8", name: "a result that nothing tells", sql: []string{"DELETE FROM dedupe WHERE key LIKE '%tool%'"}, want: "no event tells its result"},
	{invariant: "I9", name: "said and not to be delivered", sql: []string{"DELETE FROM delivery WHERE thread_id = $1 AND event_id = 2"}, want: "event 2 was said and has no delivery", count: 3},
	{invariant: "I9", name: "sent to an agent that never had it", sql: []string{"DELETE FROM dedupe WHERE agent_id = 'a2' AND key LIKE 'push:%'"}, want: "whose inbox has never had it"},
	{invariant: "I11", name: "out of order", sql: []string{"UPDATE turn SET inbox_id = 12 - inbox_id WHERE thread_id = $1 AND inbox_id IN (1, 3)"}, want: "stands before one that is older", count: 4},
	{invariant: "I17", name: "another content", sql: []string{"UPDATE event SET content = replace(content, 'e', 'E') WHERE thread_id = $1 AND id = 5"}, want: "event 5 does not match its hash", count: 2},
	{invariant: "I17", name: "the last events are gone", sql: []string{"DELETE FROM event WHERE agent_id = 'a2' AND id = (SELECT MAX(id) FROM event WHERE agent_id = 'a2')"}, want: "the chain ends with event 0, and the thread with another one"},
	{invariant: "I17", name: "a text that no registry writes", sql: []string{"UPDATE fate SET thread = E'\\x01zz' WHERE agent_id = 'a1' AND inbox_id = 2"}, want: "a text that no registry writes"},
	{invariant: "I20", name: "work that nobody finds", sql: []string{"UPDATE thread SET desired = 'started' WHERE agent_id = 'a2' AND thread_id = 'inbox'"}, want: "the agent has work: true"},
	{invariant: "I20", name: "found without work", sql: []string{"INSERT INTO due(agent_id) VALUES('a1')"}, want: "the agent has work: false"},
	{invariant: "I21", name: "received by two agents", sql: []string{
		"INSERT INTO origin(agent_id, inbox_id, thread, session_key, account) VALUES('a2', 1, 'threads/peers/tg-bob', 'agent:a2:telegram:tg:dm:bob', 'tg')",
		"INSERT INTO dedupe(agent_id, thread_id, key, event_id, token) VALUES('a2', 'inbox', 'push:key hello', 1, 0)",
	}, want: `were both received under the key "key hello"`},
	{invariant: "I21", name: "received by a conversation", sql: []string{
		"INSERT INTO dedupe(agent_id, thread_id, key, event_id, token) VALUES('a1', $1, 'push:key hello', 1, 0)",
	}, want: `were both received under the key "key hello"`},
	{invariant: "I23", name: "another key", sql: []string{
		"UPDATE origin SET session_key = 'agent:a1:telegram:tg:dm:eve' WHERE agent_id = 'a1' AND inbox_id = 2",
	}, want: "of threads/peers/tg-eve, and the conversation threads/peers/tg-bob"},
	{invariant: "I23", name: "another conversation", sql: []string{
		"UPDATE origin SET session_key = 'agent:a1:main', thread = 'threads/main' WHERE agent_id = 'a1' AND inbox_id = 2",
	}, want: "its conversation is threads/main"},
	{invariant: "I24", name: "an older epoch", sql: []string{"UPDATE session SET epoch_from = 1 WHERE thread_id = $1"}, want: "the session begins with event 1"},
	{invariant: "I24", name: "another id", sql: []string{"UPDATE session SET epoch = 'E9' WHERE thread_id = $1"}, want: "the session has the id E9, and the newest epoch the id E2"},
	{invariant: "I24", name: "no session", sql: []string{"DELETE FROM session WHERE thread_id = $1"}, want: "and the conversation has no session"},
	{invariant: "I24", name: "an epoch twice", sql: []string{
		"UPDATE event SET content = replace(content, 'E2', 'E1') WHERE thread_id = $1 AND subtype = 'session'", "UPDATE session SET epoch = 'E1' WHERE thread_id = $1",
	}, want: "begins the epoch E1, which began in threads/peers/tg-bob before", count: 2}, // the chain finds the changed content as well
	{invariant: "config", name: "settings that are none", sql: []string{"UPDATE agent_file SET content = 'no: [' WHERE agent_id = 'a1' AND name = 'config.yaml'"}, want: "the settings cannot be read"},
}

// The checks hold where several registries share PostgreSQL: nothing is found in a
// database that they have worked in, and each damage is found and named.
func TestSharedDatabase(t *testing.T) {
	var told invariant.Options
	var bob, homes string
	c := pgtest.Start(t, "fsync = off")
	c.Template(t, func(url string) {
		homes = filepath.Join(t.TempDir(), "h")
		told, bob, _ = live(t, world.Options{Home: homes, DSN: url, Registries: 2})
		shareSessions(t, url, bob)
	})
	told.Drained = false // a2 is stopped, and has the answer in its inbox
	check := func(t *testing.T, url string) ([]invariant.Finding, invariant.Stats) {
		o := told
		o.DSN, o.Live = url, true
		found, stats, err := invariant.Check(t.Context(), layout.At(homes), o)
		if err != nil {
			t.Fatal(err)
		}
		return found, stats
	}
	found, stats := check(t, c.Database(t))
	for _, f := range found {
		t.Error(f)
	}
	if stats.Agents != 2 || stats.Databases < 5 || stats.Turns < 5 || stats.Deliveries < 5 || stats.Chained != stats.Events || stats.Events < 10 {
		t.Errorf("looked at too little: %+v", stats)
	}
	for _, d := range damages {
		t.Run(d.invariant+" "+d.name, func(t *testing.T) {
			url := c.Database(t)
			change(t, url, bob, d.sql...)
			found, _ := check(t, url)
			if len(found) != max(d.count, 1) {
				t.Errorf("%d findings", len(found))
			}
			named := false
			for _, f := range found {
				named = named || f.Invariant == d.invariant && strings.Contains(f.What, d.want)
			}
			if !named || t.Failed() {
				t.Errorf("want %s %q, found %v", d.invariant, d.want, found)
			}
		})
	}
}

// change edits a database with plain SQL; $1 is a thread.
func change(t *testing.T, url, thread string, statements ...string) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	if _, err := c.Exec(t.Context(), "SET session_replication_role = replica"); err != nil { // references are not looked at
		t.Fatal(err)
	}
	for _, s := range statements {
		var args []any
		if strings.Contains(s, "$1") {
			args = []any{thread}
		}
		tag, err := c.Exec(t.Context(), s, args...)
		if err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		if tag.RowsAffected() == 0 {
			t.Fatalf("%s: changed nothing", s)
		}
	}
}

// shareSessions gives bob's messages origins, and his conversation two epochs and a session.
func shareSessions(t *testing.T, url, bob string) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	exec := func(statement string, args ...any) {
		t.Helper()
		if _, err := c.Exec(t.Context(), statement, args...); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	exec(`INSERT INTO origin(agent_id, inbox_id, thread, session_key, account) SELECT 'a1', id, $1, $2, 'tg' FROM event
		WHERE agent_id = 'a1' AND thread_id = 'inbox' AND id <= 3 ON CONFLICT (agent_id, inbox_id) DO UPDATE SET account = 'tg'`, bob, bobKey)
	e := epochEvent("")
	for i, epoch := range []string{"E1", "E2"} {
		var chain []byte
		if err := c.QueryRow(t.Context(), "SELECT head + 1, chain FROM thread WHERE agent_id = 'a1' AND thread_id = $1", bob).Scan(&e.ID, &chain); err != nil {
			t.Fatal(err)
		}
		e.Content = epochEvent(epoch).Content
		sum := e.Hash(chain)
		exec("INSERT INTO event(agent_id, thread_id, id, created_at, source, type, subtype, content, prev, sha256) VALUES('a1',$1,$2,$3,$4,$5,$6,$7,$8,$9)",
			bob, e.ID, e.CreatedAt, e.Source, e.Type, e.Subtype, e.Content, chain, sum[:])
		exec("UPDATE thread SET head = $2, chain = $3 WHERE agent_id = 'a1' AND thread_id = $1", bob, e.ID, sum[:])
		exec("INSERT INTO dedupe(agent_id, thread_id, key, event_id, token) VALUES('a1', $1, $2, $3, 0)", bob, []string{"first:session", "second:session"}[i], e.ID)
	}
	exec(`INSERT INTO session(agent_id, thread_id, key, key_folded, epoch, epoch_from) VALUES('a1', $1, $2, $2, 'E2', $3)
		ON CONFLICT (agent_id, thread_id) DO UPDATE SET epoch = excluded.epoch, epoch_from = excluded.epoch_from`, bob, bobKey, e.ID)
}
