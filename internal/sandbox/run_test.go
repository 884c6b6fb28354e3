//go:build linux

package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/testing/need"
)

func itoa(n int) string { return strconv.Itoa(n) }

func atoi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func mustRun(t *testing.T, s *Sandbox, c Command) Result {
	t.Helper()
	r, err := s.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// S0-104: shell, workdir, stdout, stderr and exit code.
func TestRun(t *testing.T) {
	eachLevel(t, func(t *testing.T, l Level) {
		s, dir := only(t, l), workdir(t, l)
		if err := os.WriteFile(filepath.Join(dir, "here"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			name           string
			command        Command
			stdout, stderr string
			code           int
			signal         string
		}{
			{name: "ls", command: Command{Shell: "ls"}, stdout: "here\n"},
			{name: "pwd", command: Command{Shell: "pwd"}, stdout: dir + "\n"},
			{name: "direct", command: Command{Argv: []string{"echo", "a  b", "$HOME"}}, stdout: "a  b $HOME\n"},
			{name: "streams", command: Command{Shell: "echo out; echo err >&2"}, stdout: "out\n", stderr: "err\n"},
			{name: "stream by path", command: Command{Shell: "echo err >/dev/stderr"}, stderr: "err\n"},
			{name: "code", command: Command{Shell: "exit 42"}, code: 42},
			{name: "signal", command: Command{Shell: "kill -TERM $$"}, code: 143, signal: "SIGTERM"},
			{name: "kill", command: Command{Shell: "kill -KILL $$"}, code: 137, signal: "SIGKILL"},
			{name: "not found", command: Command{Argv: []string{"no-such-program"}}, stderr: "no-such-program: not found\n", code: 127},
			{name: "no input", command: Command{Shell: "cat"}},
			{name: "quotes", command: Command{Shell: `printf '%s' "a'b\"c"`}, stdout: `a'b"c`},
			{name: "pipe fails", command: Command{Shell: "yes | head -n 1"}, stdout: "y\n"},
			{name: "private tmp", command: Command{Shell: `echo x >"$TMPDIR/x" && cat "$TMPDIR/x"`}, stdout: "x\n"},
		} {
			t.Run(c.name, func(t *testing.T) {
				c.command.Workdir, c.command.Timeout = dir, 30*time.Second
				r := mustRun(t, s, c.command)
				if string(r.Stdout) != c.stdout || string(r.Stderr) != c.stderr || r.ExitCode != c.code || r.Signal != c.signal {
					t.Errorf("got %q, %q, %d %s", r.Stdout, r.Stderr, r.ExitCode, r.Signal)
				}
				if r.TimedOut || r.Canceled || r.Truncated || r.Duration <= 0 {
					t.Errorf("got %+v", r)
				}
			})
		}
	})
}

// What a program writes belongs to the workdir's owner, and stays.
func TestOwner(t *testing.T) {
	eachLevel(t, func(t *testing.T, l Level) {
		s, dir := only(t, l), workdir(t, l)
		r := mustRun(t, s, Command{Shell: "mkdir a && echo x >a/b", Workdir: dir})
		if r.ExitCode != 0 {
			t.Fatalf("code %d: %s", r.ExitCode, r.Stderr)
		}
		wantUID, wantGID, err := owner(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []string{"a", "a/b"} {
			uid, gid, err := owner(filepath.Join(dir, p))
			if err != nil || uid != wantUID || gid != wantGID {
				t.Errorf("%s belongs to %d:%d, want %d:%d, %v", p, uid, gid, wantUID, wantGID, err)
			}
		}
	})
}

// As root, programs are another user even where the workdir is root's, and a
// workdir of another user is that user's.
func TestIdentityOfRoot(t *testing.T) {
	need.Root(t)
	for _, l := range []Level{LevelFull, LevelPrivileged} {
		for _, uid := range []int{0, 12345} {
			t.Run(string(l)+"/"+itoa(uid), func(t *testing.T) {
				s, dir := only(t, l), workdir(t, l)
				if err := os.Chown(dir, uid, uid); err != nil {
					t.Fatal(err)
				}
				r := mustRun(t, s, Command{Shell: "awk '$1 <= 1000 && 1000 < $1+$3 { print $2 }' /proc/self/uid_map; id -u; echo x >x", Workdir: dir})
				lines := strings.Fields(string(r.Stdout))
				if len(lines) != 2 {
					t.Fatalf("got %q, %q", r.Stdout, r.Stderr)
				}
				host := lines[1]
				if l == LevelFull {
					host = lines[0]
				}
				if host == "0" {
					t.Error("the program is root on the host")
				}
				if got, _, err := owner(filepath.Join(dir, "x")); err != nil || got != uid {
					t.Errorf("the file belongs to %d, want %d, %v", got, uid, err)
				}
			})
		}
	}
}

// S0-104: the environment is an allow-list and what the caller adds.
func TestEnvironment(t *testing.T) {
	t.Setenv("PROVIDER_KEY", "secret")
	eachLevel(t, func(t *testing.T, l Level) {
		s, dir := only(t, l), workdir(t, l)
		r := mustRun(t, s, Command{Argv: []string{"env"}, Workdir: dir, Env: map[string]string{"XAR_AGENT_ID": "a", "XAR_CONV_ID": "c d"}})
		var names []string
		for line := range strings.Lines(string(r.Stdout)) {
			name, _, _ := strings.Cut(line, "=")
			names = append(names, name)
		}
		slices.Sort(names)
		want := []string{"HOME", "LANG", "PATH", "PWD", "SHELL", "TERM", "TMPDIR", "USER", "XAR_AGENT_ID", "XAR_CONV_ID"}
		if !slices.Equal(names, want) {
			t.Errorf("got %q, want %q", names, want)
		}
		if !strings.Contains(string(r.Stdout), "XAR_CONV_ID=c d\n") {
			t.Errorf("got %q", r.Stdout)
		}
	})
}

// Only its own processes, its own loopback and a few devices are there.
func TestPicture(t *testing.T) {
	for _, l := range []Level{LevelFull, LevelBubblewrap, LevelPrivileged} {
		t.Run(string(l), func(t *testing.T) {
			s, dir := only(t, l), workdir(t, l)
			r := mustRun(t, s, Command{Workdir: dir, Shell: `
ls / | tr '\n' ' '; echo
tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '
test "$(ls -d /proc/[0-9]* | wc -l)" -le 8 && echo few
grep -h -E 'Cap|NoNew|Seccomp:' /proc/self/status
exec 3<>/dev/tcp/127.0.0.1/9 || echo refused`})
			got := string(r.Stdout)
			for _, want := range []string{
				"\nlo\n", "\nfew\n", "CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000",
				"CapAmb:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2",
			} {
				if !strings.Contains(got, want) {
					t.Errorf("no %q in %q (%s)", want, got, r.Stderr)
				}
			}
			first, _, _ := strings.Cut(got, "\n")
			for _, hidden := range []string{"root", "home", "var", "run", "sys", "boot", "srv", "opt"} {
				if slices.Contains(strings.Fields(first), hidden) {
					t.Errorf("/%s is there: %q", hidden, first)
				}
			}
		})
	}
}

// With Network the host's loopback is there, and only then.
func TestNetwork(t *testing.T) {
	eachLevel(t, func(t *testing.T, l Level) {
		if l == LevelReduced || l == LevelOff {
			need.Inapplicable(t, "this level has no network namespace")
		}
		s := only(t, l)
		w := newWorld(t)
		for _, open := range []bool{false, true} {
			r := mustRun(t, s, Command{Shell: `exec 3<>"/dev/tcp/127.0.0.1/$T_TCP"`, Workdir: workdir(t, l), Env: w.env, Network: open})
			if (r.ExitCode == 0) != open {
				t.Errorf("network %t: code %d: %s", open, r.ExitCode, r.Stderr)
			}
		}
	})
}

func TestInvalidCommand(t *testing.T) {
	forbidden := outside(t)
	s := with(t, LevelOff, Options{Forbidden: []string{filepath.Join(forbidden, "home", "run")}})
	dir := workdir(t, LevelOff)
	if err := os.MkdirAll(filepath.Join(forbidden, "home", "run", "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(outside(t), "link")
	if err := os.Symlink(filepath.Join(forbidden, "home"), link); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]Command{
		"nothing":          {Workdir: dir},
		"both":             {Shell: "x", Argv: []string{"x"}, Workdir: dir},
		"NUL":              {Shell: "a\x00b", Workdir: dir},
		"NUL argument":     {Argv: []string{"a", "\x00"}, Workdir: dir},
		"variable":         {Shell: "x", Workdir: dir, Env: map[string]string{"A=B": "c"}},
		"value":            {Shell: "x", Workdir: dir, Env: map[string]string{"A": "\x00"}},
		"long":             {Shell: "x", Workdir: dir, Timeout: MaxAge + time.Second},
		"negative":         {Shell: "x", Workdir: dir, Timeout: -1},
		"no workdir":       {Shell: "x"},
		"relative":         {Shell: "x", Workdir: "x"},
		"unclean":          {Shell: "x", Workdir: dir + "/../" + filepath.Base(dir)},
		"missing":          {Shell: "x", Workdir: dir + "-missing"},
		"root":             {Shell: "x", Workdir: "/"},
		"system":           {Shell: "x", Workdir: "/usr/lib"},
		"tmp":              {Shell: "x", Workdir: "/tmp"},
		"forbidden":        {Shell: "x", Workdir: filepath.Join(forbidden, "home", "run")},
		"in forbidden":     {Shell: "x", Workdir: filepath.Join(forbidden, "home", "run", "x")},
		"around forbidden": {Shell: "x", Workdir: filepath.Join(forbidden, "home")},
		"link around it":   {Shell: "x", Workdir: link},
	} {
		_, err := s.Run(t.Context(), c)
		if f, ok := errors.AsType[*fault.Error](err); !ok || f.Code != codes.InvalidArgument || f.Fix == "" {
			t.Errorf("%s: got %v, want INVALID_ARGUMENT", name, err)
		}
	}
}
