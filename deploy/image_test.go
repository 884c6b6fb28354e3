package deploy_test

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/testing/need"
)

// instructions answers the lines of the last stage of the Dockerfile, joined.
func instructions(t *testing.T) (last [][]string) {
	t.Helper()
	b, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(strings.ReplaceAll(string(b), "\\\n", " ")) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || strings.HasPrefix(words[0], "#"):
		case words[0] == "FROM":
			last = nil
		default:
			last = append(last, words)
		}
	}
	return last
}

// value answers the words of the only instruction of a name.
func value(t *testing.T, list [][]string, name string) []string {
	t.Helper()
	for _, words := range list {
		if words[0] == name {
			return words[1:]
		}
	}
	t.Fatalf("the Dockerfile has no %s", name)
	return nil
}

// The programs of the image are static and run from what COPY puts there and nothing
// else, as another user, on a root that cannot be written. There is no engine for
// images here: the root is laid out by the COPY lines and entered with chroot.
func TestImageRoot(t *testing.T) {
	need.Root(t) // to enter another root
	namespaces := []string{"--mount", "--pid", "--fork", "--mount-proc"}
	need.Namespaces(t, namespaces...)
	need.Program(t, "chroot", "coreutils")
	list := instructions(t)
	if user := value(t, list, "USER"); user[0] != "65532:65532" {
		t.Errorf("it runs as %s", user)
	}
	root, built := t.TempDir(), t.TempDir()
	if err := os.Chmod(root, 0o755); err != nil { // #nosec G302 -- the root of an image
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", built+"/", "./cmd/agentd", "./cmd/agentctl", "./cmd/agent", "./cmd/theclaw-sandbox")
	build.Dir, build.Env = "..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	copied := 0
	for _, words := range list {
		if words[0] != "COPY" {
			continue
		}
		var files []string
		for _, w := range words[1:] {
			if !strings.HasPrefix(w, "--") {
				files = append(files, w)
			}
		}
		to := files[len(files)-1]
		for _, from := range files[:len(files)-1] {
			copied++
			program := filepath.Join(built, path.Base(from))
			static(t, program)
			target := filepath.Join(root, to, path.Base(from))
			if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil { // #nosec G301 -- the root of an image
				t.Fatal(err)
			}
			if err := os.Link(program, target); err != nil {
				b, err := os.ReadFile(program)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(target, b, 0o755); err != nil { // #nosec G306 -- a program
					t.Fatal(err)
				}
			}
		}
	}
	if copied != 4 {
		t.Fatalf("%d programs are copied", copied)
	}
	for _, dir := range []string{"tmp", "proc", "dev", "var/lib/theclaw"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil { // #nosec G301 -- the root of an image
			t.Fatal(err)
		}
	}
	home := ""
	for _, w := range value(t, list, "ENV") {
		if name, v, _ := strings.Cut(w, "="); name == "THECLAW_HOME" {
			home = v
		}
	}
	// The namespace, the mounts and the processes end with the shell.
	const script = `set -e
mount --bind "$1" "$1"
mount -t tmpfs -o uid=65532,gid=65532,mode=0700 tmpfs "$1/var/lib/theclaw"
mount -t tmpfs -o mode=1777 tmpfs "$1/tmp"
mount -t proc proc "$1/proc"
mount -o remount,bind,ro "$1"
within() { chroot --userspec=65532:65532 "$1" /usr/local/bin/"$2" "${@:3}"; }
if : 2>/dev/null >"$1/written"; then echo "the root can be written"; exit 1; fi
chroot --userspec=65532:65532 "$1" /usr/local/bin/agentd all & daemon=$!
n=0
until within "$1" agentctl ready >/dev/null 2>&1; do n=$((n+1)); [ $n -lt 300 ] || { echo "not ready"; exit 1; }; sleep 0.2; done
within "$1" agentctl init a1
within "$1" agentctl start a1
within "$1" agentctl send a1 --source external:console:cli:dm:cli:cli --type message --content '{"text":"hello"}' --wait --timeout 60s
within "$1" agentctl fsck
kill -TERM $daemon
wait $daemon
echo "agentd ended with $?"
`
	c := exec.Command("unshare", append(namespaces, "--kill-child", "bash", "-c", script, "bash", root)...)
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "THECLAW_HOME=" + home, "HOME=" + path.Dir(home)}
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	stuck := time.AfterFunc(2*time.Minute, func() { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) })
	err := c.Wait()
	stuck.Stop()
	for _, want := range []string{"0 findings: 1 agent", "agentd ended with 0"} {
		if err != nil || !strings.Contains(out.String(), want) {
			t.Fatalf("%v, without %q:\n%s", err, want, out.String())
		}
	}
}

// static refuses a program that needs a loader.
func static(t *testing.T, program string) {
	t.Helper()
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error(fmt.Sprint(program, " is not static"))
		}
	}
}
