package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/theclaw/agents/proofs/standin/option"
)

func (h home) pidFile() string { return filepath.Join(string(h), "notifier.pid") }

// pid is the living daemon's, 0 without one.
func (h home) pid() int {
	b, _ := os.ReadFile(h.pidFile())
	n, err := strconv.Atoi(string(b))
	if err != nil || syscall.Kill(n, 0) != nil {
		return 0
	}
	return n
}

func start(h home, o option.Set, _ io.Reader, out, _ io.Writer) error {
	if pid := h.pid(); pid != 0 {
		return refuse("Error: Daemon is already running (PID: %d). Use 'notifier stop' first.", pid)
	}
	if err := h.make(); err != nil {
		return err
	}
	if o.Has("foreground") {
		return newDaemon(h).run()
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c := exec.Command(self, "start", "--foreground")
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		return err
	}
	for range 3000 {
		if h.pid() == c.Process.Pid {
			fmt.Fprintf(out, "Daemon started (PID: %d)\n", c.Process.Pid)
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return refuse("Error: the daemon does not start")
}

func stop(h home, _ option.Set, _ io.Reader, out, _ io.Writer) error {
	pid := h.pid()
	if pid == 0 {
		return refuse("Daemon is not running (no PID file found)")
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return err
	}
	for range 500 {
		if h.pid() == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Fprintf(out, "Daemon stopped (was PID: %d)\n", pid)
	return nil
}

func status(h home, o option.Set, _ io.Reader, out, errs io.Writer) error {
	pid, where := h.pid(), out
	if o.Has("json") {
		where = errs
	}
	fmt.Fprintln(where, "Data: "+string(h))
	switch {
	case o.Has("json") && pid == 0:
		fmt.Fprintln(out, `{"running":false,"pid":null}`)
	case o.Has("json"):
		fmt.Fprintf(out, "{\"running\":true,\"pid\":%d}\n", pid)
	case pid == 0:
		fmt.Fprintln(out, "Daemon is not running")
	default:
		fmt.Fprintf(out, "Daemon is running (PID: %d)\n", pid)
	}
	return nil
}

// daemon runs task files one after another.
type daemon struct {
	home   home
	chance *rand.Rand
	lose   int // per cent
}

func newDaemon(h home) *daemon {
	seed, _ := strconv.ParseUint(os.Getenv("NOTIFIER_SEED"), 10, 64)
	lose, _ := strconv.Atoi(os.Getenv("NOTIFIER_LOSE"))
	return &daemon{h, rand.New(rand.NewPCG(seed, 0)), lose}
}

// maxQueue is more files than any test leaves waiting.
const maxQueue = 1 << 16

func (d *daemon) run() error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	w, err := fsnotify.NewBufferedWatcher(4096)
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }()
	if err := w.Add(d.home.tasks("pending")); err != nil {
		return err
	}
	// "start" returns when the PID file is there: what is written after that is
	// announced by the watcher, not found here.
	queue := make(chan pending, maxQueue)
	left, err := os.ReadDir(d.home.tasks("pending"))
	if err != nil {
		return err
	}
	for _, e := range left {
		if strings.HasSuffix(e.Name(), ".txt") {
			queue <- d.look(e.Name(), false)
		}
	}
	if err := os.WriteFile(d.home.pidFile(), []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
		return err
	}
	defer func() { _ = os.Remove(d.home.pidFile()) }()
	d.log("INFO", "Daemon started (PID: %d)", os.Getpid())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case p := <-queue:
				d.work(p)
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			<-done
			return nil
		case e := <-w.Events:
			if e.Has(fsnotify.Create) && strings.HasSuffix(e.Name, ".txt") {
				queue <- d.look(filepath.Base(e.Name), true)
			}
		}
	}
}

// pending is a file that was read, well or not.
type pending struct {
	name string
	task task
	err  error
}

// look reads a file at the moment its name is there.
func (d *daemon) look(name string, fresh bool) pending {
	b, err := os.ReadFile(filepath.Join(d.home.tasks("pending"), name))
	if errors.Is(err, os.ErrNotExist) {
		return pending{}
	}
	if fresh && d.chance.IntN(100) < d.lose {
		b = nil
	}
	t, err := readTask(b)
	return pending{name, t, err}
}

func (d *daemon) work(p pending) {
	if p.name == "" {
		return
	}
	d.log("INFO", "Processing task file: %s", p.name)
	to := "done"
	if p.err != nil {
		d.log("WARN", "Task file parse error [%s]: %v", p.name, p.err)
		to = "error"
	} else {
		began := time.Now()
		d.log("INFO", "Executing command for task [%s]: %s", p.name, p.task.command)
		c := exec.Command("sh", "-c", p.task.command)
		_ = c.Run() // the exit code changes nothing
		d.log("INFO", "Task [%s] completed (exit %d, %dms)", p.name, c.ProcessState.ExitCode(), time.Since(began).Milliseconds())
	}
	if err := os.Rename(filepath.Join(d.home.tasks("pending"), p.name), filepath.Join(d.home.tasks(to), p.name)); err == nil {
		d.log("INFO", "Moved [%s] to tasks/%s/", p.name, to)
	}
}

func (d *daemon) log(level, format string, a ...any) {
	f, err := os.OpenFile(filepath.Join(string(d.home), "logs", "notifier.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	fmt.Fprintf(f, "[%s] [%s] %s\n", time.Now().UTC().Format("2006-01-02T15:04:05.000Z"), level, fmt.Sprintf(format, a...))
}
