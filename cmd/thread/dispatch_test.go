package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/sync/errgroup"

	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/cmd/internal/threadtool"
)

// pipe is a named pipe for what handlers tell, and its lines.
func pipe(t *testing.T, path string) *bufio.Reader {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if err := f.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	return bufio.NewReader(f)
}

// handler follows the protocol of handlers: pop until nothing is left, remove
// the lock, dispatch once more for what came meanwhile.
const handler = `#!/bin/sh
dir=$1 said=$2
read -r pid comm state ppid group session rest < /proc/$$/stat
echo "start $$ leak=$(cat /proc/$$/environ /proc/$$/cmdline | grep -c MARK) own=$([ "$group" = "$session" ] && echo yes) in=$(readlink /proc/$$/fd/0)" > "$said"
last=$(cat "$dir/last" 2>/dev/null || echo 0)
while out=$(thread pop --thread "$dir" --consumer c --last-event-id "$last" 2>&1) && [ -n "$out" ]; do
  ids=$(printf '%s\n' "$out" | sed 's/^{"id":\([0-9]*\),.*/\1/')
  last=$(printf '%s\n' "$ids" | tail -n 1)
  echo "$last" > "$dir/last"
  echo ids $ids > "$said"
done
echo "end $$" > "$said"
rm "$dir/run/c.lock"
thread dispatch --thread "$dir"
echo "gone $? $out" > "$said"
`

// locks takes a lock as a dispatcher does; false when it is held.
func locks(t *testing.T, path string) bool {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	_ = f.Close()
	return err == nil
}

// S0-61, S0-62: of a burst of pushes, each with its dispatch, the handlers run
// one after the other, told nothing but their words, and all events are seen.
func TestThreadBurst(t *testing.T) {
	bin, dir := built(t), newThreadDir(t)
	said := filepath.Join(t.TempDir(), "said")
	lines := pipe(t, said)
	script := filepath.Join(t.TempDir(), "handler.sh")
	if err := os.WriteFile(script, []byte(handler), 0o700); err != nil {
		t.Fatal(err)
	}
	succeeds(t, "", "subscribe", "--thread", dir, "--consumer", "c", "--handler", script+" "+dir+" "+said)
	const pushes = 100
	var g errgroup.Group
	g.SetLimit(10)
	for i := range pushes {
		g.Go(func() error {
			for _, args := range [][]string{
				{"push", "--thread", dir, "--source", "s", "--type", "message", "--content", fmt.Sprint("MARK", i)},
				{"dispatch", "--thread", dir},
			} {
				c := exec.Command(filepath.Join(bin, "thread"), args...)
				c.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + bin}
				if out, err := c.CombinedOutput(); err != nil {
					return fmt.Errorf("thread %s: %w: %s", args[0], err, out)
				}
			}
			return nil
		})
	}
	seen, running, runs, left := map[string]int{}, "", 0, 0
	next := func() string {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("%d events seen, %d runs, %d of them there: %v", len(seen), runs, left, err)
		}
		words := strings.Fields(line)
		switch words[0] {
		case "start":
			if runs++; running != "" || strings.Join(words[2:], " ") != "leak=0 own=yes in=/dev/null" {
				t.Fatalf("%q while %q runs", line, running)
			}
			running = words[1]
			left++
		case "ids":
			for _, id := range words[1:] {
				seen[id]++
			}
		case "end":
			if words[1] != running {
				t.Fatalf("%q while %q runs", line, running)
			}
			running = ""
		case "gone":
			if left--; strings.Join(words, " ") != "gone 0" {
				t.Errorf("a handler's tools: %q", line)
			}
		}
		return words[0]
	}
	for len(seen) < pushes || running != "" {
		next()
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	// A handler outlives its last event by a dispatch, which may start another
	// one: it is over when the lock is the test's, so that none can start any
	// more, and all that said before that they started are gone.
	for !locks(t, filepath.Join(dir, "run", "c.lock")) {
		next()
	}
	if err := os.WriteFile(said, []byte("locked\n"), 0); err != nil {
		t.Fatal(err)
	}
	for next() != "locked" {
	}
	for left > 0 {
		next()
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("event %s was seen %d times", id, n)
		}
	}
	t.Logf("%d events in %d runs", len(seen), runs)
}

