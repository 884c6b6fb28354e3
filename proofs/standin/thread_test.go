//go:build proof

package standin

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"
)

// alone is an environment in which there is a thread and no notifier.
func alone(t *testing.T, home string) []string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(Dir(t), "thread"), filepath.Join(dir, "thread")); err != nil {
		t.Fatal(err)
	}
	return []string{"PATH=" + dir + ":/usr/bin:/bin", "HOME=" + home}
}

// CONTRACTS 1.1 to 1.6: every recorded command line.
func TestThreadAsRecorded(t *testing.T) {
	root := t.TempDir()
	e := alone(t, root)
	demo, disp, flt, busy := filepath.Join(root, "demo"), filepath.Join(root, "disp"), filepath.Join(root, "flt"), filepath.Join(root, "busy")
	var locked *sql.DB
	r := recording{
		dir: "testdata/thread", paths: strings.NewReplacer("/srv/claw-a/t", root), env: e,
		stdin: map[string]string{"13-push-batch-badjson": "not json\n", "14-push-batch-partialbad": "{\"source\":\"a\",\"type\":\"m\",\"content\":\"x\"}\nbad\n"},
		setup: map[string]func(){
			"63-dispatch-noevents": func() {
				must(t, e, "thread", "init", disp)
				must(t, e, "thread", "subscribe", "--thread", disp, "--consumer", "c1", "--handler", "true")
			},
			"64-dispatch": func() {
				must(t, e, "thread", "push", "--thread", disp, "--source", "a", "--type", "m", "--content", "x")
			},
			"70-f-subtype-null": func() {
				must(t, e, "thread", "init", flt)
				must(t, e, "thread", "push", "--thread", flt, "--source", "external:tui:tui-main:dm:alice:alice", "--type", "message", "--content", `{"text":"hello"}`)
				must(t, e, "thread", "push", "--thread", flt, "--source", "self", "--type", "record", "--subtype", "toolcall", "--content", `{"n":1}`)
				must(t, e, "thread", "push", "--thread", flt, "--source", "self", "--type", "message", "--content", "plain")
			},
			"90-push-db-locked-8s": func() {
				must(t, e, "thread", "init", busy)
				locked = database(t, busy)
				if _, err := locked.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
					t.Fatal(err)
				}
			},
		},
	}
	r.play(t)
	if _, err := locked.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Error(err)
	}
	if n := must(t, e, "thread", "peek", "--thread", busy, "--last-event-id", "0"); n != "" {
		t.Errorf("a push that failed stored %s", n)
	}
	if got, want := dump(t, demo, "SELECT sql || ';' FROM sqlite_master WHERE sql IS NOT NULL"), fixture(t, "thread/61-schema.sql"); got != want {
		t.Errorf("schema\n%s\nrecorded\n%s", got, want)
	}
	mirror, err := os.ReadFile(filepath.Join(demo, "events.jsonl"))
	if err != nil || same(string(mirror)) != same(fixture(t, "thread/60-events.jsonl")) {
		t.Errorf("events.jsonl %v\n%s", err, mirror)
	}
	log, err := os.ReadFile(filepath.Join(demo, "logs", "thread.log"))
	if err != nil || !strings.HasSuffix(string(log), `[INFO] dispatch: consumer=inbox spawned handler_cmd="agent run demo"`+"\n") {
		t.Errorf("log %v %s", err, log)
	}
	// The bad filter ended that dispatch: what was before it started, nothing else.
	if locks, _ := filepath.Glob(filepath.Join(demo, "run", "*")); len(locks) != 1 || filepath.Base(locks[0]) != "inbox.lock" {
		t.Errorf("locks %v", locks)
	}
}

func TestThreadReadsGolden(t *testing.T) {
	dir := t.TempDir()
	e := alone(t, dir)
	if err := os.WriteFile(filepath.Join(dir, "events.db"), []byte(fixture(t, "golden/events.db")), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"golden-info.json":          {"info", "--thread", dir, "--json"},
		"golden-peek.ndjson":        {"peek", "--thread", dir, "--last-event-id", "0"},
		"golden-pop-inbox-2.ndjson": {"pop", "--thread", dir, "--consumer", "inbox", "--last-event-id", "2"},
	} {
		if got, want := must(t, e, append([]string{"thread"}, args...)...), fixture(t, "thread/"+name); got != want && name != "golden-info.json" || same(got) != same(want) {
			t.Errorf("%s\n%s\nrecorded\n%s", name, got, want)
		}
	}
}

// CONTRACTS 1.5: the handler's environment, and the lock that nobody removes.
func TestThreadDispatch(t *testing.T) {
	root := t.TempDir()
	e := append(alone(t, root), "THECLAW_HOME=/nowhere")
	dir := filepath.Join(root, "a")
	must(t, e, "thread", "init", dir)
	told := filepath.Join(root, "told")
	must(t, e, "thread", "subscribe", "--thread", dir, "--consumer", "c1", "--handler",
		`{ readlink /proc/self/fd/0 /proc/$$/fd/1; env; ps -o sid= -p $$; echo $$; } > `+told+`.new 2>&1; mv `+told+`.new `+told)
	must(t, e, "thread", "push", "--thread", dir, "--source", "a", "--type", "m", "--content", "secret words")
	must(t, e, "thread", "dispatch", "--thread", dir)
	var b []byte
	await(t, func() bool { var err error; b, err = os.ReadFile(told); return err == nil })
	if s := string(b); !strings.Contains(s, "/dev/null") || !strings.Contains(s, "THECLAW_HOME=/nowhere") || strings.Contains(s, "secret") {
		t.Errorf("the handler was told %s", s)
	}
	if err := os.Remove(told); err != nil {
		t.Fatal(err)
	}
	must(t, e, "thread", "push", "--thread", dir, "--source", "a", "--type", "m", "--content", "y")
	must(t, e, "thread", "dispatch", "--thread", dir)
	log, _ := os.ReadFile(filepath.Join(dir, "logs", "thread.log"))
	if !strings.Contains(string(log), "consumer=c1 skipped (lock held)") {
		t.Errorf("a lock that stands is not minded: %s", log)
	}
	must(t, e, "thread", "subscribe", "--thread", dir, "--consumer", "a/b", "--handler", "true")
	if _, err := run(t, e, "thread", "dispatch", "--thread", dir); exit(err) != 2 {
		t.Errorf("a consumer with a slash: %v", err)
	}
}

func await(t *testing.T, is func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); {
		if time.Now().After(end) {
			t.Fatal("it never happens")
		}
		select {
		case <-t.Context().Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func database(t *testing.T, dir string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "events.db"))
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func dump(t *testing.T, dir, query string) string {
	t.Helper()
	rows, err := database(t, dir).QueryContext(context.Background(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var b strings.Builder
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		b.WriteString(s + "\n")
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
