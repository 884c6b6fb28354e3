//go:build linux

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/theclaw/agents/internal/sandbox/jail"
	"github.com/theclaw/agents/internal/sandbox/wire"
)

// nobody is the host's uid and gid of programs when we are root ourselves. It
// owns nothing, and exists in every container.
const nobody = 65534

var errRootWorkdir = errors.New("this level cannot run programs as root, and the workdir belongs to root")

// order translates c for the driver. The file, when not nil, is the user namespace
// for the id-mapped mount; it stays open.
//
//	we are   driver              program is            files in the workdir belong to
//	a user   any                 that user             that user
//	root     full, privileged    nobody                the workdir's owner (id-mapped)
//	root     the same, no idmap  the workdir's owner   the workdir's owner
//	root     bubblewrap          the workdir's owner   the workdir's owner
//	root     reduced             the owner, not root   the owner
//	any      off                 we                    us
func (s *Sandbox) order(l Level, c Command) (wire.Order, *os.File, error) {
	o := wire.Order{
		Driver: string(l), Shell: c.Shell, Argv: c.Argv, Workdir: c.Workdir, Env: environment(c, "/tmp"),
		Network: c.Network, ReadOnly: slices.Concat(s.opts.ReadOnly, c.ReadOnly), Workspace: c.Workspace, WorkspaceAt: c.WorkspaceAt, Limits: c.Limits.jail(),
		Cgroups: s.cgroups.Bases, MemoryBound: s.cgroups.Memory, Bwrap: s.bwrap, Self: s.self,
	}
	if l == LevelBubblewrap {
		// Shown to bubblewrap by path: it would read the link as its own.
		p, err := filepath.EvalSymlinks(s.self)
		if err != nil {
			return o, nil, fmt.Errorf("find own binary: %w", err)
		}
		o.Self = p
	}
	o.UID, o.GID = os.Geteuid(), os.Getegid()
	o.OwnerUID, o.OwnerGID = o.UID, o.GID
	o.PIDBudget = o.Limits.Tasks()
	if o.UID != 0 || l == LevelOff {
		if l == LevelReduced || l == LevelOff {
			// Without a user namespace the limit counts all that the user runs.
			o.PIDBudget = 0
			if !s.cgroups.PIDs && o.UID != 0 {
				o.PIDBudget = tasksOf(o.UID) + o.Limits.Tasks()
			}
		}
		return o, nil, nil
	}
	var err error
	if o.OwnerUID, o.OwnerGID, err = owner(c.Workdir); err != nil {
		return o, nil, err
	}
	if l == LevelReduced && o.OwnerUID == 0 {
		return o, nil, errRootWorkdir
	}
	if l == LevelFull || l == LevelPrivileged {
		f, err := s.idmap.get(s.self, o.OwnerUID, o.OwnerGID)
		if err == nil {
			o.UID, o.GID, o.Idmap = nobody, nobody, true
			return o, f, nil
		}
	}
	if o.OwnerUID != 0 && o.OwnerGID == 0 {
		o.OwnerGID = nobody // not root, so not its group either
	}
	o.UID, o.GID = o.OwnerUID, o.OwnerGID
	return o, nil, nil
}

// idmaps keeps one user namespace for each owner of a workdir. It is only a table
// of ids here: nothing runs in it.
type idmaps struct {
	mu sync.Mutex
	by map[[2]int]*os.File
}

func (m *idmaps) get(self string, uid, gid int) (*os.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := [2]int{uid, gid}
	if f := m.by[key]; f != nil {
		return f, nil
	}
	// A user namespace needs a process to be born with; it is held at its input.
	cmd := exec.Command(self, jail.HoldArgs()...)
	cmd.Env = jail.Env()
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: nobody, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: gid, HostID: nobody, Size: 1}},
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("hold user namespace: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("hold user namespace: %w", err)
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid))
	_ = in.Close()
	_ = cmd.Wait()
	if err != nil {
		return nil, fmt.Errorf("open user namespace: %w", err)
	}
	if m.by == nil {
		m.by = map[[2]int]*os.File{}
	}
	m.by[key] = f
	return f, nil
}

func (m *idmaps) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.by {
		_ = f.Close()
	}
	m.by = nil
}

// tasksOf counts the processes and threads of a user.
func tasksOf(uid int) (n int64) {
	dirs, _ := filepath.Glob("/proc/[0-9]*/task")
	for _, d := range dirs {
		if u, _, err := owner(d); err == nil && u == uid {
			if threads, err := os.ReadDir(d); err == nil {
				n += int64(len(threads))
			}
		}
	}
	return n
}
