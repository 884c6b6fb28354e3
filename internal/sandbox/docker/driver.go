package docker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/sandbox"
)

const (
	// callTime bounds one call of docker that is not the command itself.
	callTime = time.Minute
	// tries bounds how often a container that others change at the same time is looked for.
	tries = 10
	// maxAnswer bounds what is read of an answer of docker, in bytes, and maxError what is shown of an error.
	maxAnswer = 1 << 20
	maxError  = 500
	// pruneEvery is the time between two searches for containers that are not used any more.
	pruneEvery = 5 * time.Minute
)

// Options are the data of New.
type Options struct {
	// Program is the program docker; empty: it is looked for on the PATH at each call.
	Program string
	// Home is the directory of the home: containers of another one are not touched, and no bind shows it.
	Home string
	// Forbidden are paths of the host that no container may show, hold or be in.
	Forbidden []string
	// Count notes how many containers of a scope this process has begun to use (1), or knows to be removed (-1). It may
	// be nil.
	Count  func(scope string, n int)
	Logger *slog.Logger
}

// Driver runs programs in containers. It is safe for concurrent use.
type Driver struct {
	opts  Options
	home  string
	began time.Time

	mu    sync.Mutex
	boxes map[string]*box // by the name of the container
}

// box is what this process knows of a container.
type box struct {
	changing sync.Mutex // held while the container is looked for and made

	// Under the lock of the driver:
	id      string    // of the container that this process has used last
	scope   string    // that it is for
	used    time.Time // zero: it has not used it
	running int
}

// New makes a driver. It starts nothing.
func New(o Options) *Driver {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Count == nil {
		o.Count = func(string, int) {}
	}
	return &Driver{opts: o, home: hashOf(o.Home), began: time.Now(), boxes: map[string]*box{}}
}

// In returns what runs programs in a container, which is made when the first one runs.
func (d *Driver) In(b Box) *Place { return &Place{d, b} }

// Place runs programs in one container.
type Place struct {
	driver *Driver
	box    Box
}

// Run runs c and waits for its end, as [sandbox.Sandbox.Run] does. An error says that it was not run:
// SANDBOX_UNAVAILABLE for docker, CONFIG_INVALID for the settings, LEASE_LOST when a later holder has the container.
func (p *Place) Run(ctx context.Context, c sandbox.Command) (sandbox.Result, error) {
	return p.driver.run(ctx, p.box, c)
}

// Problem is why no program can run in the container; nil: docker answers and has the image.
func (d *Driver) Problem(ctx context.Context, b Box) error {
	if err := d.check(b); err != nil {
		return err
	}
	if _, err := d.call(ctx, "version", "--format", "{{.Server.Version}}"); err != nil {
		return err
	}
	_, err := d.call(ctx, "image", "inspect", "--format", "{{.Id}}", b.GetImage())
	return d.missing(err, b)
}

// Maintain removes containers that are not used any more, until ctx ends. Before the first command of this process
// it does not call docker.
func (d *Driver) Maintain(ctx context.Context) {
	tick := time.NewTicker(pruneEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			d.mu.Lock()
			used := len(d.boxes) > 0
			d.mu.Unlock()
			if !used {
				continue
			}
			if err := d.Prune(ctx); err != nil && ctx.Err() == nil {
				d.opts.Logger.Warn("containers that are not used were not removed", "error", fault.Chain(err))
			}
		}
	}
}

