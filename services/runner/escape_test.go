//go:build proof

package runner_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// ways are command lines that reach what is outside. Each prints `reached` when it does: SECRET is a file, DIR its
// directory, OTHER a file in the working directory of another agent, PID a process and PORT a server of this machine.
var ways = map[string]string{
	"read":           `grep -q . SECRET`,
	"dot dot":        `grep -q . ../../../../../../../../..SECRET`,
	"link":           `ln -sf SECRET link && grep -q . link`,
	"hard link":      `rm -f hard; ln SECRET hard && grep -q . hard`,
	"list":           `ls DIR | grep -q secret`,
	"write":          `echo x >>SECRET`,
	"make":           `echo x >DIR/new-$$ && test -e DIR/new-$$`,
	"rename":         `cp SECRET mine && mv mine DIR/moved-$$`,
	"archive":        `tar -C / -cf - $(echo SECRET | cut -c2-) | grep -q .`,
	"other agent":    `grep -q . OTHER`,
	"root of a pid":  `grep -q . /proc/PID/root/SECRET`,
	"cwd of a pid":   `ls /proc/PID/cwd/ | grep -q .`,
	"environment":    `tr '\0' '\n' </proc/PID/environ | grep -q .`,
	"signal":         `kill -0 PID`,
	"server":         `exec 3<>/dev/tcp/127.0.0.1/PORT`,
	"system":         `echo x >/usr/bin/escape-test && rm /usr/bin/escape-test`,
	"other users":    `grep -q root: /etc/shadow`,
	"user namespace": `unshare --user --map-root-user true`,
}

// TestToolsEscape makes each attempt in every way in which an agent runs programs of others: with the tools process and
// python, and by an MCP server. With the guard none reaches its target, and without it each does.
func TestToolsEscape(t *testing.T) {
	server := func(more string) string {
		return "    good: {command: [PROGRAM], env: {MCPTEST: good}" + more + "}\n"
	}
	guarded := newMCP(t, server(""), "")
	open := newMCP(t, server(", sandbox: off"), "}\nsandbox: {mode: 'off'")
	fill := escapeTargets(t)
	routes := map[string]func(c *mcpHome, name, shell string) string{
		"process": func(c *mcpHome, name, shell string) string {
			log := processID.FindString(c.call(bashCall(shell, `,"background":true`)))
			c.call(`process {"action":"poll","id":"` + log + `","wait_seconds":30}`)
			return c.read(c.file(".output/" + log + ".log"))
		},
		"python": func(c *mcpHome, name, shell string) string {
			code, _ := json.Marshal(map[string]string{"code": "import subprocess\nprint(subprocess.run(['bash', '-c', " + strconv.Quote(shell) + "], capture_output=True, text=True).stdout)"})
			return c.call("python " + string(code))
		},
		"mcp": func(c *mcpHome, name, shell string) string {
			args, _ := json.Marshal(map[string]string{"text": shell})
			return c.call("good__run " + string(args))
		},
	}
	for _, c := range []*mcpHome{guarded, open} {
		c.start("good")
		c.approve("good")
	}
	escaped, uncontrolled := 0, 0
	for route, by := range routes {
		for name, way := range ways {
			shell := "(" + fill(way) + ") >/dev/null 2>&1 && echo rea''ched; true"
			if out := by(guarded, name, shell); strings.Contains(out, "reached") {
				escaped++
				t.Errorf("%s, %s: it was reached: %s", route, name, out)
			}
			if out := by(open, name, shell); !strings.Contains(out, "reached") {
				uncontrolled++
				t.Errorf("%s, %s: it is not reached without the sandbox: %s", route, name, out)
			}
		}
	}
	fmt.Fprintf(os.Stdout, "tools-escape routes=%d attempts=%d uncontrolled=%d escaped=%d\n", len(routes), len(routes)*len(ways), uncontrolled, escaped)
}

