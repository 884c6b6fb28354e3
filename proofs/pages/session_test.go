//go:build proof

package pages_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/testing/need"
	"github.com/theclaw/agents/proofs/pages"
)

// deadline bounds a block; those that may compile have more.
const (
	deadline      = time.Minute
	setupDeadline = 5 * time.Minute
	heavyDeadline = 20 * time.Minute
)

// prepare runs in the namespaces of the session, before the page: loopback is the only
// network, and the directory of the page takes the place of /tmp. What the programs need
// and lies below /tmp remains where it is.
const prepare = `
set -eu
ip link set lo up
page=$1; shift
for path; do
	[ -e "$path" ] || continue
	case $path in
	/tmp/*) mkdir -p "$page${path#/tmp}"; mount --rbind "$path" "$page${path#/tmp}" ;;
	esac
done
mount --rbind "$page" /tmp
cd /tmp/agents
exec bash --noprofile --norc -c "$SESSION"
`

// session is the one shell of a page. It reads the name of a file with commands from
// descriptor 3, and answers on descriptor 4 how many of its commands exited with another
// status than 0. Its own files have no place in /tmp. A background process keeps the output of its block open,
// so the output is a file, whose end is not waited for.
const session = `
set -m
trap 'printf x >>/tmp/.page/failures' ERR
while IFS= read -r __n <&3; do
	: >/tmp/.page/failures
	. "/tmp/.page/block-$__n" </dev/null >"/tmp/.page/output-$__n" 2>&1 3<&- 4>&-
	stat -c %s /tmp/.page/failures >&4
done
`

// A shell is a session that runs.
type shell struct {
	cmd     *exec.Cmd
	dir     string // /tmp of the session
	blocks  io.Writer
	results *bufio.Reader
	count   int
}

// start begins a session in a copy of the tree.
func start(t *testing.T, tree, root string) *shell {
	t.Helper()
	s := &shell{dir: t.TempDir()}
	options := []string{"--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"}
	if os.Geteuid() != 0 {
		options = append([]string{"--user", "--map-root-user"}, options...)
	}
	need.Namespaces(t, options...)
	for _, name := range []string{".page", "home", "agents"} {
		check(t, os.Mkdir(filepath.Join(s.dir, name), 0o700))
	}
	check(t, os.Chmod(s.dir, 0o1777))
	copyTree(t, tree, filepath.Join(s.dir, "agents"))

	paths := []string{goEnv(t, "GOCACHE"), goEnv(t, "GOMODCACHE"), goEnv(t, "GOROOT"), filepath.Join(root, packages)}
	ctx, cancel := context.WithCancel(context.Background())
	s.cmd = exec.CommandContext(ctx, "unshare", append(options, append([]string{"bash", "-c", prepare, "prepare", s.dir}, paths...)...)...)
	s.cmd.Env = []string{
		"PATH=/tmp/agents/.bin:" + os.Getenv("PATH"), "HOME=/tmp/home", "TMPDIR=/tmp", "LANG=C.UTF-8", "SESSION=" + session,
		"USER=me", "GOCACHE=" + paths[0], "GOMODCACHE=" + paths[1], "GOFLAGS=-trimpath -buildvcs=false -tags=grpcnotrace", "GOPROXY=off",
		"CGO_ENABLED=0", "MAKEFLAGS= -- VERSION=" + version(),
	}
	blocks, in, err := os.Pipe()
	check(t, err)
	out, results, err := os.Pipe()
	check(t, err)
	s.cmd.ExtraFiles = []*os.File{blocks, results}
	s.cmd.Stdout, s.cmd.Stderr = os.Stderr, os.Stderr // nothing, unless it cannot begin
	s.blocks, s.results = in, bufio.NewReader(out)
	check(t, s.cmd.Start())
	_, _ = blocks.Close(), results.Close() // the session has them
	t.Cleanup(func() {
		_ = in.Close()
		cancel() // which ends every process of the session
		_ = s.cmd.Wait()
		_ = out.Close()
	})
	return s
}

var errDeadline = errors.New("it is not finished at its deadline")

// run runs commands in the session and answers how many failed and what they printed.
func (s *shell) run(commands string, limit time.Duration) (failed int, output []string, err error) {
	s.count++
	name := func(kind string) string { return filepath.Join(s.dir, ".page", kind+strconv.Itoa(s.count)) }
	// The last command keeps the status of the block from counting as one more failure.
	if err := os.WriteFile(name("block-"), []byte(commands+":\n"), 0o600); err != nil {
		return 0, nil, err
	}
	if _, err := fmt.Fprintln(s.blocks, s.count); err != nil {
		return 0, nil, err
	}
	ended := make(chan error, 1)
	go func() {
		line, err := s.results.ReadString('\n')
		if err == nil {
			failed, err = strconv.Atoi(strings.TrimSpace(line))
		}
		ended <- err
	}()
	select {
	case err = <-ended:
	case <-time.After(limit):
		_ = s.cmd.Process.Kill()
		<-ended
		err = errDeadline
	}
	text, readErr := os.ReadFile(name("output-"))
	if err == nil {
		err = readErr
	}
	return failed, strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"), err
}

