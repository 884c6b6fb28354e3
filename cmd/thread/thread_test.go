package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tool runs a command line of the program `thread` in this process, outside of
// any home.
func tool(t *testing.T, in string, args ...string) outcome {
	t.Helper()
	var out, errs bytes.Buffer
	code := Main(args, strings.NewReader(in), &out, &errs, func(string) string { return "" })
	return outcome{code, out.String(), errs.String()}
}

// succeeds runs what must end with 0 and answers what it printed.
func succeeds(t *testing.T, in string, args ...string) string {
	t.Helper()
	o := tool(t, in, args...)
	if o.code != 0 || o.err != "" {
		t.Fatalf("thread %q: exit %d, stderr %s", args, o.code, o.err)
	}
	return o.out
}

func same(t *testing.T, what, want, got string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func file(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// newThreadDir makes a thread directory.
func newThreadDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "t")
	succeeds(t, "", "init", dir)
	return dir
}

// another is a plain connection as the external tool has one.
func another(t *testing.T, dir string) *sql.DB {
	t.Helper()
	c, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "events.db")+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)")
	if err != nil {
		t.Fatal(err)
	}
	c.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func execute1(t *testing.T, c *sql.DB, q string, args ...any) {
	t.Helper()
	if _, err := c.ExecContext(t.Context(), q, args...); err != nil {
		t.Fatal(err)
	}
}

// S0-54, S0-56, S0-58, S0-63: what the tool recorded of its own directory is
// printed byte for byte, and looking changes nothing.
func TestThreadGolden(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "golden-thread")
	if err := os.CopyFS(dir, os.DirFS("testdata/golden")); err != nil {
		t.Fatal(err)
	}
	recorded := func(name string) string { return file(t, filepath.Join("testdata", name)) }
	same(t, "peek", recorded("golden-peek.ndjson"), succeeds(t, "", "peek", "--thread", dir, "--last-event-id", "0"))
	// The recorded info is older than the recorded pop, whose time is in the directory.
	info := strings.Replace(recorded("golden-info.json"), "10:49:33.659Z", "10:49:34.036Z", 1)
	same(t, "info", info, succeeds(t, "", "info", "--thread", dir, "--json"))
	same(t, "pop", recorded("golden-pop-inbox-2.ndjson"), succeeds(t, "", "pop", "--thread", dir, "--consumer", "inbox", "--last-event-id", "2"))
	same(t, "filtered pop", recorded("golden-pop-outbound-3.ndjson"), succeeds(t, "", "pop", "--thread", dir, "--consumer", "outbound", "--last-event-id", "3"))
	if now := succeeds(t, "", "info", "--thread", dir, "--json"); normal(now, dir) != normal(info, dir) {
		t.Errorf("a pop where the progress stood changed more than its time: %s", now)
	}
	same(t, "schema", recorded("61-schema.sql"), schemaOf(t, dir))
}

// schemaOf is what sqlite3's .schema prints, without our own tables.
func schemaOf(t *testing.T, dir string) string {
	t.Helper()
	rows, err := another(t, dir).QueryContext(t.Context(), "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'x\\_%' ESCAPE '\\' ORDER BY CASE WHEN name LIKE 'idx%' THEN 'events' ELSE tbl_name END, rowid")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	all := map[string]bool{}
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		all[s+";\n"] = true
	}
	// In the recorded order, then whatever is left.
	var out strings.Builder
	for _, stmt := range strings.SplitAfter(file(t, "testdata/61-schema.sql"), ";\n") {
		if all[stmt] {
			out.WriteString(stmt)
			delete(all, stmt)
		}
	}
	for stmt := range all {
		out.WriteString(stmt)
	}
	return out.String()
}

