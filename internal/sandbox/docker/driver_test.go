package docker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/sandbox"
)

// A command runs in the container of its scope, which is made once. Its result is bounded as that of every sandbox.
func TestRun(t *testing.T) {
	h := newHost(t)
	d, b := h.driver(), newBox(t, "agent/a1=1")
	c := sandbox.Command{Shell: "echo out; echo err >&2; echo $FOO >file; exit 3", Env: map[string]string{"FOO": "bar"}}
	began := false
	var followed strings.Builder
	c.OnStart = func() { began = true }
	c.OnStderr = func(p []byte) { followed.Write(p) }
	r, err := d.In(b).Run(t.Context(), c)
	must(t, err)
	file, err := os.ReadFile(filepath.Join(b.Dir, "file"))
	must(t, err)
	if string(r.Stdout) != "out\n" || string(r.Stderr) != "err\n" || r.ExitCode != 3 || r.TimedOut || r.Canceled || r.Truncated || string(file) != "bar\n" {
		t.Errorf("result %+v, file %q", r, file)
	}
	if !began || followed.String() != "err\n" {
		t.Errorf("began %v, followed %q", began, followed.String())
	}
	if got, want := h.calls(), "ps create ps start ps exec"; got != want {
		t.Errorf("calls %s, want %s", got, want)
	}
	r, err = d.In(b).Run(t.Context(), sandbox.Command{Argv: []string{"seq", "1000"}, OutputCap: 10, SpillDir: filepath.Join(b.Dir, ".output")})
	must(t, err)
	if len(r.Stdout) != 10 || !r.Truncated || !strings.HasPrefix(r.Spill, "/workspace/.output/output-") {
		t.Errorf("result %+v", r)
	}
	if got, want := h.calls(), "ps exec"; got != want {
		t.Errorf("calls %s, want %s", got, want)
	}
}

// What a program prints does not become a line of the script, and what looks like the beginning of one is printed.
func TestMarks(t *testing.T) {
	for _, c := range []struct {
		pieces  []string
		want    string
		started bool
		code    int // -1: it is not reported
	}{
		{[]string{"\x01m\nab\x01m 7\n"}, "ab", true, 7},
		{[]string{"\x01", "m", "\n", "a", "b\x01m", " 12", "\n"}, "ab", true, 12},
		{[]string{"\x01m\n", "a\x01", "b"}, "a\x01b", true, -1},
		{[]string{"\x01m\na\x01"}, "a\x01", true, -1},
		{[]string{"no such container\n"}, "no such container\n", false, -1},
		{[]string{"\x01m\n\x01m and a long line\n\x01m 1\n"}, " and a long line\n", true, 1},
		{[]string{"\x01m\n\x01m 1\n\x01m 2\n"}, "", true, 1},
	} {
		m := newMarks("m", nil)
		var got []byte
		for _, p := range c.pieces {
			got = append(got, m.filter([]byte(p), false)...)
		}
		got = append(got, m.filter(nil, true)...)
		code := -1
		if closed(m.ended) {
			code = m.code
		}
		if string(got) != c.want || closed(m.started) != c.started || code != c.code {
			t.Errorf("%q: got %q, started %v, code %d", c.pieces, got, closed(m.started), code)
		}
	}
}

// A command that is canceled, or takes too long, is dead when its result is there, with all of its process group:
// what it would have written later is not written. Its container goes on.
func TestCancel(t *testing.T) {
	for _, late := range []bool{false, true} {
		h := newHost(t)
		d, b := h.driver(), newBox(t, "agent/a1=1")
		h.run(d, b, "true") // the time to make the container is no part of the time limit below
		alive, err := os.OpenFile(fifo(t, b, "alive"), os.O_RDWR, 0)
		must(t, err)
		reader, err := os.OpenFile(alive.Name(), os.O_RDONLY, 0)
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		c := sandbox.Command{Shell: "exec 9>alive; fifo=gate; mkfifo gate; (read x <gate; echo >later) & echo ready; read x <gate; echo >later", Timeout: time.Hour}
		if late {
			c.Timeout = 3 * time.Second
		} else {
			c.OnStdout = func([]byte) { cancel() }
		}
		r, err := d.In(b).Run(ctx, c)
		cancel()
		must(t, err)
		if r.TimedOut != late || r.Canceled == late || r.ExitCode != killed || string(r.Stdout) != "ready\n" {
			t.Errorf("result %+v", r)
		}
		must(t, alive.Close())
		readAll(t, reader)
		must(t, reader.Close())
		if _, err := os.Stat(filepath.Join(b.Dir, "later")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the command has gone on: %v", err)
		}
		if r := h.run(d, b, "echo again"); string(r.Stdout) != "again\n" || len(h.containers()) != 1 {
			t.Errorf("result %+v", r)
		}
	}
}