// CONTRACTS 1.5, 2.1, S0-70: pushes leave one whole task, and its command, given
// to sh as the notifier gives it, dispatches a thread whose path has a blank.
func TestThreadSchedules(t *testing.T) {
	bin, home := built(t), t.TempDir()
	dir, said := filepath.Join(t.TempDir(), "with blank"), filepath.Join(t.TempDir(), "said")
	lines := pipe(t, said)
	push := func(source string) {
		var out, errs bytes.Buffer
		code := Main([]string{"push", "--thread", dir, "--source", source, "--type", "message", "--content", "x"}, strings.NewReader(""), &out, &errs,
			func(name string) string { return map[string]string{"NOTIFIER_HOME": home}[name] })
		if code != 0 || out.Len()+errs.Len() > 0 {
			t.Fatalf("push: exit %d, %s%s", code, &out, &errs)
		}
	}
	succeeds(t, "", "init", dir)
	succeeds(t, "", "subscribe", "--thread", dir, "--consumer", "c", "--handler", "echo handled > "+said)
	for range 50 {
		push("external:telegram:tg:group:g/topic:alice")
	}
	tasks, err := filepath.Glob(filepath.Join(home, "tasks/pending/*"))
	if err != nil || len(tasks) != 1 || !strings.HasPrefix(filepath.Base(tasks[0]), "external:telegram:tg:group:g_topic:alice-dispatch--") || !strings.HasSuffix(tasks[0], ".txt") {
		t.Fatalf("tasks %q, %v", tasks, err)
	}
	_, command, _ := strings.Cut(file(t, tasks[0]), "command=")
	command, _, _ = strings.Cut(command, "\n")
	c := exec.Command("/bin/sh", "-c", command)
	c.Env = []string{"PATH=" + bin, "HOME=" + bin}
	if out, err := c.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("%s: %v %s", command, err, out)
	}
	if line, err := lines.ReadString('\n'); err != nil || line != "handled\n" {
		t.Errorf("the handler said %q, %v", line, err)
	}
	push("self")
	if tasks, err = filepath.Glob(filepath.Join(home, "tasks/pending/self-*.txt")); err != nil || len(tasks) != 1 {
		t.Errorf("another author: tasks %q, %v", tasks, err)
	}
}

// One subscription that cannot be dispatched holds up no other.
func TestThreadDispatchGoesOn(t *testing.T) {
	dir, said := newThreadDir(t), filepath.Join(t.TempDir(), "said")
	lines := pipe(t, said)
	f := another(t, dir)
	for _, s := range [][3]any{{"a/b", "true", nil}, {"bad", "true", "type=message"}, {strings.Repeat("x", 300), "true", nil}, {"good", "echo started > " + said, "type = 'message'"}, {"other", "true", "type = 'record'"}} {
		execute1(t, f, "INSERT INTO subscriptions VALUES(?,?,?)", s[:]...)
	}
	if o := tool(t, "", "dispatch", "--thread", dir); o.code != 2 {
		t.Errorf("no events, but subscriptions that cannot be: %+v", o)
	}
	succeeds(t, "", "push", "--thread", dir, "--source", "s", "--type", "message", "--content", "x")
	o := tool(t, "", "dispatch", "--thread", dir)
	if o.code != 2 || o.out != "" || !errorLine.MatchString(o.err) || !strings.Contains(o.err, "'a/b'") || !strings.Contains(o.err, "'bad'") || !strings.Contains(o.err, "too long") {
		t.Errorf("%+v", o)
	}
	if line, err := lines.ReadString('\n'); err != nil || line != "started\n" {
		t.Errorf("the good one said %q, %v", line, err)
	}
	locks, err := filepath.Glob(filepath.Join(dir, "run", "*"))
	if err != nil || len(locks) != 1 || filepath.Base(locks[0]) != "good.lock" {
		t.Errorf("locks %q, %v", locks, err)
	}
}

// A home that somebody has and where nobody answers is waited for, not written.
func TestThreadHomeTaken(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h")
	dir := filepath.Join(home, "agents/a1/inbox")
	succeeds(t, "", "init", dir)
	if err := os.Mkdir(filepath.Join(home, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	l := flock.New(filepath.Join(home, "run/registry.lock"))
	for _, taken := range []bool{true, false} {
		timeout := time.Minute
		if taken {
			timeout = 300 * time.Millisecond
			if ok, err := l.TryLock(); err != nil || !ok {
				t.Fatal(ok, err)
			}
		} else if err := l.Unlock(); err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer // THECLAW_HOME is not set: the home shows in the path
		env := command.New(strings.NewReader(""), &out, &errs, func(string) string { return "" }, "test")
		env.Flags.Timeout = timeout
		code := command.Run(env, threadtool.New(env), []string{"peek", "--thread", dir, "--last-event-id", "0"})
		if taken && (code != 1 || !errorLine.MatchString(errs.String()) || !strings.Contains(errs.String(), home)) || !taken && code != 0 {
			t.Errorf("taken %v: exit %d, %s", taken, code, &errs)
		}
	}
}
