package jail

import (
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/theclaw/agents/internal/sandbox/cgroup"
	"github.com/theclaw/agents/internal/sandbox/isolation"
	"github.com/theclaw/agents/internal/sandbox/wire"
)

const (
	// endGrace is how long a trampoline has to end its tree before it is killed itself;
	// the kernel then ends the rest.
	endGrace = 600 * time.Millisecond
	// maxSpares is how many processes wait at most, each for another kind of program.
	maxSpares = 4
	// spareFor is how long a process waits for the next program before it is ended.
	spareFor = time.Minute
	// maxUses is how many programs a trampoline runs: its own processor time counts
	// against the limit that it sets for each of them.
	maxUses = 100
)

// A kind says for which programs a process can be started before their order is there.
type kind struct {
	driver   string // Full, Privileged, Off; "": another one, which is in the order
	network  bool
	uid, gid int
	limits   wire.Limits
	cgroups  string // directories, separated by NUL
}

func kindOf(o wire.Order) kind {
	k := kind{limits: o.Limits, cgroups: strings.Join(o.Cgroups, "\x00")}
	switch o.Driver {
	case wire.Full, wire.Privileged:
		k.driver, k.network, k.uid, k.gid = o.Driver, o.Network, o.UID, o.GID
	case wire.Off:
		k.driver = o.Driver
	}
	return k
}

// init reports whether the process is the init of a namespace; otherwise it is a trampoline.
func (k kind) init() bool { return k.driver == wire.Full || k.driver == wire.Privileged }

// A child is an init or a trampoline that waits for its order, or works on it.
type child struct {
	kind        kind
	pid, handle int // handle is the pidfd
	order       wire.FD
	group       cgroup.Group
	uses        int  // programs that it has run
	waits       bool // it has run one, and waits for the next order
}

// launcher starts the processes of all programs of one runner.
type launcher struct {
	groups []int       // ours, which a trampoline gets back
	forks  chan func() // run by the main thread
	calls  sync.WaitGroup

	mu       sync.Mutex
	spares   map[kind]child
	starting map[kind]bool // spares that are being started
	idle     *time.Timer
	ended    bool
}

// launch takes the calls that come over the socket fdOrder until the runner closes it, or
// dies, and returns when their programs have ended.
func launch() int {
	unix.CloseOnExec(fdOrder)
	l := &launcher{forks: make(chan func()), spares: map[kind]child{}, starting: map[kind]bool{}}
	if os.Geteuid() == 0 {
		// Groups would survive in a user namespace as nameless, working ones.
		l.groups, _ = syscall.Getgroups()
		if err := syscall.Setgroups(nil); err != nil && !errors.Is(err, unix.EPERM) {
			return 1
		}
	}
	l.idle = time.AfterFunc(spareFor, l.drop)
	go func() {
		defer close(l.forks)
		for {
			files, err := wire.Receive(fdOrder)
			if err != nil {
				break
			}
			l.calls.Go(func() {
				if c, ok := l.call(files); ok {
					l.spare(c)
				}
			})
		}
		l.mu.Lock()
		l.ended = true
		l.mu.Unlock()
		l.calls.Wait()
	}()
	// PR_SET_PDEATHSIG is sent when the thread that started the child ends, and this one
	// lives as long as the process.
	for fork := range l.forks {
		fork()
	}
	return 0 // spares end when they see their sockets closed
}

// call runs one program. The descriptors are the lifeline, from which the order comes, the
// status, the standard three, the user namespace of an id-mapped mount where there is
// one, and the socket for the listener where there is one. The runner takes the end of the status for the end of the tree. The result is the
// process that ran it, which has ended or waits.
func (l *launcher) call(files []int) (c child, ok bool) {
	defer func() {
		for _, f := range files {
			_ = unix.Close(f)
		}
	}()
	if len(files) < 5 {
		return c, false
	}
	lifeline, status, standard := files[0], wire.FD(files[1]), files[2:5]
	o, err := wire.ReadOrder(wire.FD(lifeline))
	if err != nil {
		status.Fail(err)
		return c, false
	}
	given := append(append([]int{}, standard...), int(status))
	var listener []int
	if o.Listen != "" {
		if len(files) < 6 {
			status.Fail(wire.Step("listen", unix.EBADF))
			return c, false
		}
		listener, files = files[len(files)-1:], files[:len(files)-1]
		defer func() { _ = unix.Close(listener[0]) }()
	}
	if o.Idmap {
		// Started as root the program must not be root: RLIMIT_NPROC does not bind
		// the host's uid 0, and files of root stay writable for it without any
		// capability. Yet the workdir is root's. An id-mapped mount solves both:
		// the program is an unprivileged uid everywhere, and in the workdir alone
		// the kernel translates it to the owner and back, so that what it creates
		// belongs to the owner. File systems that cannot (overlayfs in some
		// containers) leave the owner's uid itself; then the pids cgroup counts.
		trees, err := isolation.IdmappedTrees(o, files[len(files)-1])
		if err == nil {
			for _, tree := range trees {
				defer unix.Close(tree)
			}
			given = append(given, trees...)
		} else {
			o.Idmap, o.UID, o.GID = false, o.OwnerUID, o.OwnerGID
		}
	}
	given = append(given, listener...)
	// "echo x > /dev/stderr" opens the pipe again, which asks for its owner.
	if o.Driver != wire.Off {
		_ = unix.Fchown(standard[1], o.UID, o.GID)
		_ = unix.Fchown(standard[2], o.UID, o.GID)
	}
	if c, err = l.take(kindOf(o)); err != nil {
		status.Fail(err)
		return c, false
	}
	c.uses++
	if err := wire.SendOrder(c.order, o, given); err != nil {
		status.Fail(err)
		c.kill()
	}
	c.await(lifeline)
	return c, true
}