// The client of a command is killed while the daemon goes on: the script reads the end of its input and ends the process
// group. The same holds for the death of this process, which holds the other end of that input.
func TestKilledClient(t *testing.T) {
	h := newHost(t)
	d, b := h.driver(), newBox(t, "agent/a1=1")
	h.run(d, b, "true")
	for _, kill := range []string{"client", "input"} {
		path := fifo(t, b, "alive-"+kill)
		id := h.containers()[0]
		client := exec.Command(h.program(), b.execArgs(id, "m", nil, []string{"sh", "-c", "exec 9>alive-" + kill + "; mkfifo gate-" + kill + "; echo ready >&9; read x <gate-" + kill + "; echo >later-" + kill})...)
		stdin, err := client.StdinPipe()
		must(t, err)
		must(t, client.Start())
		alive, err := os.Open(path) // it is open when the command has opened it
		must(t, err)
		ready := make([]byte, len("ready\n"))
		_, err = alive.Read(ready)
		must(t, err)
		if kill == "client" {
			must(t, client.Process.Kill())
		} else {
			must(t, stdin.Close())
		}
		readAll(t, alive)
		must(t, alive.Close())
		_ = client.Wait()
		_ = stdin.Close()
		if _, err := os.Stat(filepath.Join(b.Dir, "later-"+kill)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the command has gone on: %v", kill, err)
		}
	}
}

// Where it is not known that a command has ended, its container is removed, with what has left the process group.
func TestUnknownEndRemovesContainer(t *testing.T) {
	h := newHost(t)
	d, b := h.driver(), newBox(t, "agent/a1=1")
	path := fifo(t, b, "alive")
	reader := make(chan *os.File, 1)
	go func() {
		f, _ := os.Open(path)
		reader <- f
	}()
	// It ends the script, which is its parent.
	r, err := d.In(b).Run(t.Context(), sandbox.Command{Shell: "exec 9>alive; mkfifo gate; setsid sh -c 'read x <gate' & kill -9 $PPID; read x <gate"})
	must(t, err)
	if r.ExitCode != killed || r.Signal != "SIGKILL" || r.TimedOut || r.Canceled {
		t.Errorf("result %+v", r)
	}
	f := <-reader
	readAll(t, f)
	must(t, f.Close())
	if n := len(h.containers()); n != 0 {
		t.Errorf("%d containers", n)
	}
}

// The container is made again when the settings have changed, and when another process has made it under an older
// lease; with the same lease, and by the process that has made it, it is used again.
func TestContainerIsReplaced(t *testing.T) {
	h := newHost(t)
	first, b := h.driver(), newBox(t, "agent/a1=3")
	only := func() string {
		t.Helper()
		ids := h.containers()
		if len(ids) != 1 {
			t.Fatalf("containers %q", ids)
		}
		return ids[0]
	}
	h.run(first, b, "true")
	made := only()
	step := func(what string, d *Driver, again bool) {
		t.Helper()
		h.run(d, b, "true")
		if id := only(); (id != made) != again {
			t.Errorf("%s: made again: %v", what, id != made)
		}
		made = only()
	}
	step("the same lease", h.driver(), false)
	b.Fence = "agent/a1=4"
	step("a later lease of the same process", first, false)
	second := h.driver()
	step("a later lease of another process", second, true)
	b.Memory = "1g"
	step("other settings", second, true)
	must(t, os.Remove(filepath.Join(h.state, made, "running")))
	step("it was stopped", second, false)
	b.Fence = "agent/a1=3"
	if _, err := first.In(b).Run(t.Context(), sandbox.Command{Shell: "touch ran"}); !fault.Is(err, fault.LeaseLost) {
		t.Errorf("an older lease: %v", err)
	}
	b.Fence = "" // of several agents
	step("without a lease", h.driver(), false)
	other := New(Options{Program: h.program(), Home: "/home/b"})
	if _, err := other.In(b).Run(t.Context(), sandbox.Command{Shell: "touch ran"}); !fault.Is(err, fault.SandboxUnavailable) || !strings.Contains(fault.From(err).Fix, "container_prefix") {
		t.Errorf("another home: %v", err)
	}
	if _, err := os.Stat(filepath.Join(b.Dir, "ran")); err == nil || only() != made {
		t.Error("a command ran that was refused")
	}
}