// version is what the Makefile of the tree calls the programs in .bin: without git a copy
// of the tree has none, and would link them again.
func version() string {
	c := exec.Command("git", "describe", "--always", "--dirty")
	c.Dir = "../.."
	out, err := c.Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	check(t, err)
	return strings.TrimSpace(string(out))
}

// copyTree copies a directory with the times of its files.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", from+"/.", to).CombinedOutput(); err != nil {
		t.Fatalf("copy the tree: %v\n%s", err, out)
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A result is what became of the blocks of a page.
type result struct {
	blocks                               int
	ran, failed, setups, compared, shown int
	listed                               []string // the blocks that were not run, and why
}

// runPage runs the blocks of a page; what is wrong with one fails the test.
func runPage(t *testing.T, name string, blocks []pages.Block, tree, root string, heavy bool) (r result) {
	t.Helper()
	var s *shell
	for _, b := range blocks {
		r.blocks++
		limit := deadline
		switch {
		case b.Kind == pages.Shown, b.Kind == pages.Heavy && !heavy:
			r.shown++
			r.listed = append(r.listed, fmt.Sprintf("%s:%d: %s", name, b.Line, b.Reason))
			continue
		case b.Kind == pages.Setup:
			limit = setupDeadline
		case b.Kind == pages.Heavy:
			limit = heavyDeadline
		}
		if s == nil {
			s = start(t, tree, root)
		}
		began := time.Now()
		failed, output, err := s.run(b.Commands, limit)
		t.Logf("%s:%d: %s, %d failed, %.1fs", name, b.Line, b.Kind, failed, time.Since(began).Seconds())
		if err != nil {
			t.Errorf("%s:%d: %v; its output:\n%s", name, b.Line, err, strings.Join(output, "\n"))
			return r // the shell is gone
		}
		switch {
		case b.Kind == pages.Fails && failed == 0:
			t.Errorf("%s:%d: no command failed; the output:\n%s", name, b.Line, strings.Join(output, "\n"))
		case b.Kind != pages.Fails && failed > 0:
			t.Errorf("%s:%d: %d commands failed; the output:\n%s", name, b.Line, failed, strings.Join(output, "\n"))
		}
		switch b.Kind {
		case pages.Setup:
			r.setups++
		case pages.Fails:
			r.failed++
		default:
			r.ran++
		}
		if !b.Compared {
			continue
		}
		r.compared++
		if want, got := pages.Normalize(b.Output), pages.Normalize(output); !pages.Matches(want, got) {
			t.Errorf("%s:%d: the output is another. The page, normalized:\n  %s\nthe command, normalized:\n  %s\nas it was:\n%s",
				name, b.Line, strings.Join(want, "\n  "), strings.Join(got, "\n  "), strings.Join(output, "\n"))
		}
	}
	return r
}

// A session counts the commands that fail, keeps its state between blocks, waits for no
// background process, sees neither the network nor the files in /tmp of others, and ends
// with all its processes at a deadline.
func TestSession(t *testing.T) {
	tree := t.TempDir()
	s := start(t, tree, tree)
	for _, c := range []struct {
		commands string
		failed   int
		output   string
	}{
		{"false; echo a; false || echo b\ncd /; X=1\n", 1, "a\nb"},
		{"echo $X $PWD >&2; (exit 3)\n", 1, "1 /"},
		{"sleep 1000 & echo $HOME; ls -A ~ | wc -l\n", 0, "/tmp/home\n0"},
		{"ip -o link | wc -l; ls /tmp\n", 0, "1\nagents\nhome"},
		{"cat\n", 0, ""},
		{"exit() { echo no; }; if\n", 1, ""},
	} {
		failed, output, err := s.run(c.commands, deadline)
		got := strings.Join(output, "\n")
		if err != nil || failed != c.failed || got != c.output && !strings.Contains(got, "syntax error") {
			t.Errorf("%q: %d failed, %v, printed %q, want %d and %q", c.commands, failed, err, got, c.failed, c.output)
		}
	}
	if _, _, err := s.run("sleep 1000\n", time.Millisecond); !errors.Is(err, errDeadline) {
		t.Errorf("a block without an end: %v", err)
	}
	if err := s.cmd.Wait(); err == nil {
		t.Error("the session goes on after its deadline")
	}
}
