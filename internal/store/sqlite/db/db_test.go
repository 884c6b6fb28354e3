package db

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/theclaw/agents/internal/store"
	"github.com/theclaw/agents/internal/store/sqlite/schema"
	"github.com/theclaw/agents/internal/thread"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fresh makes a thread in a new directory.
func fresh(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if created, err := Create(dir); err != nil || !created {
		t.Fatalf("create: %v, %v", created, err)
	}
	return dir
}

// open opens dir and closes it with the test.
func open(t testing.TB, dir string, o Options) *DB {
	t.Helper()
	d, err := Open(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// foreign is a connection as the external tool has one.
func foreign(t testing.TB, dir string) *sql.DB {
	t.Helper()
	c, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "events.db")+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)&_pragma=synchronous(normal)")
	if err != nil {
		t.Fatal(err)
	}
	c.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func event(text string) store.NewEvent {
	return store.NewEvent{Source: "s", Type: thread.TypeMessage, Content: text}
}

func insert(text string) func(*Tx) error {
	return func(tx *Tx) error { _, err := tx.Insert(event(text)); return err }
}

func count(t testing.TB, d *DB) (n int64) {
	t.Helper()
	must(t, d.View(t.Context(), func(tx *Tx) error {
		_, err := tx.Row("SELECT COUNT(*) FROM events", nil, &n)
		return err
	}))
	return n
}

func verify(d *DB) (n int64, err error) {
	_ = d.View(context.Background(), func(tx *Tx) error { n, err = tx.VerifyChain(); return nil })
	return n, err
}

// S0-52: the tables of the external tool, to the letter.
func TestSchemaEqualsRecorded(t *testing.T) {
	want, err := os.ReadFile("testdata/61-schema.sql")
	must(t, err)
	d := open(t, fresh(t), Options{})
	var got strings.Builder
	must(t, d.View(t.Context(), func(tx *Tx) error {
		return tx.Each("SELECT sql FROM sqlite_schema WHERE name NOT LIKE 'x\\_%' ESCAPE '\\' AND tbl_name NOT LIKE 'x\\_%' ESCAPE '\\' AND sql IS NOT NULL ORDER BY rowid", nil, func(scan func(...any) error) error {
			var s string
			err := scan(&s)
			got.WriteString(s + ";\n")
			return err
		})
	}))
	sorted := func(s string) map[string]bool {
		m := map[string]bool{}
		for _, q := range strings.Split(s, ";\n") {
			m[strings.TrimSpace(q)] = true
		}
		return m
	}
	g, w := sorted(got.String()), sorted(string(want))
	for q := range w {
		if !g[q] {
			t.Errorf("missing or different: %s", q)
		}
	}
	if len(g) != len(w) {
		t.Errorf("got %d statements, want %d:\n%s", len(g), len(w), got.String())
	}
	var version, app, page int
	must(t, d.View(t.Context(), func(tx *Tx) error {
		_, a := tx.Row("PRAGMA user_version", nil, &version)
		_, b := tx.Row("PRAGMA application_id", nil, &app)
		_, c := tx.Row("PRAGMA page_size", nil, &page)
		return errors.Join(a, b, c)
	}))
	if version != 0 || app != 0 || page != schema.PageSize {
		t.Errorf("user_version %d, application_id %d, page_size %d", version, app, page)
	}
}

// S9: nobody else reads a thread.
func TestModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "thread")
	_, err := Create(dir)
	must(t, err)
	d := open(t, dir, Options{})
	must(t, d.Do(t.Context(), true, insert("x")))
	entries, err := os.ReadDir(dir)
	must(t, err)
	seen := map[string]bool{}
	for _, e := range entries {
		i, err := e.Info()
		must(t, err)
		want := os.FileMode(0o600)
		if e.IsDir() {
			want = 0o700
		}
		if i.Mode().Perm() != want {
			t.Errorf("%s has mode %o, want %o", e.Name(), i.Mode().Perm(), want)
		}
		seen[e.Name()] = true
	}
	for _, name := range []string{"events.db", "events.db-wal", "events.db-shm", "events.jsonl", "run", "logs"} {
		if !seen[name] {
			t.Errorf("no %s", name)
		}
	}
	if len(seen) != 6 {
		t.Errorf("left behind: %v", seen)
	}
}

