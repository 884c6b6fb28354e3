package invariant_test

import (
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/invariant"
	"github.com/theclaw/agents/internal/invariant/repair"
	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/schema"
	"github.com/theclaw/agents/internal/thread"
)

const (
	bobKey   = "agent:a1:telegram:tg:dm:bob"
	aliceKey = "agent:a1:telegram:tg:dm:alice"
)

// sessionHome is a home in which bob has begun a second epoch and alice a first one: messages
// have origins, conversations have sessions, and the inbox lists them.
func sessionHome(t *testing.T) (layout.Home, invariant.Options) {
	t.Helper()
	h, o := home(t)
	alter(t, h, "inbox", func(tx *sql.Tx) error {
		return statements(tx, append(slices.Clone(schema.Origins),
			"INSERT OR REPLACE INTO x_origin(inbox_id, thread, session_key, account, provider_id) SELECT id, '"+made.thread+"', '"+bobKey+"', 'tg', id FROM events WHERE id <= 3",
			"INSERT OR REPLACE INTO x_origin(inbox_id, thread, session_key, account, provider_id) VALUES(4, '"+made.other+"', '"+aliceKey+"', 'tg', '4')",
			"INSERT OR REPLACE INTO x_sessions(thread, key, key_folded, epoch, title, last_at, messages) VALUES('"+made.thread+"', '"+bobKey+"', '"+bobKey+"', 'E2', 'about tools', 5, 3), ('"+made.other+"', '"+aliceKey+"', '"+aliceKey+"', 'E0', '', 6, 1)",
			fmt.Sprint("UPDATE x_meta SET format = ", schema.FormatSessions),
		))
	})
	alter(t, h, made.thread, func(tx *sql.Tx) error {
		begin(t, tx, "first", "E1")
		id := begin(t, tx, "second", "E2")
		if id == 0 {
			return errors.New("no epoch")
		}
		return statements(tx, append(slices.Clone(schema.Session), fmt.Sprintf("INSERT OR REPLACE INTO x_session(one, key, epoch, epoch_from, title) VALUES(1, '%s', 'E2', %d, 'about tools')", bobKey, id)))
	})
	alter(t, h, made.other, func(tx *sql.Tx) error {
		return statements(tx, append(slices.Clone(schema.Session), "INSERT OR REPLACE INTO x_session(one, key, epoch) VALUES(1, '"+aliceKey+"', 'E0')"))
	})
	return h, o
}

// epochEvent is the record of an epoch that begins, without its id.
func epochEvent(epoch string) thread.Event {
	subtype := thread.SubtypeSession
	return thread.Event{
		CreatedAt: "2026-01-02T03:04:05.000Z", Source: thread.SourceSelf, Type: thread.TypeRecord, Subtype: &subtype,
		Content: `{"session_id":"` + epoch + `","previous":"","reason":"new","by":""}`,
	}
}