// Prune removes the containers of the home in which nothing runs and which are too old or were without a command for
// too long. How long is counted from the start of this process where it has not used the container.
func (d *Driver) Prune(ctx context.Context) error {
	list, err := d.list(ctx, labelHome+"="+d.home)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	var failed []error
	for _, f := range list {
		there[f.name] = true
		removed, err := d.pruneOne(ctx, f)
		if err != nil {
			failed = append(failed, err)
		}
		if removed {
			d.opts.Logger.Info("container removed that was not used any more", "container", f.name)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.boxes, func(name string, b *box) bool {
		over := !there[name] && b.running == 0
		if over && b.id != "" {
			d.opts.Count(b.scope, -1)
		}
		return over
	})
	return errors.Join(failed...)
}

// pruneOne removes a container that is not used any more. A command of this process that begins now waits for it.
func (d *Driver) pruneOne(ctx context.Context, f found) (removed bool, err error) {
	d.mu.Lock()
	b := d.boxes[f.name]
	if b == nil {
		b = &box{}
		d.boxes[f.name] = b // a command that begins now has to find what it waits for
	}
	used := b.used
	if used.IsZero() {
		used = d.began
	}
	d.mu.Unlock()
	now := time.Now()
	if now.Sub(f.created) < f.maxAge && now.Sub(used) < f.idle {
		return false, nil
	}
	b.changing.Lock()
	defer b.changing.Unlock()
	d.mu.Lock()
	running := b.running
	d.mu.Unlock()
	// Other processes may run something in it.
	if out, err := d.call(ctx, "container", "inspect", "--format", "{{len .ExecIDs}}", f.id); running > 0 || err != nil || out != "0" {
		return false, nil // it is used, or gone; else it is looked at again
	}
	return true, d.remove(ctx, f.id)
}

// found is a container that there is.
type found struct {
	id, state, name, home, settings, fence string
	created                                time.Time
	idle, maxAge                           time.Duration
}

// list returns the containers with a label.
func (d *Driver) list(ctx context.Context, label string) (list []found, err error) {
	format := "{{.ID}}\t{{.State}}"
	for _, l := range []string{labelName, labelHome, labelSettings, labelFence, labelCreated, labelIdle, labelMaxAge} {
		format += "\t{{.Label \"" + l + "\"}}"
	}
	out, err := d.call(ctx, "ps", "--all", "--no-trunc", "--filter", "label="+label, "--format", format)
	if err != nil {
		return nil, err
	}
	number := func(s string) int64 {
		n, _ := strconv.ParseInt(s, 10, 64) // a label of another program: 0, and it is not ours
		return n
	}
	for line := range strings.SplitSeq(out, "\n") {
		f := strings.Split(line, "\t")
		if len(f) != 9 {
			continue
		}
		list = append(list, found{
			id: f[0], state: f[1], name: f[2], home: f[3], settings: f[4], fence: f[5], created: time.Unix(number(f[6]), 0),
			idle: time.Duration(number(f[7])) * time.Second, maxAge: time.Duration(number(f[8])) * time.Second,
		})
	}
	return list, nil
}

// take returns what this process knows of a container, and counts one more command in it until give.
func (d *Driver) take(name, scope string) *box {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.boxes[name]
	if b == nil {
		b = &box{}
		d.boxes[name] = b
	}
	if b.id == "" {
		b.scope = scope
	}
	b.running++
	b.used = time.Now()
	return b
}

func (d *Driver) give(b *box) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b.running--
	b.used = time.Now()
}

// ensure returns the id of the container, which runs then. Another process may make or remove it at the same time.
func (d *Driver) ensure(ctx context.Context, known *box, b Box) (id string, err error) {
	at, err := look(b)
	if err != nil {
		return "", err
	}
	create, hash := b.createArgs(d.home, at, time.Now())
	known.changing.Lock()
	defer known.changing.Unlock()
	for range tries {
		list, err := d.list(ctx, labelName+"="+b.GetContainer())
		if err != nil {
			return "", err
		}
		if len(list) == 0 {
			id, err := d.call(ctx, create...)
			if e, ok := errors.AsType[*callError](err); ok && strings.Contains(e.said, "is already in use") {
				continue
			}
			if err != nil {
				return "", d.missing(err, b)
			}
			d.use(known, id)
			fault.Point("docker:created")
			continue // it has to be started
		}
		f := list[0]
		if f.home != d.home {
			return "", foreign(b)
		}
		d.mu.Lock()
		ours := known.id == f.id
		d.mu.Unlock()
		switch age := compare(f.fence, b.Fence); {
		case age > 0:
			return "", fault.New(codes.Aborted, fault.LeaseLost, "a later holder of the agent has made the container, so nothing was run", "")
		case f.settings != hash, age < 0 && !ours, f.state != "running" && f.state != "created" && f.state != "exited":
			if err := d.remove(ctx, f.id); err != nil {
				return "", err
			}
		case f.state != "running":
			if _, err := d.call(ctx, "start", f.id); err != nil {
				if e, ok := errors.AsType[*callError](err); ok && gone(e.said) {
					continue
				}
				// It may not be startable at all, such as with a path that is gone: the next command makes another.
				return "", errors.Join(err, d.remove(ctx, f.id))
			}
		default:
			d.use(known, f.id)
			return f.id, nil
		}
	}
	return "", foreign(b)
}