func TestCreateRace(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	made := make(chan bool, 32)
	for range 32 {
		wg.Go(func() {
			created, err := Create(dir)
			if err != nil {
				t.Error(err)
			}
			made <- created
		})
	}
	wg.Wait()
	n := 0
	for range 32 {
		if <-made {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d created it", n)
	}
	must(t, open(t, dir, Options{}).Do(t.Context(), true, insert("x")))
	if tmp, _ := filepath.Glob(filepath.Join(dir, ".events*")); len(tmp) > 0 {
		t.Errorf("left behind: %v", tmp)
	}
}

// A thread of the external tool becomes ours without a change to its events.
func TestAdoptGoldenThread(t *testing.T) {
	dir := t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS("testdata/golden")))
	lines, err := os.ReadFile(filepath.Join(dir, "events.jsonl"))
	must(t, err)
	d := open(t, dir, Options{})
	acks, fates := map[string]int64{}, map[int64]string{}
	var events []thread.Event
	must(t, d.View(t.Context(), func(tx *Tx) error {
		return errors.Join(
			tx.Each("SELECT consumer, id FROM x_ack", nil, func(scan func(...any) error) error {
				var c string
				var id int64
				err := scan(&c, &id)
				acks[c] = id
				return err
			}),
			tx.Each("SELECT inbox_id, fate FROM x_fate", nil, func(scan func(...any) error) error {
				var f string
				var id int64
				err := scan(&id, &f)
				fates[id] = f
				return err
			}),
			tx.Events("SELECT "+Columns+" FROM events ORDER BY id", nil, func(e thread.Event) error {
				events = append(events, e)
				return nil
			}))
	}))
	if len(acks) != 2 || acks["inbox"] != 2 || acks["outbound"] != 3 {
		t.Errorf("acks %v", acks)
	}
	if len(fates) != 2 || fates[1] != "silent" || fates[2] != "not-a-message" {
		t.Errorf("fates %v", fates)
	}
	if len(events) != 7 || !strings.HasSuffix(events[6].Content, "\x00end") {
		t.Errorf("events %+v", events)
	}
	must(t, d.Do(t.Context(), true, insert("ours")))
	if n, err := verify(d); err != nil || n != 8 {
		t.Errorf("chain of %d: %v", n, err)
	}
	uuid := d.UUID()
	must(t, d.Close())
	after, err := os.ReadFile(filepath.Join(dir, "events.jsonl"))
	must(t, err)
	if !strings.HasPrefix(string(after), string(lines)) || strings.Count(string(after), "\n") != 8 {
		t.Errorf("events.jsonl is\n%s", after)
	}
	if again := open(t, dir, Options{}); again.UUID() != uuid || uuid == "" {
		t.Errorf("uuid %q, then %q", uuid, again.UUID())
	}
}

func TestOpenErrors(t *testing.T) {
	_, err := Open(t.Context(), t.TempDir(), Options{})
	if !errors.Is(err, store.ErrNotFound) {
		t.Errorf("empty directory: %v", err)
	}
	dir := fresh(t)
	d := open(t, dir, Options{})
	must(t, d.Do(t.Context(), true, func(tx *Tx) error { _, err := tx.Exec("UPDATE x_meta SET format = 99"); return err }))
	must(t, d.Close())
	if _, err = Open(t.Context(), dir, Options{}); !errors.Is(err, store.ErrFormat) {
		t.Errorf("newer format: %v", err)
	}
	for name, spoil := range map[string]func([]byte) []byte{
		"no database": func([]byte) []byte { return []byte(strings.Repeat("not a database. ", 512)) },
		"cut":         func(b []byte) []byte { return b[:len(b)/2] },
		"zeroed":      func(b []byte) []byte { clear(b[4096:]); return b },
	} {
		dir := fresh(t)
		path := filepath.Join(dir, "events.db")
		b, err := os.ReadFile(path)
		must(t, err)
		must(t, os.WriteFile(path, spoil(b), 0o600))
		if _, err := Open(t.Context(), dir, Options{}); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A database from before a table of ours gets it when it is opened, and keeps
// its uuid and its events.
func TestMissingTable(t *testing.T) {
	dir := fresh(t)
	d, err := Open(t.Context(), dir, Options{})
	must(t, err)
	must(t, d.Do(t.Context(), true, insert("x")))
	uuid := d.uuid
	must(t, d.Close())
	_, err = foreign(t, dir).ExecContext(t.Context(), "DROP TABLE x_memory")
	must(t, err)
	d = open(t, dir, Options{})
	must(t, d.View(t.Context(), func(tx *Tx) error {
		var marks int64
		if _, err := tx.Row("SELECT COUNT(*) FROM x_memory", nil, &marks); err != nil {
			return err
		}
		head, err := tx.Head()
		if head != 1 || tx.UUID() != uuid {
			t.Errorf("head %d, uuid %s, want 1 and %s", head, tx.UUID(), uuid)
		}
		return err
	}))
}