// begin records an epoch as a turn does, with its link in the chain, and answers the event.
func begin(t *testing.T, tx *sql.Tx, turn, epoch string) int64 {
	t.Helper()
	e := epochEvent(epoch)
	r, err := tx.ExecContext(t.Context(), "INSERT INTO events(created_at, source, type, subtype, content) VALUES(?,?,?,?,?)", e.CreatedAt, e.Source, e.Type, e.Subtype, e.Content)
	if err == nil {
		e.ID, err = r.LastInsertId()
	}
	var prev []byte
	if err == nil {
		err = tx.QueryRowContext(t.Context(), "SELECT sha256 FROM x_chain ORDER BY event_id DESC LIMIT 1").Scan(&prev)
	}
	sum := e.Hash(prev)
	if err == nil {
		_, err = tx.ExecContext(t.Context(), "INSERT INTO x_chain(event_id, prev, sha256) VALUES(?,?,?)", e.ID, prev, sum[:])
	}
	if err == nil {
		_, err = tx.ExecContext(t.Context(), "INSERT INTO x_dedupe(key, event_id, token) VALUES(?,?,0)", turn+":session", e.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	return e.ID
}

// alter changes a database of a1 in one transaction.
func alter(t *testing.T, h layout.Home, thread string, fn func(*sql.Tx) error) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(h.AgentDir("a1"), thread, "events.db"))
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	tx, err := db.BeginTx(t.Context(), nil)
	if err == nil {
		err = fn(tx)
	}
	if err == nil {
		err = tx.Commit()
	}
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

func statements(tx *sql.Tx, list []string) error {
	for _, s := range list {
		if _, err := tx.Exec(s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// violations are the findings that break a promise; the lines that begin wrote have no copy in
// events.jsonl, which is a warning.
func violations(found []invariant.Finding) (out []invariant.Finding) {
	for _, f := range found {
		if f.Severity == invariant.Violation {
			out = append(out, f)
		}
	}
	return out
}

// I21, I23 and I24: a home with origins, sessions and epochs has no finding, and each damage is
// found, under its name and no other.
func TestSessions(t *testing.T) {
	made.once.Do(func() { makeHome(t) })
	inbox := func(s ...string) func(*testing.T, layout.Home) {
		return func(t *testing.T, h layout.Home) { edit(t, h, "inbox", s...) }
	}
	bob := func(s ...string) func(*testing.T, layout.Home) {
		return func(t *testing.T, h layout.Home) { edit(t, h, made.thread, s...) }
	}
	for _, c := range []struct {
		invariant, name string
		harm            func(t *testing.T, h layout.Home)
		want            string // empty: nothing is found
	}{
		{"", "nothing", func(*testing.T, layout.Home) {}, ""},
		{"I21", "received by two agents", func(t *testing.T, h layout.Home) {
			path := filepath.Join(h.AgentDir("a2"), "inbox", "events.db")
			editFile(t, path, schema.Origins[0], "INSERT INTO x_origin(inbox_id, thread, session_key, account) VALUES(1, 'threads/peers/tg-bob', 'agent:a2:telegram:tg:dm:bob', 'tg')",
				"INSERT INTO x_dedupe(key, event_id, token) VALUES('push:key hello', 1, 0)")
		}, `were both received under the key "key hello"`},
		{"", "pushed to two agents, and received by no account", func(t *testing.T, h layout.Home) {
			editFile(t, filepath.Join(h.AgentDir("a2"), "inbox", "events.db"), "INSERT INTO x_dedupe(key, event_id, token) VALUES('push:key hello', 1, 0)")
		}, ""},
		{"I21", "received by an inbox and a conversation", bob("INSERT INTO x_dedupe(key, event_id, token) VALUES('push:key once more', 1, 0)"), "event 1 and event 3 of the inbox of a1 were both received"},
		{"I23", "another conversation", inbox("UPDATE x_origin SET thread = 'threads/peers/tg-eve' WHERE inbox_id = 4", "UPDATE x_origin SET session_key = 'agent:a1:telegram:tg:dm:eve' WHERE inbox_id = 4"), "inbox event 4 was worked on here, and its conversation is threads/peers/tg-eve"},
		{"I23", "another key", inbox("UPDATE x_origin SET session_key = 'agent:a1:telegram:tg:dm:eve' WHERE inbox_id = 2"), "of threads/peers/tg-eve, and the conversation " + made.thread},
		{"I23", "another agent", inbox("UPDATE x_origin SET session_key = 'agent:a2:telegram:tg:dm:bob' WHERE inbox_id = 2"), "of another agent"},
		{"I23", "no key", inbox("UPDATE x_origin SET session_key = 'agent:a1:%41' WHERE inbox_id = 2"), "which is none"},
		{"I24", "an epoch twice", bob("UPDATE x_session SET epoch = 'E1'", `UPDATE events SET content = replace(content, 'E2', 'E1') WHERE type = 'record' AND subtype = 'session'`), "begins the epoch E1, which began in " + made.thread + " before"},
		{"I24", "an epoch without an id", bob(`UPDATE events SET content = '{}' WHERE content LIKE '%"E2"%'`), "begins an epoch without an id"},
		{"I24", "an older epoch", bob("UPDATE x_session SET epoch_from = (SELECT MIN(event_id) FROM x_dedupe WHERE key LIKE '%:session')"), "and the newest epoch with event"},
		{"I24", "the whole conversation", bob("UPDATE x_session SET epoch_from = 0"), "the session begins with event 0"},
		{"I24", "an epoch that did not begin", func(t *testing.T, h layout.Home) { edit(t, h, made.other, "UPDATE x_session SET epoch_from = 2") }, "the session begins with event 2, and the newest epoch with event 0"},
		{"I24", "another id", bob("UPDATE x_session SET epoch = 'E9'"), "the session has the id E9, and the newest epoch the id E2"},
		{"I24", "no session", bob("DELETE FROM x_session"), "and the conversation has no session"},
		{"", "a record of another program", bob("DELETE FROM x_dedupe WHERE key = 'second:session'", "UPDATE x_session SET epoch = 'E1', epoch_from = (SELECT event_id FROM x_dedupe WHERE key = 'first:session')"), ""},
	} {
		t.Run(c.invariant+" "+c.name, func(t *testing.T) {
			h, o := sessionHome(t)
			c.harm(t, h)
			found := violations(check(t, h, o))
			found = slices.DeleteFunc(found, func(f invariant.Finding) bool { // a content that was changed
				return f.Invariant == "I17" && strings.Contains(f.What, "does not match its hash")
			})
			named := c.want == ""
			for _, f := range found {
				named = named || strings.Contains(f.What, c.want)
				if f.Invariant != c.invariant || f.Fix == "" {
					t.Errorf("also found: %+v", f)
				}
			}
			if !named || c.want == "" && len(found) > 0 {
				t.Errorf("want %q, found %s", c.want, list(found))
			}
		})
	}
}

// fsck --repair makes the list of sessions say what the conversations say; what it says
// already stays as it is.
func TestRepairOfTheListOfSessions(t *testing.T) {
	for _, c := range []struct {
		name string
		harm func(t *testing.T, h layout.Home)
		want int // entries that are written
	}{
		{"an entry is gone", func(t *testing.T, h layout.Home) {
			edit(t, h, "inbox", "DELETE FROM x_sessions WHERE thread = '"+made.thread+"'")
		}, 1},
		{"the list is gone", func(t *testing.T, h layout.Home) { edit(t, h, "inbox", "DROP TABLE x_sessions") }, 2},
		{"other entries", func(t *testing.T, h layout.Home) {
			edit(t, h, "inbox", "UPDATE x_sessions SET epoch = 'E1' WHERE thread = '"+made.thread+"'", "UPDATE x_sessions SET archived = 1 WHERE thread = '"+made.other+"'")
		}, 2},
		{"another title", func(t *testing.T, h layout.Home) {
			edit(t, h, made.thread, "UPDATE x_session SET title = 'news'")
		}, 1},
		{"another key", func(t *testing.T, h layout.Home) {
			edit(t, h, "inbox", "UPDATE x_sessions SET key = 'agent:a1:main', key_folded = 'agent:a1:main' WHERE thread = '"+made.other+"'")
		}, 1},
		{"a session is gone", func(t *testing.T, h layout.Home) { edit(t, h, made.thread, "DELETE FROM x_session") }, 0},
		{"a conversation without a session, and a list without it", func(t *testing.T, h layout.Home) {
			edit(t, h, made.thread, "DELETE FROM x_session")
			edit(t, h, "inbox", "DELETE FROM x_sessions WHERE thread = '"+made.thread+"'")
		}, 1},
		{"an inbox that is no database", func(t *testing.T, h layout.Home) {
			write(t, filepath.Join(h.AgentDir("a1"), "inbox", "events.db"), strings.Repeat("not a database ", 4000))
		}, 2},
		{"a flipped bit in an inbox", func(t *testing.T, h layout.Home) {
			edit(t, h, "inbox", "UPDATE events SET content = replace(content, 'hello', 'hellp') WHERE id = 1")
		}, 0},
		{"a flipped bit in a conversation", func(t *testing.T, h layout.Home) {
			edit(t, h, made.thread, "UPDATE events SET content = replace(content, 'hello', 'hellp') WHERE id = 1")
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, o := sessionHome(t)
			if _, err := repair.Home(t.Context(), h, repair.Options{}); err != nil { // events.jsonl
				t.Fatal(err)
			}
			if found := check(t, h, o); len(found) > 0 {
				t.Fatal(list(found))
			}
			title := "about tools"
			c.harm(t, h)
			if c.name == "another title" {
				title = "news"
			}
			if found := check(t, h, o); len(found) == 0 {
				t.Error("the harm is not found")
			}
			actions, err := repair.Home(t.Context(), h, repair.Options{})
			if err != nil {
				t.Fatal(err)
			}
			written := 0
			for _, a := range actions {
				if a.Error != "" {
					t.Errorf("not done: %+v", a)
				}
				if strings.HasPrefix(a.What, "wrote the entry of ") {
					written++
				}
			}
			if written != c.want {
				t.Errorf("wrote %d entries, want %d: %+v", written, c.want, actions)
			}
			if found := check(t, h, o); len(found) > 0 {
				t.Errorf("still found:\n%s", list(found))
			}
			got := listed(t, h)
			if c.name == "a conversation without a session, and a list without it" { // nothing knows it any more
				title = ""
			}
			want := []string{made.other + " " + aliceKey + " " + aliceKey + " E0  1 0", made.thread + " " + bobKey + " " + bobKey + " E2 " + title + " 3 0"}
			if !slices.Equal(got, want) {
				t.Errorf("the list is\n%q, want\n%q", got, want)
			}
			if again, err := repair.Home(t.Context(), h, repair.Options{}); err != nil || len(again) > 0 {
				t.Errorf("a second repair does %v, %v", again, err)
			}
		})
	}
}

// A salvaged inbox keeps origins and list, and its format, although something was erased in it:
// an older build would route the messages anew.
func TestSalvageKeepsOrigins(t *testing.T) {
	h, o := sessionHome(t)
	alter(t, h, "inbox", func(tx *sql.Tx) error {
		e, sum := thread.Event{Content: store.Erased}, []byte(nil)
		err := tx.QueryRow("SELECT id, created_at, source, type, subtype, sha256 FROM events JOIN x_chain ON event_id = id WHERE id = 1").Scan(&e.ID, &e.CreatedAt, &e.Source, &e.Type, &e.Subtype, &sum)
		var key string
		if err == nil {
			err = tx.QueryRow("SELECT key FROM x_fate WHERE inbox_id = 1").Scan(&key)
		}
		if err == nil {
			err = statements(tx, []string{schema.Erased})
		}
		if err == nil {
			_, err = tx.Exec("INSERT INTO x_erased(event_id, key, proof) VALUES(1,?,?)", key, thread.TombstoneProof(e, sum, key))
		}
		if err == nil {
			_, err = tx.Exec("UPDATE events SET content = ? WHERE id = 1", store.Erased)
		}
		return err
	})
	if _, err := repair.Home(t.Context(), h, repair.Options{}); err != nil { // events.jsonl
		t.Fatal(err)
	}
	if found := check(t, h, o); len(found) > 0 {
		t.Fatal(list(found))
	}
	edit(t, h, "inbox", "UPDATE events SET content = replace(content, 'tool', 'fool') WHERE id = 2")
	if _, err := repair.Home(t.Context(), h, repair.Options{}); err != nil {
		t.Fatal(err)
	}
	if found := check(t, h, o); len(found) > 0 {
		t.Error(list(found))
	}
	alter(t, h, "inbox", func(tx *sql.Tx) error {
		var format, origins, entries, erased int
		err := tx.QueryRow("SELECT format, (SELECT COUNT(*) FROM x_origin), (SELECT COUNT(*) FROM x_sessions), (SELECT COUNT(*) FROM x_erased) FROM x_meta").Scan(&format, &origins, &entries, &erased)
		if format != schema.FormatSessions || origins != 4 || entries != 2 || erased != 1 {
			t.Errorf("format %d with %d origins, %d entries and %d erased events, want %d with 4, 2 and 1", format, origins, entries, erased, schema.FormatSessions)
		}
		return err
	})
}

// listed is the list of sessions; that an entry has a time is checked.
func listed(t *testing.T, h layout.Home) (out []string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(h.AgentDir("a1"), "inbox", "events.db")+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.QueryContext(t.Context(), "SELECT thread, key, key_folded, epoch, title, messages, archived, last_at FROM x_sessions ORDER BY thread")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id, key, folded, epoch, title string
		var messages, archived, at int64
		if err := rows.Scan(&id, &key, &folded, &epoch, &title, &messages, &archived, &at); err != nil {
			t.Fatal(err)
		}
		if at == 0 {
			t.Errorf("%s was never active", id)
		}
		out = append(out, fmt.Sprint(id, " ", key, " ", folded, " ", epoch, " ", title, " ", messages, " ", archived))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}
