//go:build linux

package sandbox

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/theclaw/agents/internal/testing/need"
)

// attemptArg makes the test binary one attempt, inside the sandbox.
const attemptArg = "sandbox-attempt"

// An attempt tries to get out. A shell line that ends with 0, or a function that
// returns nil, has got out.
type attempt struct {
	name  string
	shell string
	run   func() error
	// leaks are the levels where it is known to work; doc.go names them.
	leaks []Level
	// moot: nothing is gained where the program is uid 0 without any right already.
	moot bool
	// needs asks for what the attempt needs of the machine; nil: nothing.
	needs func(t testing.TB)
}

// counts are attempts that are no escapes: they count how far they get.
var counts []attempt

// What an attempt knows of the world outside, as variables.
const (
	envSecret   = "T_SECRET"   // a file
	envPID      = "T_PID"      // a process of the same user
	envTCP      = "T_TCP"      // ports on loopback
	envTCP6     = "T_TCP6"     //
	envUDP      = "T_UDP"      //
	envUnix     = "T_UNIX"     // a path socket
	envAbstract = "T_ABSTRACT" // an abstract socket
	envShm      = "T_SHM"      // a SysV shared memory key
	envCanary   = "T_CANARY"   // set in our own environment only
)

// runAttempt is the child's side.
func runAttempt(name string) int {
	for _, a := range slices.Concat(goAttempts, counts) {
		if a.name == name && a.run != nil {
			if err := a.run(); err != nil {
				fmt.Println(err)
				return 1
			}
			return 0
		}
	}
	fmt.Println("no such attempt")
	return 3
}

// TestEscape is acceptance S4: every attempt on every driver of this host.
func TestEscape(t *testing.T) {
	t.Setenv(envCanary, "canary")
	for _, c := range []struct {
		l       Level
		noIdmap bool // root's program is root outside, with no right: the worst case
	}{{LevelFull, false}, {LevelFull, true}, {LevelBubblewrap, false}, {LevelPrivileged, false}, {LevelPrivileged, true}, {LevelReduced, false}} {
		name, l := string(c.l), c.l
		if c.noIdmap {
			name += " as owner"
		}
		t.Run(name, func(t *testing.T) {
			s := only(t, l)
			if c.noIdmap {
				breakIdmap(t, s)
			}
			w := newWorld(t)
			for _, a := range slices.Concat(attempts, goAttempts) {
				if a.moot && c.noIdmap && l == LevelPrivileged {
					continue
				}
				t.Run(a.name, func(t *testing.T) { w.try(t, s, l, a) })
			}
			w.untouched(t)
		})
	}
}

// breakIdmap makes id-mapped mounts fail, as some file systems do.
func breakIdmap(t *testing.T, s *Sandbox) {
	t.Helper()
	need.Root(t) // others map no ids
	f, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	s.idmap.by[[2]int{0, 0}] = f
}

// TestControl makes some of the attempts without a sandbox: they must get out, or
// the table proves nothing.
func TestControl(t *testing.T) {
	s := only(t, LevelOff)
	w := newWorld(t)
	for _, a := range slices.Concat(attempts, goAttempts) {
		switch a.name {
		case "read secret", "stat secret", "hard link to secret", "dot dot", "host's users", "list /sys", "command line outside",
			"privileges can grow", "no seccomp", "tcp loopback", "mptcp loopback", "path socket", "abstract socket", "clone3",
			"symlink race", "signal outside":
			t.Run(a.name, func(t *testing.T) {
				if r := w.run(t, s, LevelOff, a); r.ExitCode != 0 {
					t.Errorf("refused without a sandbox: code %d: %s%s", r.ExitCode, r.Stdout, r.Stderr)
				}
			})
		}
	}
}

