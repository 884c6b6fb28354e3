package notifier_test

import (
	"bufio"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/notifier"
)

// CONTRACTS 2.4: every recorded thread directory has the recorded task id and,
// where its path needs no quotes, the recorded command.
func TestRecordedTasks(t *testing.T) {
	f, err := os.Open("testdata/slugs.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	for sc := bufio.NewScanner(f); sc.Scan(); {
		col := strings.Split(sc.Text(), "\t")
		if strings.HasPrefix(sc.Text(), "#") || len(col) < 5 || col[3] == "" { // the tool itself failed on its author
			continue
		}
		n++
		dir, author, file, id, command := col[0], col[1], col[2], col[3], col[4]
		if got := notifier.TaskID(dir); got != id {
			t.Errorf("TaskID(%q) = %q, recorded %q", dir, got, id)
		}
		if got := notifier.Command(dir); got != command && !strings.Contains(dir, " ") {
			t.Errorf("Command(%q) = %q, recorded %q", dir, got, command)
		}
		home := t.TempDir()
		if err := notifier.Add(home, notifier.Task{Author: author, ID: id, Command: command}); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(home, "tasks/pending", file)); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if n != 10 {
		t.Errorf("%d recorded tasks, want 10", n)
	}
}

// The unit is UTF-16's: a character outside its first plane is two dashes, and
// the length decides after that.
func TestTaskIDUnits(t *testing.T) {
	astral := "/" + strings.Repeat("\U0001F600", 20) // 41 units
	for dir, want := range map[string]string{
		"/tmp/sA/a/": "dispatch--tmp-sA-a-", "/a/\u00e9": "dispatch--a--", "/a/\U0001F600": "dispatch--a---", "": "dispatch-",
		astral:                 "dispatch-" + strings.Repeat("-", 32) + "-" + hash(astral),
		astral[:len(astral)-4]: "dispatch-" + strings.Repeat("-", 39),
	} {
		if got := notifier.TaskID(dir); got != want {
			t.Errorf("TaskID(%q) = %q, want %q", dir, got, want)
		}
	}
}

func hash(s string) string {
	sum := sha1.Sum([]byte(s))
	return hex.EncodeToString(sum[:])[:6]
}

func TestTaskFile(t *testing.T) {
	home := filepath.Join(t.TempDir(), "n")
	at := time.Date(2026, 11, 20, 10, 16, 22, 627_000_000, time.UTC)
	task := notifier.Task{Author: "me", ID: "t1", Command: "echo hi; exit 3", CreatedAt: at}
	if err := notifier.Add(home, task); err != nil {
		t.Fatal(err)
	}
	if err := notifier.Add(home, task); !errors.Is(err, notifier.ErrQueued) {
		t.Errorf("the same task again: %v", err)
	}
	got, err := os.ReadFile(filepath.Join(home, "tasks/pending/me-t1.txt"))
	want, err2 := os.ReadFile("testdata/pending.txt")
	if err := errors.Join(err, err2); err != nil || string(got) != string(want) {
		t.Errorf("file %q, recorded %q: %v", got, want, err)
	}
	if left := files(t, home); len(left) != 1 {
		t.Errorf("left beside the task: %q", left)
	}
}

// S0-70: of many pushes at once one queues the task, and every other is told
// that it waits.
func TestOnePending(t *testing.T) {
	home := t.TempDir()
	var wg sync.WaitGroup
	var added, queued atomic.Int32
	for range 50 {
		wg.Go(func() {
			switch err := notifier.Add(home, notifier.Task{Author: "self", ID: "dispatch-x", Command: "true"}); {
			case err == nil:
				added.Add(1)
			case errors.Is(err, notifier.ErrQueued):
				queued.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if added.Load() != 1 || queued.Load() != 49 || len(files(t, home)) != 1 {
		t.Errorf("%d added, %d queued, files %q", added.Load(), queued.Load(), files(t, home))
	}
}

// No author loses its task, whatever is in it.
func TestAuthors(t *testing.T) {
	for author, want := range map[string]string{
		"external:telegram:tg-1:group:g/topic-1:alice": "external:telegram:tg-1:group:g_topic-1:alice",
		"": "_", "../../up": ".._.._up", "a\nauthor=b": "a_author=b",
		strings.Repeat("ü", 300): "",
	} {
		home := t.TempDir()
		if err := notifier.Add(home, notifier.Task{Author: author, ID: "dispatch-x", Command: "true"}); err != nil {
			t.Errorf("author %.20q: %v", author, err)
			continue
		}
		list := files(t, home)
		if len(list) != 1 || (want != "" && list[0] != want+"-dispatch-x.txt") {
			t.Errorf("author %.20q: files %q", author, list)
			continue
		}
		b, err := os.ReadFile(filepath.Join(home, "tasks/pending", list[0]))
		if err != nil || strings.Count(string(b), "\n") != 4 || !strings.HasPrefix(string(b), "author="+strings.TrimSuffix(list[0], "-dispatch-x.txt")+"\n") {
			t.Errorf("author %.20q: %q, %v", author, b, err)
		}
	}
}

func TestTasksThatCannotBe(t *testing.T) {
	for _, task := range []notifier.Task{
		{ID: "a/b", Command: "true"},
		{ID: "", Command: "true"},
		{ID: "x", Command: "a\nb"},
		{ID: "x"},
		{ID: strings.Repeat("x", 250), Command: "true"},
	} {
		home := t.TempDir()
		if err := notifier.Add(home, task); !errors.Is(err, notifier.ErrTask) {
			t.Errorf("%.40v: %v", task, err)
		}
	}
}

// CONTRACTS 1.5: the command reaches the program whole, whatever the path.
func TestCommandSurvivesTheShell(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "thread"), []byte("#!/bin/sh\nprintf '%s' \"$3\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"/a/b", "/with space", "/it's", `/back\slash`, "/$HOME/`id`", "/a;b&c|d", "/unié/😀", "/*?[x]", "~/x", "", "/#x", "/a=b"} {
		c := exec.Command("/bin/sh", "-c", notifier.Command(dir))
		c.Env = []string{"PATH=" + bin, "HOME=/h"}
		if got, err := c.Output(); err != nil || string(got) != dir {
			t.Errorf("%q arrives as %q, %v", dir, got, err)
		}
	}
}

func TestHome(t *testing.T) {
	user, bin := t.TempDir(), t.TempDir()
	env := map[string]string{"HOME": user, "PATH": "/nowhere:" + bin}
	look := func() (string, bool) { return notifier.Home(func(k string) string { return env[k] }) }
	want := filepath.Join(user, ".local/share/notifier")
	if dir, ok := look(); ok || dir != want {
		t.Errorf("nothing there: %q, %v", dir, ok)
	}
	program := filepath.Join(bin, "notifier")
	if err := os.WriteFile(program, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, ok := look(); ok {
		t.Error("a file that cannot be run is no program")
	}
	if err := os.Chmod(program, 0o700); err != nil {
		t.Fatal(err)
	}
	if dir, ok := look(); !ok || dir != want {
		t.Errorf("the program is there: %q, %v", dir, ok)
	}
	env["PATH"], env["NOTIFIER_HOME"] = "", t.TempDir()
	if dir, ok := look(); !ok || dir != env["NOTIFIER_HOME"] {
		t.Errorf("its home is there: %q, %v", dir, ok)
	}
	clear(env)
	if _, ok := look(); ok {
		t.Error("no environment, no notifier")
	}
}

func files(t *testing.T, home string) []string {
	t.Helper()
	list, err := os.ReadDir(filepath.Join(home, "tasks/pending"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}
