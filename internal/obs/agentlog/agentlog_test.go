package agentlog_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/theclaw/agents/internal/obs/agentlog"
	"github.com/theclaw/agents/internal/obs/redact"
	"github.com/theclaw/agents/internal/testing/need"
)

const childDir = "AGENTLOG_TEST_AGENT_LOG_DIR"

// TestMain lets the test binary be the second writing process.
func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		n, err := strconv.Atoi(os.Getenv(childDir + "_LINES"))
		log := agentlog.New(nil)
		for i := 0; i < n && err == nil; i++ {
			err = log.Append(dir, agentlog.Line{Text: fmt.Sprint("child ", i)})
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child starts a second process that appends n lines to dir.
func child(t *testing.T, dir string, n int) (wait func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir, childDir+"_LINES="+strconv.Itoa(n))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := cmd.Wait(); err != nil {
			t.Errorf("child: %v: %s", err, out.Bytes())
		}
	}
}

// logs returns the lines of agent.log and, by name, of the rotated files.
func logs(t *testing.T, dir string) (current []string, rotated map[string][]string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	rotated = make(map[string][]string)
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if fi, err := e.Info(); err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, want 0600 (S9)", e.Name(), fi.Mode())
		}
		lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
		if e.Name() == "agent.log" {
			current = lines
		} else {
			rotated[e.Name()] = lines
		}
	}
	return current, rotated
}

func fill(t *testing.T, log *agentlog.Log, dir string, n int) {
	t.Helper()
	lines := make([]agentlog.Line, n)
	for i := range lines {
		lines[i].Text = fmt.Sprint("fill ", i)
	}
	if err := log.Append(dir, lines...); err != nil {
		t.Fatal(err)
	}
}

const secret = "canary/4711+Zq"

var rotatedName = regexp.MustCompile(`^agent-\d{8}-\d{6}(-\d+)?\.log$`)

// S0-140.
func TestLogLineFormat(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	log := agentlog.New(redact.New(secret))
	at := time.Date(2026, 11, 20, 10, 49, 31, 732e6, time.FixedZone("x", 3600)).Add(time.Hour)
	if err := log.Append(dir, agentlog.Line{At: at, Level: agentlog.Info, Text: "a\nb " + secret}, agentlog.Line{Level: agentlog.Warn, Text: "now"}); err != nil {
		t.Fatal(err)
	}
	got, _ := logs(t, dir)
	if want := `[2026-11-20T10:49:31.732Z] [INFO] a\nb [redacted]`; len(got) != 2 || got[0] != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if re := regexp.MustCompile(`^\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\] \[WARN\] now$`); !re.MatchString(got[len(got)-1]) {
		t.Errorf("line %q", got[len(got)-1])
	}
	if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("logs directory %v %v, want 0700 (S9)", fi.Mode(), err)
	}
}

