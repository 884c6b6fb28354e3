//go:build linux && proof

package sandbox

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// fileBreaches want to read or change what lies outside of the workdir.
var fileBreaches = []breach{
	{name: "read a file", shell: `cat "$T_FILE"`, got: contains(theSecret)},
	{name: "read through a symbolic link", shell: `ln -s "$T_FILE" l && cat l`, got: contains(theSecret)},
	{name: "read through a hard link", shell: `ln "$T_FILE" l && cat l`, got: contains(theSecret)},
	{name: "read by ..", shell: `cat ../../../keys/provider`, got: contains(theSecret)},
	{name: "race a link against a check", run: raceLink, got: contains(theSecret)},
	{name: "read by file handle", before: handle, run: openHandle, got: contains(theSecret)},
	{name: "climb out of a chroot", run: climb, got: contains(theSecret)},
	{name: "read run/token", shell: `cat "$T_HOME/run/token"`, got: contains(theSecret)},
	{name: "find the token by name", shell: `find "${T_HOME%/*}" /run /var /root -maxdepth 6 -name token -exec cat {} + 2>&1`, got: contains(theSecret)},
	{name: "list THECLAW_HOME", shell: `ls -R "$T_HOME"`, got: contains(func(*home) string { return "provider" })},
	{name: "read the agent's own settings", shell: `cat ../agent.yaml`, got: contains(theSecret)},
	// S4-91: another agent's workspace and messages.
	{name: "read another agent's workdir", shell: `cat ../../bob/workdir/note`, got: contains(theSecret)},
	{name: "read another agent's inbox", shell: `cat "$T_HOME/agents/bob/inbox/events.db"`, got: contains(theSecret)},
	{name: "write another agent's inbox", shell: `echo forged >>"$T_HOME/agents/bob/inbox/events.db"`, got: func(w *home, _ Result) any {
		b, err := os.ReadFile(filepath.Join(w.root, "agents/bob/inbox/events.db"))
		return err != nil || bytes.Contains(b, []byte("forged"))
	}},
	{name: "overwrite a file", shell: `echo x >"$T_FILE"`, got: changed},
	{name: "truncate a file", shell: `truncate -s 0 "$T_FILE"`, got: changed},
	{name: "delete a file", shell: `rm -f "$T_FILE"`, got: changed},
	{name: "move a file in", shell: `mv "$T_FILE" .`, got: changed},
	{name: "create a file", shell: `echo x >"$T_OUT/new"`, got: inOut("new")},
	{name: "link a file out", shell: `echo x >f && ln f "$T_OUT/linked"`, got: inOut("linked")},
	{name: "write through a link to a directory", shell: `ln -s "$T_OUT" d && echo x >d/new`, got: inOut("new")},
	{name: "put a link in place of the workdir", shell: `mv "$PWD" "$PWD-x" && ln -s "$T_OUT" "$PWD"`, got: func(w *home, _ Result) any {
		st, err := os.Lstat(w.work)
		return err != nil || !st.IsDir()
	}},
	{name: "change a mode", shell: `chmod 777 "$T_FILE"`, leaks: []Level{LevelReduced}, got: func(w *home, _ Result) any {
		st, ok := w.stat()
		return !ok || st.Mode != w.was.Mode
	}},
	{name: "change an owner", shell: `chown 4242 "$T_FILE"`, got: func(w *home, _ Result) any {
		st, ok := w.stat()
		return !ok || st.Uid != w.was.Uid
	}},
	{name: "change a time", shell: `touch -c -d 2001-01-01 "$T_FILE"`, leaks: []Level{LevelReduced}, got: func(w *home, _ Result) any {
		st, ok := w.stat()
		return !ok || st.Mtim != w.was.Mtim
	}},
	{name: "set an extended attribute", run: func() error {
		return unix.Setxattr(os.Getenv("T_FILE"), "user.theclaw", []byte("x"), 0)
	}, leaks: []Level{LevelReduced}, got: func(w *home, _ Result) any {
		n, err := unix.Getxattr(w.file, "user.theclaw", make([]byte, 8))
		return err == nil && n > 0
	}, absent: func(w *home) string {
		if unix.Setxattr(w.root, "user.theclaw", []byte("x"), 0) != nil {
			return "no extended attributes on this file system"
		}
		return ""
	}},
	{name: "see that a file exists", shell: `stat -c 'inode=%i' "$T_FILE"`, leaks: []Level{LevelReduced}, got: contains(func(w *home) string { return "inode=" + w.inode })},
	{name: "read the host's accounts", shell: `cat /etc/passwd`, got: func(_ *home, r Result) any {
		b, err := os.ReadFile("/etc/passwd")
		return err == nil && bytes.Equal(b, r.Stdout)
	}},
	{name: "write in /usr", shell: `echo x >"/usr/local/$T_MARK"`, got: onHost("/usr/local")},
	{name: "write in the host's /tmp", shell: `echo x >"/tmp/$T_MARK"`, got: onHost("/tmp")},
	{name: "write in /dev/shm", shell: `echo x >"/dev/shm/$T_MARK"`, got: onHost("/dev/shm")},
	{name: "leave a setuid program", run: leaveSetuid, got: func(w *home, _ Result) any {
		names, _ := filepath.Glob(filepath.Join(w.work, "*"))
		for _, n := range names {
			var st unix.Stat_t
			if unix.Lstat(n, &st) == nil && st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 {
				return fmt.Sprintf("%s has mode %o and belongs to %d", filepath.Base(n), st.Mode, st.Uid)
			}
		}
		return nil
	}},
	{name: "make a device", run: func() error { return unix.Mknod("null", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))) }, got: func(w *home, _ Result) any {
		st, err := os.Lstat(filepath.Join(w.work, "null"))
		return err == nil && st.Mode()&os.ModeDevice != 0
	}},
	{name: "see the host's devices", shell: `ls /dev`, got: func(_ *home, r Result) any {
		ours := " null zero full random urandom tty console core fd stdin stdout stderr shm pts ptmx "
		for _, d := range strings.Fields(string(r.Stdout)) {
			if !strings.Contains(ours, " "+d+" ") {
				return "it sees /dev/" + d
			}
		}
		return nil
	}},
	{name: "mount over a directory", run: func() error {
		return unix.Mount("x", os.Getenv("T_OUT"), "tmpfs", 0, "size=4k")
	}, got: func(w *home, _ Result) any {
		b, err := os.ReadFile("/proc/self/mountinfo")
		mounted := err == nil && bytes.Contains(b, []byte(w.out))
		if mounted {
			_ = unix.Unmount(w.out, unix.MNT_DETACH)
		}
		return mounted
	}},
	{name: "leave programs for the next run", shell: leaveTraps, got: func(w *home, _ Result) any {
		// What the host does next, in the same directory: another run here, a shell there.
		if w.box != nil {
			mustRun(w.t, w.box, Command{Shell: "true", Workdir: w.work, Env: w.env})
		} else {
			bare(w.t, Command{Shell: "HOME=$PWD bash -lc true", Workdir: w.work, Env: w.env, Timeout: testTimeout})
		}
		return is(filepath.Join(w.out, "trap"))
	}},
	{
		name: "lead the spill file out", cap: 1024, spill: "spill", got: inOutAny,
		shell: `rm -rf spill; ln -s "$T_OUT" spill; head -c 100000 /dev/zero | tee spill/mine; ls -l spill >&2`,
	},
}

