//go:build linux && proof

package sandbox

import (
	"crypto/rand"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// hostSecret is in the environment of the test process alone.
const hostSecret = "canary-of-the-host"

// A home is what there is to reach: a THECLAW_HOME with two agents, a process of
// the same user, sockets. Everything in it belongs to the user that the program is
// outside, open to all, so that only the sandbox is in the way.
type home struct {
	t        *testing.T
	uid      int
	root     string // THECLAW_HOME
	work     string // alice's workdir, the program's
	out      string // an empty directory anybody may write
	file     string // holds the secret
	secret   string
	env      map[string]string
	was      unix.Stat_t // of file
	inode    string
	calls    chan string // one for each connection that came through
	said     string      // the program
	box      *Sandbox
	cleanups []func()
	// Of the process outside.
	victim *os.Process
	died   chan struct{}
}

func newHome(t *testing.T, l Level, box *Sandbox) *home {
	t.Helper()
	w := &home{t: t, uid: os.Geteuid(), calls: make(chan string, 100), box: box, secret: "secret-" + rand.Text()}
	root := w.uid == 0
	if root && l != LevelBubblewrap && l != LevelOff {
		w.uid = nobody
	}
	dir, err := os.MkdirTemp("", "sandbox-test-")
	if err != nil {
		t.Fatal(err)
	}
	w.later(func() { _ = os.RemoveAll(dir) })
	w.root, w.out = filepath.Join(dir, "theclaw"), filepath.Join(dir, "out")
	w.work, w.file = filepath.Join(w.root, "agents/alice/workdir"), filepath.Join(w.root, "keys/provider")
	files := map[string]string{
		"keys/provider": w.secret, "run/token": w.secret, "agents/alice/agent.yaml": "# " + w.secret,
		"agents/bob/workdir/note": w.secret, "agents/bob/inbox/events.db": w.secret,
	}
	for name, text := range files {
		path := filepath.Join(w.root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{w.work, w.out} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w.env = map[string]string{
		"T_HOME": w.root, "T_OUT": w.out, "T_FILE": w.file, "T_MARK": w.secret, "T_RUNNER": strconv.Itoa(os.Getpid()),
		"T_SOCKET": filepath.Join(w.root, "run/registry.sock"),
	}
	w.listen("unix", w.env["T_SOCKET"])
	if root {
		w.own(dir)
		// A workdir of root is the usual case of a service that runs as root; the
		// level reduced refuses it.
		if l != LevelReduced {
			if err := os.Chown(w.work, 0, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(w.env["T_SOCKET"], 0o777); err != nil {
		t.Fatal(err)
	}
	if err := unix.Stat(w.file, &w.was); err != nil {
		t.Fatal(err)
	}
	w.inode = strconv.FormatUint(w.was.Ino, 10)
	return w
}

// own gives all of dir to the program's user.
func (w *home) own(dir string) {
	w.t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, w.uid, w.uid)
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *home) later(f func()) { w.cleanups = append(w.cleanups, f) }

func (w *home) end() {
	for i := len(w.cleanups) - 1; i >= 0; i-- {
		w.cleanups[i]()
	}
}

// listen tells of each connection, or datagram, that comes.
func (w *home) listen(network, address string) net.Addr {
	w.t.Helper()
	if strings.HasPrefix(network, "udp") {
		c, err := net.ListenPacket(network, address)
		if err != nil {
			w.t.Fatal(err)
		}
		w.later(func() { _ = c.Close() })
		go func() {
			for b := make([]byte, 16); ; {
				if _, _, err := c.ReadFrom(b); err != nil {
					return
				}
				w.calls <- network
			}
		}()
		return c.LocalAddr()
	}
	l, err := net.Listen(network, address)
	if err != nil {
		w.t.Fatal(err)
	}
	w.later(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.calls <- network
			_ = c.Close()
		}
	}()
	return l.Addr()
}

// victimArg makes the test binary a process that waits to be harmed.
const victimArg = "sandbox-victim"

func init() { children[victimArg] = runVictim }

// runVictim holds the secret in its memory, environment and a descriptor, says
// where it is in memory, and waits.
func runVictim(secret string) int {
	memory := []byte("memory:" + secret)
	_, _ = os.Stdout.WriteString(strconv.FormatUint(uint64(addressOf(memory)), 16) + "\n")
	_, _ = os.Stdin.Read(make([]byte, 1))
	return int(memory[0]) // still in use
}

// process starts the victim: T_PID, T_ADDRESS, T_FD, its secret in T_SECRET of its
// environment and in its command line.
func process(w *home) {
	w.t.Helper()
	binary, err := self()
	if err != nil {
		w.t.Fatal(err)
	}
	f, err := os.Open(w.file)
	if err != nil {
		w.t.Fatal(err)
	}
	defer f.Close()
	c := exec.Command(binary, victimArg, w.secret)
	c.ExtraFiles = []*os.File{f}
	c.Env = []string{"T_SECRET=" + w.secret}
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() == 0 {
		c.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(w.uid), Gid: uint32(w.uid)}
	}
	in, err := c.StdinPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		w.t.Fatal(err)
	}
	line := make([]byte, 64)
	n, err := out.Read(line)
	if err != nil {
		w.t.Fatal(err)
	}
	w.victim, w.died = c.Process, make(chan struct{})
	go func() {
		_ = c.Wait() // it is killed in the end
		close(w.died)
	}()
	w.later(func() {
		_ = unix.Kill(c.Process.Pid, unix.SIGCONT)
		_ = c.Process.Kill()
		_ = in.Close()
		<-w.died
	})
	w.env["T_PID"] = strconv.Itoa(c.Process.Pid)
	w.env["T_ADDRESS"] = strings.TrimSpace(string(line[:n]))
	w.env["T_FD"] = "3"
}

// stat is the file as it is now; ok is false when it is gone.
func (w *home) stat() (st unix.Stat_t, ok bool) { return st, unix.Stat(w.file, &st) == nil }

// is tells whether the file below the home or the empty directory is there.
func is(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// running lists the processes whose command line holds text.
func running(text string) (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range all {
		b, err := os.ReadFile(p)
		if err != nil || !strings.Contains(string(b), text) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(p))); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// stray is the evidence of a program that outlives its run, and ends it.
func stray(w *home, _ Result) any {
	pids := running("stray-" + w.secret)
	for _, p := range pids {
		_ = unix.Kill(p, unix.SIGKILL)
	}
	return len(pids) > 0
}