// await returns when the process has ended, and its tree with it; with Off when its tree has,
// and it waits. It is ended when the runner closes the lifeline.
func (c *child) await(lifeline int) {
	if c.kind.driver == wire.Off {
		wire.Either(lifeline, c.handle, -1, int(c.order))
		if c.waits = c.order.Ready(); c.waits {
			return
		}
	} else {
		wire.Either(lifeline, c.handle, -1)
	}
	if !wire.Either(-1, c.handle, 0) {
		if c.kind.init() {
			c.kill() // the kernel ends the namespace with its init
		} else {
			_ = unix.Shutdown(int(c.order), unix.SHUT_RDWR) // it ends its tree first
			if !wire.Either(-1, c.handle, endGrace) {
				c.kill()
			}
		}
	}
	c.reap()
}

// kill does nothing to a process that was reaped: the handle is not reused as a pid is.
func (c child) kill() { _ = unix.PidfdSendSignal(c.handle, unix.SIGKILL, nil, 0) }

func (c child) reap() {
	reap(c.pid)
	_ = unix.Close(c.handle)
	_ = unix.Close(int(c.order))
}

// end ends a process that waits.
func (c child) end() {
	c.kill()
	c.reap()
}

// discard ends a process that waits, and removes its group.
func (c child) discard() {
	c.end()
	c.group.Remove()
}

// reap waits for the end of a process.
func reap(pid int) {
	for {
		if _, err := unix.Wait4(pid, nil, 0, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// take returns the process that waits, or starts one.
func (l *launcher) take(k kind) (child, error) {
	l.mu.Lock()
	c, ok := l.spares[k]
	delete(l.spares, k)
	l.mu.Unlock()
	if ok && !wire.Either(-1, c.handle, 0) {
		return c, nil
	}
	if ok { // it was killed
		c.discard()
	}
	return l.start(k)
}

// spare has a process wait for the next program of the kind, after the last one has ended:
// that one does not wait for it, and the next one finds it. It is the last one's, in the same
// group, where that can be.
func (l *launcher) spare(last child) {
	k, again := last.kind, last.waits && last.uses < maxUses && last.group.Clean()
	l.mu.Lock()
	_, ok := l.spares[k]
	if ok = ok || l.starting[k] || l.ended; !ok {
		l.starting[k] = true
	}
	l.mu.Unlock()
	if !again || ok {
		defer last.group.Remove()
		if last.waits {
			defer last.end()
		}
	}
	if ok {
		return
	}
	c, err := last, error(nil)
	if !again {
		c, err = l.start(k)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.starting, k)
	if err != nil {
		return // the next program reports what is wrong
	}
	if len(l.spares) >= maxSpares {
		l.dropLocked()
	}
	l.spares[k] = c
	l.idle.Reset(spareFor)
}

// drop ends the processes that wait.
func (l *launcher) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropLocked()
}

func (l *launcher) dropLocked() {
	for k, c := range l.spares {
		delete(l.spares, k)
		c.discard()
	}
}

// start starts a process of the kind; it waits for its order at once.
func (l *launcher) start(k kind) (child, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return child{}, wire.Step("socket", err)
	}
	defer unix.Close(ends[1])
	c := child{kind: k, handle: -1, order: wire.FD(ends[0])}
	if k.cgroups != "" {
		c.group, err = cgroup.Set{Bases: strings.Split(k.cgroups, "\x00")}.Create(k.limits)
	}
	if err == nil {
		err = l.fork(&c, ends[1])
	}
	if err != nil {
		_ = unix.Close(ends[0])
		c.group.Remove()
	}
	return c, err
}

func (l *launcher) fork(c *child, order int) (err error) {
	role, env := roleInit, Env()
	sys := &syscall.SysProcAttr{PidFD: &c.handle, Pdeathsig: syscall.SIGKILL}
	switch c.kind.driver {
	case wire.Full:
		userNamespace(c.kind, sys)
	case wire.Privileged:
		sys.Cloneflags = namespaces(c.kind)
	default:
		// It must outlive us for a moment: it ends its tree.
		role, sys.Pdeathsig, sys.Setsid = roleTrampoline, 0, true
		if os.Geteuid() == 0 {
			sys.Credential = &syscall.Credential{Uid: 0, Gid: uint32(os.Getegid())}
			for _, g := range l.groups {
				sys.Credential.Groups = append(sys.Credential.Groups, uint32(g))
			}
		}
		if c.kind.driver == wire.Off {
			env = LauncherEnv() // it has more than one order to read
		}
	}
	done := make(chan struct{})
	l.forks <- func() {
		defer close(done)
		err = c.group.Fork(sys, func() (err error) {
			c.pid, err = syscall.ForkExec("/proc/self/exe", []string{"sandbox", marker, role}, &syscall.ProcAttr{
				Env: env, Files: []uintptr{0, 1, 2, uintptr(order)}, Sys: sys,
			})
			return wire.Step("clone", err)
		})
	}
	<-done
	if err == nil && c.handle < 0 {
		_ = unix.Kill(c.pid, unix.SIGKILL)
		reap(c.pid)
		err = wire.Step("pidfd", unix.ENOSYS) // the kernel is older than 5.4
	}
	return err
}