// A directory that was renamed or removed, with another one at its path, is not the one that the container shows: the
// container is made again. With the same directories it is used again.
func TestReplacedDirectory(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(t *testing.T, b Box)
		again  bool
	}{
		{"nothing", func(*testing.T, Box) {}, false},
		{"a file in it", func(t *testing.T, b Box) { must(t, os.WriteFile(filepath.Join(b.Dir, "x"), nil, 0o600)) }, false},
		{"renamed and made again", func(t *testing.T, b Box) {
			must(t, errors.Join(os.Rename(b.Dir, b.Dir+"-old"), os.Mkdir(b.Dir, 0o700)))
		}, true},
		{"a renamed one in its place", func(t *testing.T, b Box) {
			must(t, errors.Join(os.Mkdir(b.Dir+"-new", 0o700), os.RemoveAll(b.Dir), os.Rename(b.Dir+"-new", b.Dir)))
		}, true},
		{"directory for temporary files", func(t *testing.T, b Box) {
			must(t, errors.Join(os.Rename(b.Temp, b.Temp+"-old"), os.Mkdir(b.Temp, 0o700)))
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			d, b := h.driver(), newBox(t, "agent/a1=1")
			parent := t.TempDir()
			b.Dir, b.Temp = filepath.Join(parent, "workdir"), filepath.Join(parent, "scratch")
			must(t, errors.Join(os.Mkdir(b.Dir, 0o700), os.Mkdir(b.Temp, 0o700)))
			h.run(d, b, "true")
			first := h.containers()
			c.change(t, b)
			h.run(d, b, "echo now >file")
			if file, err := os.ReadFile(filepath.Join(b.Dir, "file")); err != nil || string(file) != "now\n" {
				t.Errorf("file %q, %v", file, err)
			}
			if now := h.containers(); len(now) != 1 || (now[0] != first[0]) != c.again {
				t.Errorf("containers %q, before %q", now, first)
			}
		})
	}
}

// Two processes make the container of all agents at the same time: one is made, and both use it.
func TestCreateRace(t *testing.T) {
	h := newHost(t)
	b := newBox(t, "")
	var both sync.WaitGroup
	for range 4 {
		d := h.driver()
		both.Go(func() {
			for range 3 {
				if r, err := d.In(b).Run(t.Context(), sandbox.Command{Shell: "echo ok"}); err != nil || string(r.Stdout) != "ok\n" {
					t.Errorf("%v: %s %s", err, r.Stdout, r.Stderr)
				}
			}
		})
	}
	both.Wait()
	if n := len(h.containers()); n != 1 {
		t.Errorf("%d containers", n)
	}
}

// S4-78: without a docker that works nothing runs, and the error says what to do. It never runs on the host.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name      string
		set       func(h *host, d *Driver, b *Box, c *sandbox.Command)
		reason    string
		what, fix string
	}{
		{"no program", func(_ *host, d *Driver, _ *Box, _ *sandbox.Command) {
			d.opts.Program = ""
			t.Setenv("PATH", t.TempDir())
		}, fault.SandboxUnavailable, "not installed", "install docker"},
		{"daemon down", func(h *host, _ *Driver, _ *Box, _ *sandbox.Command) { h.write("down", "") }, fault.SandboxUnavailable, "Cannot connect to the Docker daemon", "docker version"},
		{"image missing", func(h *host, _ *Driver, _ *Box, _ *sandbox.Command) { h.write("images", "") }, fault.SandboxUnavailable, "no image " + image, "docker pull " + image},
		{"directory missing", func(_ *host, _ *Driver, b *Box, _ *sandbox.Command) { b.Temp = "/missing" }, fault.SandboxUnavailable, "does not exist: /missing", "make it"},
		{"source of a bind missing", func(_ *host, _ *Driver, b *Box, _ *sandbox.Command) { b.Binds = []string{"/missing:/data:ro"} }, fault.SandboxUnavailable, "does not exist: /missing", "sandbox.docker.binds"},
		{"hosts", func(_ *host, _ *Driver, _ *Box, c *sandbox.Command) { c.Through(nil); c.Serve = proxied }, fault.SandboxUnavailable, "limit the network", "sandbox.network"},
		{"bind", func(_ *host, _ *Driver, b *Box, _ *sandbox.Command) { b.Binds = []string{"/etc:/x"} }, fault.ConfigInvalid, "/etc", "remove it"},
		{"input", func(_ *host, _ *Driver, _ *Box, c *sandbox.Command) { c.Stdin = strings.NewReader("x") }, fault.InvalidArgument, "no input", "file"},
		{"no program in the image", func(h *host, _ *Driver, _ *Box, _ *sandbox.Command) { t.Setenv("PATH", t.TempDir()) }, fault.SandboxUnavailable, "setsid", "image has sh and setsid"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			d, b, command := h.driver(), newBox(t, "agent/a1=1"), sandbox.Command{Shell: "touch ran"}
			path := os.Getenv("PATH")
			c.set(h, d, &b, &command)
			_, err := d.In(b).Run(t.Context(), command)
			must(t, os.Setenv("PATH", path))
			e := fault.From(err)
			if !fault.Is(err, c.reason) || !strings.Contains(e.What, c.what) || !strings.Contains(e.Fix, c.fix) {
				t.Errorf("%v - %s", err, e.Fix)
			}
			if _, err := os.Stat(filepath.Join(b.Dir, "ran")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("it ran: %v", err)
			}
		})
	}
}

