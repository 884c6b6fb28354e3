// Package pgtest runs PostgreSQL clusters for tests: created, started and removed by the
// test that needs one, on a Unix socket of its own, durable as in production unless
// requested otherwise. Without the server programs it skips the test and says so.
package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/theclaw/agents/internal/testing/need"
)

// Cluster is one running server.
type Cluster struct {
	dir  string
	data string
	port int
	bin  string
	as   *syscall.Credential
	cmd  *exec.Cmd
	ends chan error
	n    atomic.Int64
	from string // the database that others are copies of
	// guarded is whether something else ends the server when this process ends; else the kernel
	// does, when the thread ends that started it.
	guarded bool
}

// Start makes a cluster and starts it; it ends with the test. Settings are lines of
// postgresql.conf. fsync is on unless they turn it off.
func Start(t testing.TB, settings ...string) *Cluster {
	t.Helper()
	c := create(t, settings...)
	t.Cleanup(func() { _ = os.RemoveAll(c.dir) })
	c.Up(t)
	t.Cleanup(func() { c.Kill(t) })
	return c
}

// create makes a cluster, whose directory the caller removes.
func create(t testing.TB, settings ...string) *Cluster {
	t.Helper()
	bin, as := needed(t)
	c := &Cluster{bin: bin, as: as, port: 5432}
	// Short: a socket's path has 107 bytes. Not t.TempDir: it belongs to root.
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		t.Fatal(err)
	}
	c.dir, c.data = dir, filepath.Join(dir, "data")
	if c.as != nil {
		if err := os.Chown(dir, int(c.as.Uid), int(c.as.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	c.run(t, "initdb", "--pgdata", c.data, "--auth=trust", "--username=claw", "--encoding=UTF8", "--locale=C", "--no-instructions", "--no-sync")
	conf := append([]string{
		"listen_addresses = ''", "unix_socket_directories = '" + dir + "'", "max_connections = 200", "shared_buffers = 64MB",
		"dynamic_shared_memory_type = mmap", // in its directory: one that is killed removes nothing
		"log_min_messages = warning", "log_min_error_statement = panic",
	}, settings...)
	c.configure(t, conf...)
	return c
}

// needed are the server programs, and who runs them.
func needed(t testing.TB) (bin string, as *syscall.Credential) {
	t.Helper()
	bin, u := need.Postgres(t)
	if u == nil {
		return bin, nil
	}
	uid, errU := strconv.ParseUint(u.Uid, 10, 32)
	gid, errG := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(errU, errG); err != nil {
		t.Fatal(err)
	}
	return bin, &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// Program is the path of a program of the server's version, such as pg_dump.
func (c *Cluster) Program(name string) string { return filepath.Join(c.bin, name) }

func (c *Cluster) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(c.Program(name), args...)
	cmd.Dir = c.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.as, Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd
}

func (c *Cluster) run(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := c.command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

// Up starts the server, after Kill as well, and waits until it answers.
func (c *Cluster) Up(t testing.TB) {
	t.Helper()
	c.cmd = c.command("postgres", "-D", c.data, "-p", strconv.Itoa(c.port))
	if c.guarded {
		c.cmd.SysProcAttr.Pdeathsig = 0
	}
	var said bytes.Buffer
	c.cmd.Stderr, c.cmd.Stdout = &said, &said
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.ends = make(chan error, 1)
	go func(cmd *exec.Cmd, ends chan error) { ends <- cmd.Wait() }(c.cmd, c.ends)
	deadline := time.Now().Add(time.Minute)
	for {
		conn, err := pgx.Connect(t.Context(), c.url("postgres"))
		if err == nil {
			if err := conn.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			return
		}
		select {
		case end := <-c.ends:
			t.Fatalf("postgres ended: %v\n%s", end, said.String())
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("postgres does not answer: %v", err)
		}
	}
}

// Kill ends the server and its children at once, as a crash does. Each child has a
// group of its own. Killing twice is fine.
func (c *Cluster) Kill(t testing.TB) {
	t.Helper()
	if c.cmd == nil {
		return
	}
	// A stopped server starts no more children: one that was missed here would live on, wait
	// for a lock of a killed one and hold the output that the end of the server is read from.
	_ = c.cmd.Process.Signal(syscall.SIGSTOP)
	for c.runs() {
		runtime.Gosched()
	}
	for _, p := range c.processes() {
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
	}
	if err := <-c.ends; err == nil {
		t.Error("the server had ended by itself")
	}
	c.cmd = nil
}

// runs reports whether the server's first process is neither stopped nor ended.
func (c *Cluster) runs() bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
	if err != nil {
		return false
	}
	state := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))[0]
	return !strings.Contains("TZX", state)
}

// Template makes every database from now on a copy of one that fill has filled: that
// takes a tenth of the time.
func (c *Cluster) Template(t testing.TB, fill func(url string)) {
	t.Helper()
	url := c.Database(t)
	fill(url)
	c.from = fmt.Sprintf("claw%d", c.n.Load())
}

// Database makes a database, an empty one unless there is a template, and answers its URL.
func (c *Cluster) Database(t testing.TB) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.url("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	name, like := fmt.Sprintf("claw%d", c.n.Add(1)), ""
	if c.from != "" {
		like = " TEMPLATE " + c.from
	}
	_, err = conn.Exec(ctx, "CREATE DATABASE "+name+like)
	if err := errors.Join(err, conn.Close(ctx)); err != nil {
		t.Fatal(err)
	}
	return c.url(name)
}

func (c *Cluster) url(db string) string {
	return fmt.Sprintf("postgres://claw@/%s?host=%s&port=%d", db, c.dir, c.port)
}