func inOut(name string) func(*home, Result) any {
	return func(w *home, _ Result) any { return is(filepath.Join(w.out, name)) }
}

func inOutAny(w *home, _ Result) any {
	names, err := os.ReadDir(w.out)
	return err != nil || len(names) > 0
}

// changed is evidence that the secret is not what and where it was.
func changed(w *home, _ Result) any {
	b, err := os.ReadFile(w.file)
	return err != nil || string(b) != w.secret+"\n"
}

// onHost is evidence that the marked file stands in a directory of the host.
func onHost(dir string) func(*home, Result) any {
	return func(w *home, _ Result) any {
		path := filepath.Join(dir, w.secret)
		defer os.Remove(path)
		return is(path)
	}
}

// leaveTraps puts whatever a careless host might run or load into the workdir. Each
// leaves its trace outside, which only a process outside can.
const leaveTraps = `
trap='#!/bin/sh
echo sprung >"$T_OUT/trap"'
for name in sandbox bash sh true git .bashrc .bash_profile .profile .envrc; do echo "$trap" >"$name"; chmod +x "$name"; done
mkdir -p .git/hooks .config/theclaw
for h in post-checkout pre-commit post-index-change; do echo "$trap" >.git/hooks/$h; chmod +x .git/hooks/$h; done
echo "$T_FILE" >.config/theclaw/config.yaml; touch ld.so.preload core`