// S0-52: a new directory, one that is there, and one that is a thread.
func TestThreadInit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	if out := succeeds(t, "", "init", dir); out != "Initialized thread at "+dir+"\n" {
		t.Errorf("stdout %q", out)
	}
	for _, name := range []string{"events.db", "events.jsonl", "run", "logs"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	same(t, "schema", file(t, "testdata/61-schema.sql"), schemaOf(t, dir))
	there := t.TempDir()
	if err := os.WriteFile(filepath.Join(there, "mine"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	succeeds(t, "", "init", there+"/")
	if file(t, filepath.Join(there, "mine")) != "x" {
		t.Error("what was there is gone")
	}
	for _, again := range []string{dir, there} {
		if o := tool(t, "", "init", again); o.code != 1 || o.out != "" || !errorLine.MatchString(o.err) {
			t.Errorf("a second time: %+v", o)
		}
	}
}

// S0-53: a batch is stored whole or not at all.
func TestThreadBatch(t *testing.T) {
	dir := newThreadDir(t)
	var lines strings.Builder
	for i := range 1000 {
		if i == 777 {
			lines.WriteString("{\"source\":\"s\",\n")
			continue
		}
		fmt.Fprintf(&lines, `{"source":"s","type":"message","content":"%d"}`+"\n", i)
	}
	o := tool(t, lines.String(), "push", "--thread", dir, "--batch")
	if o.code != 2 || !strings.Contains(o.err, "line 778") {
		t.Errorf("one bad line: %+v", o)
	}
	if out := succeeds(t, "", "peek", "--thread", dir, "--last-event-id", "0"); out != "" {
		t.Errorf("stored: %.200s", out)
	}
	for _, bad := range []string{"[]", "null", "5", `"x"`, `{"type":"message"} {}`, `{"type":"other","content":"x"}`, `{"source":"s","content":"x"}`, "{\"type\":\"message\",\"content\":\"\xff\"}"} {
		if o := tool(t, `{"type":"message"}`+"\n"+bad, "push", "--thread", dir, "--batch"); o.code != 2 || !errorLine.MatchString(o.err) {
			t.Errorf("line %q: %+v", bad, o)
		}
	}
	succeeds(t, strings.Replace(lines.String(), "{\"source\":\"s\",\n", "", 1), "push", "--thread", dir, "--batch")
	if out := succeeds(t, "", "peek", "--thread", dir, "--last-event-id", "0", "--limit", "5000"); strings.Count(out, "\n") != 999 {
		t.Errorf("%d lines", strings.Count(out, "\n"))
	}
}

// S0-65: before it grows over 10,000 lines events.jsonl gets a stamp in its name.
func TestThreadRotation(t *testing.T) {
	dir := newThreadDir(t)
	batch := strings.Repeat(`{"source":"s","type":"message","content":"x"}`+"\n", 2500)
	for range 4 {
		succeeds(t, batch, "push", "--thread", dir, "--batch")
	}
	succeeds(t, "", "push", "--thread", dir, "--source", "s", "--type", "message", "--content", "the last")
	old, err := filepath.Glob(filepath.Join(dir, "events-????????-??????.jsonl"))
	if err != nil || len(old) != 1 {
		t.Fatalf("rotated files %q, %v", old, err)
	}
	if a, b := strings.Count(file(t, old[0]), "\n"), strings.Count(file(t, filepath.Join(dir, "events.jsonl")), "\n"); a != 10000 || b != 1 {
		t.Errorf("%d and %d lines", a, b)
	}
	if out := succeeds(t, "", "info", "--thread", dir); !strings.Contains(out, "Events: 10001\n") {
		t.Error(out)
	}
}

// The tool itself writes and acknowledges while we do: nobody sees an error and
// nothing is lost.
func TestThreadBesideTheTool(t *testing.T) {
	dir := newThreadDir(t)
	succeeds(t, "", "subscribe", "--thread", dir, "--consumer", "c", "--handler", "true")
	f := another(t, dir)
	const each = 60
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 4 * each {
			_, err := f.ExecContext(t.Context(), "INSERT INTO events(source, type, subtype, content) VALUES('tool','message',NULL,'x')")
			if err == nil {
				_, err = f.ExecContext(t.Context(), "INSERT INTO consumer_progress VALUES('other', 1, '') ON CONFLICT(consumer_id) DO UPDATE SET last_acked_id = last_acked_id + 1")
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 2 {
		wg.Go(func() {
			for range each {
				if o := tool(t, "", "push", "--thread", dir, "--source", "us", "--type", "message", "--content", "x"); o.code != 0 {
					t.Errorf("push: %+v", o)
				}
			}
		})
	}
	wg.Go(func() {
		for i := range each {
			if o := tool(t, "", "pop", "--thread", dir, "--consumer", "c", "--last-event-id", strconv.Itoa(i), "--limit", "3"); o.code != 0 {
				t.Errorf("pop: %+v", o)
			}
		}
	})
	wg.Wait()
	if out := succeeds(t, "", "info", "--thread", dir); !strings.Contains(out, fmt.Sprintf("Events: %d\n", 6*each)) || !strings.Contains(out, fmt.Sprintf("last_acked_id: %d\n", each-1)) {
		t.Error(out)
	}
	if err := f.QueryRowContext(t.Context(), "SELECT last_acked_id FROM consumer_progress WHERE consumer_id = 'other' AND last_acked_id = ?", 4*each).Scan(new(int)); err != nil {
		t.Errorf("the tool's own writes: %v", err)
	}
}

// CONTRACTS 1.1, case 90: a writer that does not let go costs 5 s, exit 2, and
// the event.
func TestThreadLocked(t *testing.T) {
	t.Parallel()
	dir := newThreadDir(t)
	f := another(t, dir)
	execute1(t, f, "BEGIN IMMEDIATE")
	o := tool(t, "", "push", "--thread", dir, "--source", "a", "--type", "message", "--content", "x")
	if o.code != 2 || !strings.Contains(o.err, "locked") || !errorLine.MatchString(o.err) {
		t.Errorf("%+v", o)
	}
	if _, err := f.ExecContext(context.Background(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if out := succeeds(t, "", "peek", "--thread", dir, "--last-event-id", "0"); out != "" {
		t.Errorf("stored: %s", out)
	}
}

// R9: what the external tool accepts and this program refuses, with exit code 2 and
// nothing stored; docs/compat.md lists it.
func TestThreadDifferences(t *testing.T) {
	dir := newThreadDir(t)
	for _, text := range []string{"one", "two", "three"} {
		succeeds(t, "", "push", "--thread", dir, "--source", "self", "--type", "message", "--content", text)
	}
	refused := func(in string, args ...string) {
		t.Helper()
		if o := tool(t, in, args...); o.code != 2 || o.out != "" || !strings.HasPrefix(o.err, "Error: ") {
			t.Errorf("thread %q with %q on standard input: %+v", args, in, o)
		}
	}
	for _, line := range []string{`[1]`, `"x"`, `5`, `null`} {
		refused(`{"source":"self","type":"message","content":"first"}`+"\n"+line+"\n", "push", "--thread", dir, "--batch")
	}
	for _, id := range []string{"1.5", "0x2", "1e1", "+1"} {
		refused("", "peek", "--thread", dir, "--last-event-id", id)
	}
	for _, filter := range []string{"type == 'message'", "id BETWEEN 1 AND 2", "source GLOB 's*'", "content = 'one'"} {
		refused("", "peek", "--thread", dir, "--last-event-id", "0", "--filter", filter)
		refused("", "subscribe", "--thread", dir, "--consumer", "c", "--handler", "true", "--filter", filter)
	}
	refused("", "subscribe", "--thread", dir, "--consumer", "a/b", "--handler", "true")
	if n := strings.Count(succeeds(t, "", "peek", "--thread", dir, "--last-event-id", "0"), "\n"); n != 3 {
		t.Errorf("%d events", n)
	}
	// What they mean can be said in another way.
	for filter, want := range map[string]int{"type = 'message'": 3, "id >= 1 AND id <= 2": 2, "source LIKE 's%'": 3, "id IN (1, 3)": 2} {
		if n := strings.Count(succeeds(t, "", "peek", "--thread", dir, "--last-event-id", "0", "--filter", filter), "\n"); n != want {
			t.Errorf("%s: %d events, want %d", filter, n, want)
		}
	}
}
