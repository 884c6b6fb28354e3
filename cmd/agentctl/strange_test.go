//go:build proof

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/backup/archive"
	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/filetree"
	"github.com/theclaw/agents/internal/testing/need"
)

// strange is one kind of file that a program of an agent may leave in its workdir.
type strange struct {
	name string
	make func(t *testing.T, path string)
	// why is the reason with which a backup leaves it out; empty: it is restored as it was.
	why string
	// missing: the backup is incomplete without it.
	missing bool
}

func text(content string) func(*testing.T, string) {
	return func(t *testing.T, path string) { must(t, os.WriteFile(path, []byte(content), 0o600)) }
}

func link(target string) func(*testing.T, string) {
	return func(t *testing.T, path string) { must(t, os.Symlink(target, path)) }
}

func mode(m os.FileMode) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		must(t, os.WriteFile(path, []byte("mode"), 0o600))
		must(t, os.Chmod(path, m))
	}
}

func node(kind uint32, dev int) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		need.Root(t)
		if err := syscall.Mknod(path, kind|0o600, dev); err != nil {
			need.Missing(t, "the right to make device files", err.Error())
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const levels = 3000

var strangers = []strange{
	{name: "plain.txt", make: text("plain")},
	{name: "a\377b", make: text("not UTF-8")},
	{name: "\377\376dir", make: func(t *testing.T, path string) {
		must(t, os.Mkdir(path, 0o700))
		must(t, os.WriteFile(filepath.Join(path, "in\370"), []byte("below"), 0o600))
	}},
	{name: "new\nline", make: text("newline")},
	{name: "tab\tand\rreturn\x1b[31m\a", make: text("controls")},
	{name: `back\slash`, make: text("backslash")},
	{name: "-rf", make: text("dash")},
	{name: "--checkpoint-action=exec=sh", make: text("option")},
	{name: " leading and trailing ", make: text("spaces")},
	{name: "*?[a]{b}$(x)`y`;&|<>'\"~#!", make: text("metacharacters")},
	{name: strings.Repeat("n", 255), make: text("255 bytes")},
	{name: strings.Repeat("\377", 255), make: text("255 bytes of 0xff")},
	{name: strings.Repeat("é", 127), make: text("254 bytes of UTF-8")},
	{name: "\u202egpj.exe", make: text("right to left")},
	{name: "events.db", make: text("no database")},
	{name: "manifest.json", make: text("{}")},
	{name: ".hidden", make: text("hidden")},
	{name: "empty", make: text("")},
	{name: "empty directory", make: func(t *testing.T, path string) { must(t, os.MkdirAll(filepath.Join(path, "below\377"), 0o700)) }},
	{name: "hard link", make: func(t *testing.T, path string) {
		must(t, os.WriteFile(path, []byte("twice"), 0o600))
		must(t, os.Link(path, path+" 2"))
	}},
	{name: "sparse", make: func(t *testing.T, path string) {
		must(t, os.WriteFile(path, []byte("sparse"), 0o600))
		must(t, os.Truncate(path, 8<<20))
	}},
	{name: "sparse of 1 TiB", missing: true, why: "it is sparse", make: func(t *testing.T, path string) {
		must(t, os.WriteFile(path, nil, 0o600))
		must(t, os.Truncate(path, 1<<40))
	}},
	{name: "setuid", make: mode(0o755 | os.ModeSetuid | os.ModeSetgid)},
	{name: "sticky", make: mode(0o666 | os.ModeSticky)},
	{name: "for all", make: mode(0o777)},
	{name: "read only directory", make: func(t *testing.T, path string) {
		must(t, os.Mkdir(path, 0o700))
		must(t, os.WriteFile(filepath.Join(path, "in"), []byte("in"), 0o400))
		must(t, os.Chmod(path, 0o500))
	}},
	{name: "deep", make: func(t *testing.T, path string) {
		must(t, os.Mkdir(path, 0o700))
		at, err := os.OpenRoot(path)
		must(t, err)
		for i := range levels {
			must(t, at.Mkdir("d", 0o700))
			if i%100 == 99 {
				must(t, at.WriteFile("z", fmt.Append(nil, i), 0o600))
			}
			next, err := at.OpenRoot("d")
			must(t, errors.Join(err, at.Close()))
			at = next
		}
		must(t, errors.Join(at.WriteFile("bottom", []byte("bottom"), 0o600), at.Close()))
	}},
	{name: "wide", make: func(t *testing.T, path string) {
		must(t, os.Mkdir(path, 0o700))
		for i := range 2000 {
			must(t, os.WriteFile(filepath.Join(path, fmt.Sprint(i)), nil, 0o600))
		}
	}},
	{name: "pipe", why: "it is a pipe", make: func(t *testing.T, path string) { must(t, syscall.Mkfifo(path, 0o600)) }},
	{name: "socket", why: "it is a socket", make: func(t *testing.T, path string) {
		t.Chdir(filepath.Dir(path)) // the name of a socket is short
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: "socket", Net: "unix"})
		must(t, err)
		l.SetUnlinkOnClose(false)
		must(t, l.Close())
	}},
	{name: "device", why: "it is a device", make: node(syscall.S_IFCHR, 1<<8|3)},
	{name: "block device", why: "it is a device", make: node(syscall.S_IFBLK, 7<<8)},
	{name: "loop", why: "it is a symbolic link", make: link("loop")},
	{name: "loop of two", why: "it is a symbolic link", make: func(t *testing.T, path string) {
		must(t, os.Symlink("loop of two", path+" 2"))
		must(t, os.Symlink("loop of two 2", path))
	}},
	{name: "link to its directory", why: "it is a symbolic link", make: link(".")},
	{name: "dangling", why: "it is a symbolic link", make: link("none")},
	{name: "link out of the home", why: "it is a symbolic link", make: link("/etc")},
	{name: "link of bytes\377", why: "it is a symbolic link", make: link("\377")},
	{name: "unreadable", missing: true, why: "permission denied", make: func(t *testing.T, path string) {
		if os.Geteuid() == 0 {
			need.Inapplicable(t, "root reads every file")
		}
		mode(0)(t, path)
	}},
	{name: "unreadable directory", missing: true, why: "permission denied", make: func(t *testing.T, path string) {
		if os.Geteuid() == 0 {
			need.Inapplicable(t, "root reads every directory")
		}
		must(t, os.Mkdir(path, 0))
	}},
}