// A world is what there is to reach outside.
type world struct {
	env    map[string]string
	secret string
	before unix.Stat_t
	victim *exec.Cmd
	died   chan error
	calls  chan string // one for each connection that should not be
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{env: map[string]string{}, calls: make(chan string, 1000), died: make(chan error, 1)}
	dir := outside(t)
	w.secret = filepath.Join(dir, "secret")
	if err := os.WriteFile(w.secret, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	// Of the program's user where that is not us, so that only the sandbox is in the way.
	mine := os.Geteuid() != 0
	if !mine {
		for _, p := range []string{dir, w.secret} {
			if err := os.Chown(p, nobody, nobody); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := unix.Stat(w.secret, &w.before); err != nil {
		t.Fatal(err)
	}
	w.victim = exec.Command("sleep", "1000")
	w.victim.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if !mine {
		w.victim.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	if err := w.victim.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { w.died <- w.victim.Wait() }()
	t.Cleanup(func() { _ = w.victim.Process.Kill() })

	serve := func(network, address string) net.Addr {
		l, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				w.calls <- network + " " + address
				_ = c.Close()
			}
		}()
		return l.Addr()
	}
	udp, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = udp.Close() })
	go func() {
		for b := make([]byte, 16); ; {
			if _, _, err := udp.ReadFrom(b); err != nil {
				return
			}
			w.calls <- "udp"
		}
	}()
	port := func(a net.Addr) string { _, p, _ := net.SplitHostPort(a.String()); return p }
	w.env[envTCP] = port(serve("tcp4", "127.0.0.1:0"))
	if l, err := net.Listen("tcp6", "[::1]:0"); err == nil {
		_ = l.Close()
		w.env[envTCP6] = port(serve("tcp6", "[::1]:0"))
	}
	w.env[envUDP] = port(udp.LocalAddr())
	w.env[envUnix] = serve("unix", filepath.Join(dir, "socket")).String()
	if err := os.Chmod(w.env[envUnix], 0o777); err != nil {
		t.Fatal(err)
	}
	w.env[envAbstract] = strings.TrimPrefix(serve("unix", fmt.Sprintf("@sandbox-test-%d", os.Getpid())).String(), "@")
	w.env[envSecret] = w.secret
	w.env[envPID] = strconv.Itoa(w.victim.Process.Pid)
	key := os.Getpid()
	if id, err := unix.SysvShmGet(key, 4096, unix.IPC_CREAT|0o666); err == nil {
		t.Cleanup(func() { _, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil) })
		w.env[envShm] = strconv.Itoa(key)
	}
	return w
}

func (w *world) run(t *testing.T, s *Sandbox, l Level, a attempt) Result {
	t.Helper()
	c := Command{Shell: a.shell, Workdir: workdir(t, l), Env: w.env, Timeout: 30 * time.Second}
	if a.run != nil {
		binary, err := self()
		if err != nil {
			t.Fatal(err)
		}
		c.Argv = []string{binary, attemptArg, a.name}
	}
	r, err := s.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (w *world) try(t *testing.T, s *Sandbox, l Level, a attempt) {
	if a.needs != nil {
		a.needs(t)
	}
	r := w.run(t, s, l, a)
	said := strings.TrimSpace(Text(r.Stdout) + Text(r.Stderr))
	switch {
	case r.TimedOut || r.ExitCode == 3 || r.ExitCode == 127:
		t.Errorf("the attempt did not run: code %d: %s", r.ExitCode, said)
	case r.ExitCode == 0 && slices.Contains(a.leaks, l):
		t.Logf("known leak of %s: %s", l, said)
	case r.ExitCode == 0:
		t.Errorf("escaped: %s", said)
	default:
		t.Logf("refused: %s", said)
	}
}

// untouched looks at the world from outside: it does not trust what attempts say.
func (w *world) untouched(t *testing.T) {
	t.Helper()
	var now unix.Stat_t
	if err := unix.Stat(w.secret, &now); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(w.secret)
	if err != nil || string(b) != "secret" {
		t.Errorf("the secret is %q now, %v", b, err)
	}
	leaky := t.Name() == "TestEscape/"+string(LevelReduced)
	if !leaky && (now.Mode != w.before.Mode || now.Uid != w.before.Uid || now.Mtim != w.before.Mtim || now.Ctim != w.before.Ctim) {
		t.Errorf("the secret's metadata changed: %+v, was %+v", now, w.before)
	}
	entries, err := os.ReadDir(filepath.Dir(w.secret))
	if err != nil || len(entries) != 2 {
		t.Errorf("the secret's directory has %d entries, want 2: %v", len(entries), err)
	}
	select {
	case call := <-w.calls:
		t.Errorf("a connection came through: %s", call)
	case err := <-w.died:
		t.Errorf("the process outside died: %v", err)
	default:
	}
}