// escapeTargets makes what there is to reach, and returns a function that fills their names in.
func escapeTargets(t *testing.T) func(string) string {
	t.Helper()
	dir := t.TempDir()
	other := filepath.Join(dir, "agents", "b", "workdir", "notes.md")
	if err := os.MkdirAll(filepath.Dir(other), 0o777); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "secret"), other} {
		if err := os.WriteFile(path, []byte("secret-4711\n"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return strings.NewReplacer("SECRET", filepath.Join(dir, "secret"), "DIR", dir, "OTHER", other, "PORT", port, "PID", strconv.Itoa(os.Getpid())).Replace
}

// TestFileToolsEscape tries to leave the working directory with the tools for files, 20 ways (S4-91): by path, link, hard
// link and device. Without the guard each way is there: the test opens it.
func TestFileToolsEscape(t *testing.T) {
	c := newCoder(t, "")
	fill := escapeTargets(t)
	secret, dir := fill("SECRET"), fill("DIR")
	work := filepath.Dir(c.file("x"))
	if err := os.MkdirAll(filepath.Join(work, "sub"), 0o777); err != nil {
		t.Fatal(err)
	}
	up, err := filepath.Rel(work, secret)
	if err != nil {
		t.Fatal(err)
	}
	for name, make := range map[string]func(path string) error{
		"link":     func(p string) error { return os.Symlink(secret, p) },
		"relative": func(p string) error { return os.Symlink(up, p) },
		"dir":      func(p string) error { return os.Symlink(dir, p) },
		"twice":    func(p string) error { return os.Symlink("link", p) },
		"hard":     func(p string) error { return os.Link(secret, p) },
		"root":     func(p string) error { return os.Symlink("/proc/self/root", p) },
		"fd":       func(p string) error { return os.Symlink("/proc/self/fd", p) },
		"fifo":     func(p string) error { return syscall.Mkfifo(p, 0o666) },
	} {
		if err := make(filepath.Join(work, name)); err != nil {
			t.Fatal(name, err)
		}
	}
	call := func(tool string, args map[string]any) string {
		b, err := json.Marshal(args)
		if err != nil {
			t.Fatal(err)
		}
		return c.call(tool + " " + string(b))
	}
	paths := []string{secret, up, "sub/../" + up, "link", "relative", "dir/secret", "twice", "hard", "root" + secret, "/proc/self/root" + secret, fill("/proc/PID/root") + secret, fill("OTHER")}
	escaped, uncontrolled, attempts := 0, 0, 0
	for _, p := range paths {
		attempts++
		at := p
		if !filepath.IsAbs(at) {
			at = filepath.Join(work, p)
			if strings.HasPrefix(p, "root") { // Join would follow none of it
				at = work + "/" + p
			}
		}
		if b, err := os.ReadFile(at); err != nil || !strings.Contains(string(b), "secret-4711") {
			uncontrolled++
			t.Errorf("%s is not there without the guard: %v", p, err)
		}
		if text := call("read", map[string]any{"path": p}); strings.Contains(text, "secret-4711") {
			escaped++
			t.Errorf("read %s: %s", p, text)
		}
		if text := call("grep", map[string]any{"pattern": "secret", "path": p}); strings.Contains(text, "secret-4711") {
			escaped++
			t.Errorf("grep %s: %s", p, text)
		}
		call("write", map[string]any{"path": p, "content": "overwritten\n"})
		call("edit", map[string]any{"path": p, "old_text": "secret", "new_text": "edited"})
		for _, target := range []string{secret, fill("OTHER")} {
			if b, err := os.ReadFile(target); err != nil || string(b) != "secret-4711\n" {
				escaped++
				t.Errorf("%s was written by %s: %q, %v", target, p, b, err)
			}
		}
		for _, name := range []string{"link", "relative", "twice", "hard"} { // a write replaces what is in the directory, and nothing outside
			_ = os.Remove(filepath.Join(work, name))
		}
		_ = os.Symlink(secret, filepath.Join(work, "link"))
		_ = os.Symlink(up, filepath.Join(work, "relative"))
		_ = os.Symlink("link", filepath.Join(work, "twice"))
		_ = os.Link(secret, filepath.Join(work, "hard"))
	}
	for _, p := range []string{"fifo", "/dev/zero", "/dev/tcp", "fd/0", "/proc/self/environ", "/etc/shadow", "a\x00b", strings.Repeat("x/", 2500)} {
		attempts++
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		text := call("read", map[string]any{"path": p})
		cancel()
		if ctx.Err() == context.DeadlineExceeded || !strings.Contains(text, "error") {
			escaped++
			t.Errorf("read %.40q: %.300s", p, text)
		}
	}
	fmt.Fprintf(os.Stdout, "files-escape attempts=%d uncontrolled=%d escaped=%d\n", attempts, uncontrolled, escaped)
}