// content is what a backup keeps of a directory: the files with their bytes and whether
// their owner may execute them, and the directories.
func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer func() { _ = root.Close() }()
	out := map[string]string{}
	must(t, filetree.Walk(t.Context(), root, ".", func(e filetree.Entry) error {
		switch {
		case e.Info.IsDir():
			out[e.Path] = "directory"
		case e.Info.Size() > 1<<30: // left out
		case e.Info.Mode().IsRegular():
			f, err := e.Open()
			if err != nil {
				return nil //nolint:nilerr // unreadable
			}
			var b bytes.Buffer
			_, err = b.ReadFrom(f)
			out[e.Path] = fmt.Sprintf("%v %x", e.Info.Mode()&0o100 != 0, b.Bytes())
			return errors.Join(err, f.Close())
		}
		return nil
	}, func(string, error) {}))
	return out
}

// commands runs agentctl on a home in this process.
type commands struct {
	t    *testing.T
	home string
}

func (c commands) run(args ...string) (code int, out, errs string) {
	c.t.Helper()
	var o, e bytes.Buffer
	code = Main(args, strings.NewReader(""), &o, &e, func(name string) string {
		return map[string]string{"THECLAW_HOME": c.home, "HOME": c.home}[name]
	})
	return code, o.String(), e.String()
}

func (c commands) want(code int, args ...string) string {
	c.t.Helper()
	got, out, errs := c.run(args...)
	if got != code {
		c.t.Errorf("agentctl %q: exit code %d, want %d\n%.2000s%.2000s", args, got, code, out, errs)
	}
	return out
}