func raceLink() error {
	if err := os.WriteFile("plain", []byte("plain"), 0o600); err != nil {
		return err
	}
	if err := os.Symlink(os.Getenv("T_FILE"), "link"); err != nil {
		return err
	}
	stop := make(chan struct{})
	defer close(stop)
	var exchanged atomic.Int32
	go func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, "plain", unix.AT_FDCWD, "link", unix.RENAME_EXCHANGE)
				exchanged.Add(1)
			}
		}
	}()
	// On a busy machine all reads may run before the first exchange.
	for n := 0; n < 2000 || exchanged.Load() < 2000; n++ {
		if b, err := os.ReadFile("plain"); err == nil && string(b) != "plain" {
			fmt.Println(string(b))
			return nil
		}
	}
	return os.ErrPermission
}

// handle names the file without a path, as a file server would.
func handle(w *home) {
	h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, w.file, 0)
	if err != nil {
		w.t.Logf("file handles: %v", err)
		return
	}
	w.env["T_HANDLE"] = strconv.Itoa(int(h.Type())) + ":" + hex.EncodeToString(h.Bytes())
}

func openHandle() error {
	kind, text, _ := strings.Cut(os.Getenv("T_HANDLE"), ":")
	n, err := strconv.Atoi(kind)
	if err != nil {
		return err
	}
	b, err := hex.DecodeString(text)
	if err != nil {
		return err
	}
	here, err := os.Open(".")
	if err != nil {
		return err
	}
	fd, err := unix.OpenByHandleAt(int(here.Fd()), unix.NewFileHandle(int32(n), b), unix.O_RDONLY)
	if err != nil {
		return err
	}
	return sayFile(fd)
}

func sayFile(fd int) error {
	b := make([]byte, 256)
	n, err := unix.Pread(fd, b, 0)
	if err == nil {
		fmt.Println(string(b[:n]))
	}
	return err
}

// climb is the oldest of all: a second chroot forgets where the first one was.
func climb() error {
	if err := os.MkdirAll("jail", 0o755); err != nil {
		return err
	}
	path := os.Getenv("T_FILE")
	if err := unix.Chroot("jail"); err != nil {
		return err
	}
	for range 64 {
		if err := unix.Chdir(".."); err != nil {
			return err
		}
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	b, err := os.ReadFile(path)
	fmt.Println(string(b))
	return err
}

// leaveSetuid tries every way to a file that makes others us.
func leaveSetuid() error {
	const bits = unix.S_ISUID | unix.S_ISGID
	_ = os.WriteFile("plain", []byte("#!/bin/sh\n"), 0o755)
	_ = unix.Chmod("plain", bits|0o755)
	if f, err := os.OpenFile("by-fd", os.O_CREATE|os.O_RDWR, 0o755); err == nil {
		_ = unix.Fchmod(int(f.Fd()), bits|0o755)
	}
	if f, err := os.OpenFile("by-fchmodat2", os.O_CREATE|os.O_RDWR, 0o755); err == nil {
		_ = unix.Fchmodat(unix.AT_FDCWD, f.Name(), bits|0o755, unix.AT_SYMLINK_NOFOLLOW)
	}
	_, _ = unix.Open("by-open", unix.O_CREAT|unix.O_RDWR, bits|0o755)
	_, _ = unix.Openat2(unix.AT_FDCWD, "by-openat2", &unix.OpenHow{Flags: unix.O_CREAT | unix.O_RDWR, Mode: bits | 0o755})
	_ = unix.Mknod("by-mknod", unix.S_IFREG|bits|0o755, 0)
	_ = unix.Mkdir("directory", unix.S_ISGID|0o755)
	return syscall.Chmod("directory", 0o2755)
}
