//go:build proof

package standin

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func files(t *testing.T, home, status string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(home, "tasks", status))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// whole puts a task file there in one step: on a busy machine the daemon would
// lose some of those that the program writes.
func whole(t *testing.T, home, id, command string) {
	t.Helper()
	dir := filepath.Join(home, "tasks", "pending")
	text := "author=me\ntask_id=" + id + "\ncommand=" + command + "\ncreated_at=2026-11-20T10:16:22.627Z\n"
	if err := os.WriteFile(filepath.Join(dir, id+".new"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, id+".new"), filepath.Join(dir, "me-"+id+".txt")); err != nil {
		t.Fatal(err)
	}
}

// CONTRACTS 2.1 to 2.3: every recorded command line but the timers.
func TestNotifierAsRecorded(t *testing.T) {
	home := filepath.Join(t.TempDir(), "nh")
	e := append(env(t, t.TempDir()), "NOTIFIER_HOME="+home)
	t.Cleanup(func() { _, _ = run(t, e, "notifier", "stop") })
	idle := func() { await(t, func() bool { return len(files(t, home, "pending")) == 0 }) }
	r := recording{
		dir: "testdata/notifier", paths: strings.NewReplacer("/srv/claw-a/nh", home, "/srv/claw-a/t", t.TempDir()), env: e,
		stdin: map[string]string{"09-task-add-stdin": "true\nmore\n"},
		skip:  []string{"21-"}, // its layout for people is not modelled
		setup: map[string]func(){
			"18-start": func() {
				for file, name := range map[string]string{"05-pending-file-me-t1.txt": "me-t1.txt", "13-pending-file-me-t4.txt": "me-t4.txt"} {
					got, err := os.ReadFile(filepath.Join(home, "tasks", "pending", name))
					if err != nil || same(string(got)) != same(fixture(t, "notifier/"+file)) {
						t.Errorf("%s: %v\n%s", name, err, got)
					}
				}
			},
			"25-readd-after-done": func() {
				idle()
				if got := strings.Join(files(t, home, "done"), " "); got != "external:tui:x:dm:p:p-t3.txt me-t1.txt me-t4.txt" {
					t.Errorf("done: %s", got)
				}
			},
			"27-add-same-while-running": func() {
				whole(t, home, "slow", "sleep 5")
			},
		},
	}
	r.play(t)
}

// CONTRACTS 2.3: half written files are lost for good; the rest run one at a
// time, whatever their exit code.
func TestNotifierLoses(t *testing.T) {
	home, dir := filepath.Join(t.TempDir(), "nh"), t.TempDir()
	e := append(env(t, t.TempDir()), "NOTIFIER_HOME="+home, "NOTIFIER_LOSE=30", "NOTIFIER_SEED=1")
	must(t, e, "notifier", "start")
	t.Cleanup(func() { _, _ = run(t, e, "notifier", "stop") })
	const n = 40
	for i := range n {
		whole(t, home, strconv.Itoa(i), "mkdir "+dir+"/one && rmdir "+dir+"/one || touch "+dir+"/two; exit 3")
	}
	await(t, func() bool { return len(files(t, home, "pending")) == 0 })
	if lost := len(files(t, home, "error")); lost < n/10 || lost > n*6/10 {
		t.Errorf("%d of %d tasks lost, a third was wanted", lost, n)
	}
	if _, err := os.Stat(filepath.Join(dir, "two")); err == nil {
		t.Error("two tasks ran at a time")
	}
}

// CONTRACTS 1.5 and 2.4: what a push asks the notifier for.
func TestPushSchedules(t *testing.T) {
	root := t.TempDir()
	home := filepath.Join(root, "nh")
	e := append(env(t, root), "NOTIFIER_HOME="+home)
	dir := filepath.Join(root, "a")
	must(t, e, "thread", "init", dir)
	push := func(source string) {
		must(t, e, "thread", "push", "--thread", dir, "--source", source, "--type", "message", "--content", "x")
	}
	push("external:tui:tui-main:dm:alice:alice")
	push("with/slash") // exits 0 and is queued nowhere
	push("external:tui:tui-main:dm:alice:alice")
	names := files(t, home, "pending")
	if len(names) != 1 || !strings.HasPrefix(names[0], "external:tui:tui-main:dm:alice:alice-dispatch-") {
		t.Errorf("queued %q", names)
	}
	log, err := os.ReadFile(filepath.Join(dir, "logs", "thread.log"))
	if err != nil || strings.Contains(string(log), "WARN") {
		t.Errorf("log %v %s", err, log)
	}
}

// CONTRACTS 2.4: the task ids of the recorded directories.
func TestTaskIDs(t *testing.T) {
	root := t.TempDir()
	e := append(env(t, root), "NOTIFIER_HOME="+filepath.Join(root, "nh"))
	tested := 0
	for line := range strings.Lines(fixture(t, "thread/slugs.tsv")) {
		f := strings.Split(strings.TrimRight(line, "\n"), "\t")
		if len(f) < 5 || strings.HasPrefix(line, "#") || f[3] == "" {
			continue
		}
		if err := os.MkdirAll("/tmp/sA", 0o755); err != nil {
			t.Fatal(err) // the id depends on the whole path
		}
		t.Cleanup(func() { _ = os.RemoveAll("/tmp/sA") })
		must(t, e, "thread", "init", f[0])
		must(t, e, "thread", "push", "--thread", f[0], "--source", f[1], "--type", "m", "--content", "x")
		b, err := os.ReadFile(filepath.Join(root, "nh", "tasks", "pending", f[2]))
		if err != nil || !strings.Contains(string(b), "\ntask_id="+f[3]+"\ncommand="+f[4]+"\n") {
			t.Errorf("%s: %v %s", f[0], err, b)
		}
		tested++
	}
	if tested < 8 {
		t.Errorf("%d ids", tested)
	}
}