// Containers without a command for too long, and those that are too old, are removed; one in which something runs is not.
func TestPrune(t *testing.T) {
	h := newHost(t)
	d, b := h.driver(), newBox(t, "agent/a1=1")
	b.Scope = "agent"
	var counted []string
	d.opts.Count = func(scope string, n int) { counted = append(counted, fmt.Sprint(scope, n)) }
	count := func(what string, d *Driver, want int) {
		t.Helper()
		must(t, d.Prune(t.Context()))
		if n := len(h.containers()); n != want {
			t.Errorf("%s: %d containers, want %d", what, n, want)
		}
	}
	h.run(d, b, "true")
	count("just used", d, 1)
	other := New(Options{Program: h.program(), Home: "/home/b"})
	other.began = time.Now().Add(-48 * time.Hour)
	count("of another home", other, 1)
	next := h.driver()
	count("after a restart", next, 1)
	next.began = time.Now().Add(-25 * time.Hour)
	path := fifo(t, b, "gate")
	done := make(chan sandbox.Result)
	go func() { done <- h.run(d, b, "read x <gate") }()
	gate, err := os.OpenFile(path, os.O_WRONLY, 0) // the command has begun
	must(t, err)
	count("another process runs something", next, 1)
	must(t, gate.Close())
	if r := <-done; r.ExitCode != 1 {
		t.Errorf("result %+v", r)
	}
	count("idle", next, 0)
	b.PruneMaxAge.Seconds = 0
	h.run(d, b, "true")
	count("too old", d, 0)
	count("none is left", d, 0)
	if !slices.Equal(counted, []string{"agent1", "agent-1"}) {
		t.Errorf("counted %q", counted)
	}
}

// A command that begins while its container is removed waits for that, and gets another one, also by a process that has not
// used the container before.
func TestPruneAndRun(t *testing.T) {
	h := newHost(t)
	b := newBox(t, "agent/a1=1")
	h.run(h.driver(), b, "true")
	first := h.containers()
	// Docker answers that nothing runs in the container, and the answer arrives when the gate is opened.
	slow := filepath.Join(h.dir, "slow")
	must(t, os.WriteFile(slow, []byte("#!/bin/sh\nset -e\ncd '"+b.Dir+"'\nout=$('"+h.program()+"' \"$@\")\n"+
		"[ \"$1\" != container ] || { echo >asked; read x <gate; }\nprintf '%s\\n' \"$out\"\n"), 0o700))
	asked, gate := fifo(t, b, "asked"), fifo(t, b, "gate")
	d := h.driver()
	d.opts.Program, d.began = slow, time.Now().Add(-25*time.Hour)
	pruned := make(chan error)
	go func() { pruned <- d.Prune(t.Context()) }()
	if _, err := os.ReadFile(asked); err != nil {
		t.Fatal(err)
	}
	known := d.take(b.GetContainer(), "agent") // as a command does that begins
	if known.changing.TryLock() {
		t.Error("a command would not wait for the removal of its container")
		known.changing.Unlock()
	}
	d.give(known)
	must(t, os.WriteFile(gate, []byte("\n"), 0))
	must(t, <-pruned)
	if n := len(h.containers()); n != 0 {
		t.Errorf("%d containers", n)
	}
	d.opts.Program = h.program()
	if r := h.run(d, b, "echo ok"); string(r.Stdout) != "ok\n" || len(h.containers()) != 1 || h.containers()[0] == first[0] {
		t.Errorf("result %+v in %q, before %q", r, h.containers(), first)
	}
}

func proxied(l net.Listener) { _ = l.Close() }