func (d *Driver) use(b *box, id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if b.id == "" {
		d.opts.Count(b.scope, 1)
	}
	b.id = id
}

// foreign is the error for a name that cannot be had.
func foreign(b Box) error {
	return unavailable(fmt.Sprintf("the container %s is of another program or home, so nothing was run", b.GetContainer()),
		"remove it with 'docker rm', or set sandbox.docker.container_prefix to another prefix", nil)
}

// compare says whether the lease of a container is older (-1) or later (1) than ours; 0: it is the same, or not to
// be compared.
func compare(its, ours string) int {
	of, its, _ := strings.Cut(its, "=")
	resource, ours, _ := strings.Cut(ours, "=")
	x, err := strconv.ParseInt(its, 10, 64)
	y, other := strconv.ParseInt(ours, 10, 64)
	if of != resource || err != nil || other != nil {
		return 0
	}
	return cmp.Compare(x, y)
}

// remove removes a container with all that runs in it.
func (d *Driver) remove(ctx context.Context, id string) error {
	_, err := d.call(ctx, "rm", "--force", "--volumes", id)
	if e, ok := errors.AsType[*callError](err); ok && gone(e.said) {
		return nil
	}
	return err
}

// gone says whether docker has said that a container is not there, or on its way out.
func gone(said string) bool {
	said = strings.ToLower(said)
	return strings.Contains(said, "no such container") || strings.Contains(said, "removal of container") || strings.Contains(said, "marked for removal")
}

// check refuses directories that would show what no program may see.
func (d *Driver) check(b Box) error {
	for _, dir := range []string{b.Dir, b.Temp} {
		if f := shows(dir, d.opts.Forbidden); dir != "" && f != "" {
			return fault.New(codes.FailedPrecondition, fault.ConfigInvalid,
				fmt.Sprintf("the working directory %s would show %s to programs, so nothing was run", dir, f), "use a directory that does not contain it")
		}
	}
	forbidden := d.opts.Forbidden
	if d.opts.Home != "" {
		forbidden = append(slices.Clip(forbidden), d.opts.Home)
	}
	for _, bind := range b.GetBinds() {
		source, _, _ := strings.Cut(bind, ":")
		if f := shows(source, forbidden); f != "" {
			return fault.New(codes.FailedPrecondition, fault.ConfigInvalid,
				fmt.Sprintf("sandbox.docker.binds: %s would show %s to programs, so nothing was run", source, f), "remove it from the settings")
		}
	}
	return nil
}

// shows returns which of the paths a directory holds or is in, by its name or behind links; empty: none.
func shows(dir string, paths []string) string {
	for _, f := range paths {
		for _, p := range []string{filepath.Clean(dir), resolve(dir)} {
			if within(p, f) || within(f, p) || within(p, resolve(f)) || within(resolve(f), p) {
				return f
			}
		}
	}
	return ""
}

// resolve is the path behind links, or the path itself where there is none.
func resolve(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return filepath.Clean(path)
}

// within says whether path is dir or below it.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// directories is what the host says of the directories of a box.
type directories struct {
	uid, gid int // the owner of Dir
	// which are the device and the inode of Dir and Temp. A mount goes on to show a directory that was renamed or
	// removed, and keeps its inode, so that no other directory at that path has the same.
	which string
}