// S0-141: 10,001 lines from two services at once: no lost line, one rotation.
func TestLogRotatesOnceUnderTwoProcesses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	log := agentlog.New(nil)
	wait := child(t, dir, 3333)
	var wg sync.WaitGroup
	for _, who := range []string{"left", "right"} {
		wg.Go(func() {
			for i := range 3334 {
				if err := log.Append(dir, agentlog.Line{Text: fmt.Sprint(who, " ", i)}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	wait()
	current, rotated := logs(t, dir)
	if len(rotated) != 1 || len(current) != 1 {
		t.Fatalf("%d rotated files, %d lines left", len(rotated), len(current))
	}
	next := map[string]int{} // each writer's lines, all there, in its own order
	for name, lines := range rotated {
		if !rotatedName.MatchString(name) || len(lines) != 10000 {
			t.Errorf("%s has %d lines", name, len(lines))
		}
		for _, line := range append(lines, current...) {
			_, text, _ := strings.Cut(line, "[INFO] ")
			who, n, _ := strings.Cut(text, " ")
			if n != strconv.Itoa(next[who]) {
				t.Fatalf("line %q, want number %d", line, next[who])
			}
			next[who]++
		}
	}
	if next["left"] != 3334 || next["right"] != 3334 || next["child"] != 3333 {
		t.Errorf("lines by writer: %v", next)
	}
}

func TestLogNeverOverwritesARotatedFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	log := agentlog.New(nil)
	fill(t, log, dir, 40001) // four rotations, several within one second
	current, rotated := logs(t, dir)
	if len(current) != 1 || len(rotated) != 4 {
		t.Fatalf("%d lines, %d rotated", len(current), len(rotated))
	}
	for name, lines := range rotated {
		if !rotatedName.MatchString(name) || len(lines) != 10000 {
			t.Errorf("%s: %d lines", name, len(lines))
		}
	}
}

// The count survives a restart, a torn last line and a foreign rotation.
func TestLogCountsAFoundFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	first := agentlog.New(nil)
	fill(t, first, dir, 9998)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "agent.log")
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("torn"); err != nil {
		t.Fatal(err)
	}
	f.Close()

	second := agentlog.New(nil)
	fill(t, second, dir, 2) // 9,998 + torn + 1 = 10,000, then a new file
	current, rotated := logs(t, dir)
	if len(current) != 1 || len(rotated) != 1 {
		t.Fatalf("%d lines, %d rotated", len(current), len(rotated))
	}
	for _, lines := range rotated {
		if len(lines) != 10000 || lines[9998] != "torn" {
			t.Errorf("%d lines, torn one is %q", len(lines), lines[9998])
		}
	}
	if err := os.Rename(path, filepath.Join(dir, "agent-20000101-000000.log")); err != nil {
		t.Fatal(err)
	}
	fill(t, second, dir, 1)
	if current, _ := logs(t, dir); len(current) != 1 {
		t.Errorf("after a foreign rotation: %d lines", len(current))
	}
}

func TestLogRefusesASymlink(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(t.TempDir(), "victim")
	if err := os.Symlink(target, filepath.Join(dir, "agent.log")); err != nil {
		t.Fatal(err)
	}
	if err := agentlog.New(nil).Append(dir, agentlog.Line{Text: "x"}); err == nil {
		t.Error("wrote through a symlink")
	}
	if _, err := os.Stat(target); err == nil {
		t.Error("the link's target was made")
	}
	if err := agentlog.New(nil).Append(filepath.Join(dir, "gone", "logs"), agentlog.Line{Text: "x"}); err == nil {
		t.Error("brought a removed agent directory back")
	}
}

// A writer stopped with the lock in its hand delays others, and no line is lost.
func TestLogWritesWhileTheLockIsStuck(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	log := agentlog.NewWithLockWait(time.Millisecond)
	fill(t, log, dir, 1)
	f, err := os.OpenFile(filepath.Join(dir, "agent.log"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	fill(t, log, dir, 1)
	if current, _ := logs(t, dir); len(current) != 2 {
		t.Errorf("%d lines", len(current))
	}
}

// One descriptor per agent would run out at some thousand agents (I19).
func TestLogHoldsFewDescriptors(t *testing.T) {
	root := t.TempDir()
	log := agentlog.New(nil)
	before := descriptors(t)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 300 {
				dir := filepath.Join(root, fmt.Sprint("a", (i*7+w)%150))
				if err := log.Append(dir, agentlog.Line{Text: "x"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := descriptors(t) - before; n > 64 {
		t.Errorf("%d descriptors held", n)
	}
	total := 0
	for i := range 150 {
		dir := filepath.Join(root, fmt.Sprint("a", i))
		lines, _ := logs(t, dir)
		total += len(lines)
		if err := log.Forget(dir); err != nil {
			t.Error(err)
		}
	}
	if total != 1200 {
		t.Errorf("%d lines, want 1200", total)
	}
	if n := descriptors(t) - before; n > 0 {
		t.Errorf("%d descriptors after Forget", n)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	e, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		need.Missing(t, "/proc", "run it on Linux")
	}
	return len(e)
}
