// Package need checks what a test needs of the machine. Where it is missing the test is
// skipped with a reason that says what to install or to set; there is no other way to
// skip a test (skips_test.go).
//
// Two environment variables decide what counts as missing:
//
//	THECLAW_NEED=all      a missing requirement fails the test: the merge gate sets it
//	THECLAW_WITHOUT=a,b   requirements that count as missing although present:
//	                      root, postgres, bubblewrap, namespaces, mount, or the name of a
//	                      program; `make test` uses it to leave out what is slow
//
// With THECLAW_TARGET, the name of a proof's target in the Makefile, a skip is also a line
// of standard output, as the figures are.
//
// What cannot be seen is tried: a requirement is run once. The package changes nothing
// except what [Disk] and [ReadOnly] mount.
package need

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// The variables of the environment.
const (
	Variable = "THECLAW_NEED"
	Without  = "THECLAW_WITHOUT"
	Target   = "THECLAW_TARGET"
)

// The requirements that are not programs, as THECLAW_WITHOUT names them.
const (
	root       = "root"
	postgres   = "postgres"
	bubblewrap = "bubblewrap"
	namespaces = "namespaces"
	mount      = "mount"
)

// Missing skips the test, or fails it where nothing may be missing: what is missing, and
// what to install or to set.
func Missing(t testing.TB, what, fix string) {
	t.Helper()
	if os.Getenv(Variable) == "all" {
		t.Fatalf("it needs %s: %s (%s=all permits no skip)", what, fix, Variable)
	}
	skip(t, "it needs "+what+": "+fix)
}

// Inapplicable skips a test that has nothing to test in the shape that was chosen, such
// as a topology. Nothing is missing, so this fails nowhere.
func Inapplicable(t testing.TB, why string) {
	t.Helper()
	skip(t, why)
}

func skip(t testing.TB, why string) {
	t.Helper()
	if target := os.Getenv(Target); target != "" {
		fmt.Fprintf(os.Stdout, "%s skipped: %s\n", target, why)
	}
	t.Skip(why)
}

// without skips the test when the environment leaves the requirement out.
func without(t testing.TB, name string) {
	t.Helper()
	if slices.Contains(strings.Split(os.Getenv(Without), ","), name) {
		Missing(t, name, "take it out of "+Without)
	}
}

// Root needs the rights of root.
func Root(t testing.TB) {
	t.Helper()
	without(t, root)
	if os.Geteuid() != 0 {
		Missing(t, root, "run the tests as root")
	}
}

// Program needs a program on the PATH, which the named Debian package has, and answers
// its path.
func Program(t testing.TB, name, debian string) string {
	t.Helper()
	without(t, name)
	path, err := exec.LookPath(name)
	if err != nil {
		Missing(t, "the program "+name, "install the package "+debian)
	}
	return path
}

// Tmux needs a terminal multiplexer.
func Tmux(t testing.TB) {
	t.Helper()
	Program(t, "tmux", "tmux")
}

// Bubblewrap needs the program bwrap, and that it can make a sandbox here: in many
// containers it is installed and may not mount /proc.
func Bubblewrap(t testing.TB) {
	t.Helper()
	without(t, bubblewrap)
	Program(t, "bwrap", "bubblewrap")
	if err := sandboxed(); err != nil {
		Missing(t, "a bubblewrap that works ("+err.Error()+")", "run the tests outside of a container, or in one with CAP_SYS_ADMIN and an unmasked /proc")
	}
}

// sandboxed runs bwrap once, with what our sandbox asks of it, and returns why it failed.
var sandboxed = sync.OnceValue(func() error {
	out, err := exec.Command("bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL", "--die-with-parent", "--as-pid-1", "--new-session",
		"--uid", "65534", "--gid", "65534", "--hostname", "sandbox", "--ro-bind", "/", "/", "--tmpfs", "/tmp", "--proc", "/proc", "--dev", "/dev", "--", "true").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
})

// Postgres needs the server programs of PostgreSQL and a user who may run them, and
// answers their directory and that user: nobody else than the one who runs the test,
// unless that is root.
func Postgres(t testing.TB) (bin string, as *user.User) {
	t.Helper()
	without(t, postgres)
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if p, err := exec.LookPath("initdb"); err == nil {
		found = append(found, filepath.Dir(p))
	}
	slices.Reverse(found)
	i := slices.IndexFunc(found, func(dir string) bool {
		_, noInit := os.Stat(filepath.Join(dir, "initdb"))
		_, noCopy := os.Stat(filepath.Join(dir, "pg_basebackup"))
		return noInit == nil && noCopy == nil
	})
	if i < 0 {
		Missing(t, "the server programs of PostgreSQL", "install the package postgresql")
	}
	if os.Geteuid() != 0 {
		return found[i], nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		if as, err := user.Lookup(name); err == nil {
			return found[i], as
		}
	}
	Missing(t, "a user for PostgreSQL, which refuses to run as root", "add the user postgres")
	return "", nil
}

// Namespaces needs the right to make namespaces with the options of unshare, such as --net.
func Namespaces(t testing.TB, options ...string) {
	t.Helper()
	without(t, namespaces)
	unshare := Program(t, "unshare", "util-linux")
	if out, err := exec.Command(unshare, append(options, "true")...).CombinedOutput(); err != nil {
		Missing(t, "namespaces ("+strings.Join(options, " ")+"): "+strings.TrimSpace(string(out)), "run the tests as root, in a container with CAP_SYS_ADMIN")
	}
}

// Disk needs the right to mount, and answers a directory with a file system of its own in
// memory, with options such as size=1m. It is gone after the test.
func Disk(t testing.TB, options string) string {
	t.Helper()
	without(t, mount)
	dir := t.TempDir()
	mounted(t, unix.Mount("tmpfs", dir, "tmpfs", 0, options))
	t.Cleanup(func() { unmount(t, dir) })
	return dir
}

// ReadOnly needs the right to mount, and lays a read-only view over a directory, which
// stops root too, until lift or the end of the test.
func ReadOnly(t testing.TB, dir string) (lift func()) {
	t.Helper()
	without(t, mount)
	mounted(t, unix.Mount(dir, dir, "", unix.MS_BIND, ""))
	lifted := false
	lift = func() {
		if !lifted {
			lifted = true
			unmount(t, dir)
		}
	}
	t.Cleanup(lift)
	mounted(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
	return lift
}

func mounted(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		Missing(t, "the right to mount a file system ("+err.Error()+")", "run the tests as root, in a container with CAP_SYS_ADMIN")
	}
}

func unmount(t testing.TB, dir string) {
	if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
		t.Errorf("unmount: %v", err)
	}
}