// F5, F6: files of every kind in the workdir of one agent leave backup, fsck, its repair,
// doctor and restore at work for the whole home, while its services run and while they do
// not. What a backup keeps is restored byte for byte; what it leaves out is named with its
// agent and its path.
func TestStrangeFiles(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h")
	stop := services(t, home)
	ctl := commands{t, home}
	for _, id := range []string{"alice", "bob"} {
		ctl.want(0, "init", id)
		ctl.want(0, "start", id)
	}
	ctl.want(0, "send", "bob", "hello", "--wait")
	healthy, _, _ := ctl.run("doctor")

	dir := filepath.Join(home, "agents", "alice", "workdir")
	incomplete := 0
	var made []strange
	for _, s := range strangers {
		t.Run(boundary.Name(s.name), func(t *testing.T) {
			s.make(t, filepath.Join(dir, s.name))
			made = append(made, s)
		})
	}
	t.Cleanup(func() { // so that they can be removed
		for _, name := range []string{"read only directory", "unreadable directory"} {
			_ = os.Chmod(filepath.Join(dir, name), 0o700)
		}
	})
	for _, s := range made {
		if s.missing {
			incomplete = 1
		}
	}
	want := content(t, dir)
	for _, services := range []bool{true, false} {
		if !services {
			stop()
		}
		begun := time.Now()
		tar := filepath.Join(t.TempDir(), fmt.Sprintf("services %v.tar", services))
		var b struct {
			archive.Summary
			Path string `json:"path"`
		}
		must(t, json.Unmarshal([]byte(ctl.want(incomplete, "backup", "--workdir", tar, "--json")), &b))
		took := time.Since(begun)
		for _, s := range made {
			i := slices.IndexFunc(b.LeftOut, func(l archive.LeftOut) bool {
				return l.Agent == "alice" && string(l.Path) == "workdir/"+s.name
			})
			switch {
			case (i >= 0) != (s.why != ""):
				t.Errorf("%q: left out %v", s.name, i >= 0)
			case i >= 0 && (!strings.Contains(b.LeftOut[i].Why, s.why) || b.LeftOut[i].Missing != s.missing):
				t.Errorf("%q: %+v", s.name, b.LeftOut[i])
			}
		}
		fsck := ctl.want(0, "fsck")
		if !services {
			ctl.want(0, "fsck", "--repair")
		}
		if code, out, errs := ctl.run("doctor"); services && code != healthy {
			t.Errorf("doctor: exit code %d, %d before\n%s%s", code, healthy, out, errs)
		}
		other := commands{t, filepath.Join(t.TempDir(), "other")}
		other.want(0, "restore", tar)
		other.want(0, "fsck")
		got := content(t, filepath.Join(other.home, "agents", "alice", "workdir"))
		for name, c := range want {
			if got[name] != c {
				t.Errorf("%s: restored as %.60q, it was %.60q", boundary.Name(name), got[name], c)
			}
		}
		for name := range got {
			if _, ok := want[name]; !ok {
				t.Errorf("%s was not there", boundary.Name(name))
			}
		}
		if !strings.Contains(fsck, "2 agents") {
			t.Errorf("fsck: %s", fsck)
		}
		fmt.Fprintf(t.Output(), "%d kinds of files, %d entries restored, %d left out, services %v, backup %v\n", len(made), len(got), len(b.LeftOut)+b.More, services, took)
	}
}

// A1, R9: a run lock of another program that keeps runners away is named by status, explain
// and doctor; an idle lease is not shown as work.
func TestRunLockNamed(t *testing.T) {
	home := filepath.Join(t.TempDir(), "h")
	services(t, home)
	ctl := commands{t, home}
	ctl.want(0, "init", "alice")
	ctl.want(0, "start", "alice")
	ctl.want(0, "send", "alice", "hello", "--wait")
	if out := ctl.want(0, "status", "alice"); strings.Contains(out, "Working now") {
		t.Errorf("it is idle:\n%s", out)
	}
	ctl.want(0, "stop", "alice")
	lock := filepath.Join(home, "agents", "alice", "run.lock")
	must(t, os.WriteFile(lock, fmt.Append(nil, os.Getpid()), 0o600)) // as another tool writes it
	ctl.want(0, "start", "alice")
	ctl.want(0, "send", "alice", "again")
	held := fmt.Sprintf("run lock %s is held by pid %d", lock, os.Getpid())
	for args, code := range map[string]int{"status alice": 0, "explain alice 2": 0, "doctor": 1} {
		if out := ctl.want(code, strings.Fields(args)...); !strings.Contains(out, held) {
			t.Errorf("%s does not name the lock:\n%s", args, out)
		}
	}
}