// look looks at the directories of a box. One for temporary files that is not there is refused by docker.
func look(b Box) (at directories, err error) {
	st, err := os.Stat(b.Dir)
	if err != nil {
		return at, fmt.Errorf("stat working directory: %w", err)
	}
	at.uid, at.gid = os.Geteuid(), os.Getegid()
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		at.uid, at.gid = int(sys.Uid), int(sys.Gid)
	}
	at.which = inode(st)
	if b.Temp == "" {
		return at, nil
	}
	st, err = os.Stat(b.Temp)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return at, fmt.Errorf("stat directory for temporary files: %w", err)
	}
	if err == nil {
		at.which += " " + inode(st)
	}
	return at, nil
}

// inode names a file of this machine, whatever its path is.
func inode(st os.FileInfo) string {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf("%d:%d", sys.Dev, sys.Ino)
	}
	return ""
}

// callError is a call of docker that failed.
type callError struct {
	verb, said string
	err        error
}

func (e *callError) Error() string { return "docker " + e.verb + ": " + cmp.Or(e.said, e.err.Error()) }
func (e *callError) Unwrap() error { return e.err }

// call calls docker and returns what it prints, without the last line break.
func (d *Driver) call(ctx context.Context, args ...string) (string, error) {
	program, err := d.program()
	if err != nil {
		return "", err
	}
	limited, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	var stdout, stderr bounded
	cmd := exec.CommandContext(limited, program, args...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &stdout, &stderr, time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a signal of a terminal is for this process
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if limited.Err() != nil {
			err = fmt.Errorf("no answer within %s", callTime)
		}
		e := &callError{args[0], said(stderr.Bytes()), err}
		return "", unavailable("docker does not work here, so nothing was run: "+cmp.Or(e.said, err.Error()),
			"see 'docker version': its daemon has to run, and this user needs the right to use it; or set sandbox.driver to auto", e)
	}
	return strings.TrimRight(stdout.String(), "\n"), nil
}

// program is the path of docker.
func (d *Driver) program() (string, error) {
	if d.opts.Program != "" {
		return d.opts.Program, nil
	}
	path, err := exec.LookPath("docker")
	if err != nil {
		return "", unavailable("the program docker is not installed, so nothing was run", "install docker, or set sandbox.driver to auto", err)
	}
	return path, nil
}

// missing names in an error what is not there: the image, or a directory that the container is to show.
func (d *Driver) missing(err error, b Box) error {
	e, ok := errors.AsType[*callError](err)
	if !ok {
		return err
	}
	switch said := strings.ToLower(e.said); {
	case strings.Contains(said, "no such image"):
		return unavailable("docker has no image "+b.GetImage()+", so nothing was run",
			"get it with 'docker pull "+b.GetImage()+"', or build it, or set sandbox.docker.image", err)
	case strings.Contains(said, "bind source path does not exist"):
		return unavailable("docker cannot show a path of this machine, so nothing was run: "+e.said,
			"make it, or remove it from sandbox.docker.binds", err)
	}
	return err
}

func unavailable(what, fix string, cause error) error {
	e := fault.New(codes.FailedPrecondition, fault.SandboxUnavailable, what, fix)
	if cause == nil {
		return e
	}
	return fault.Wrap(e, cause)
}

// said is the last line of an error of docker, fit for a message.
func said(b []byte) string {
	lines := strings.Split(strings.TrimSpace(sandbox.Text(b)), "\n")
	line := lines[len(lines)-1]
	for _, l := range lines { // a hint to --help may follow the error
		if strings.Contains(l, "rror") {
			line = l
			break
		}
	}
	if r := []rune(line); len(r) > maxError {
		line = string(r[:maxError])
	}
	return line
}

// bounded keeps the beginning of what is written to it.
type bounded struct{ bytes.Buffer }

// Write implements [io.Writer].
func (b *bounded) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), maxAnswer-b.Len())])
	return len(p), nil
}
