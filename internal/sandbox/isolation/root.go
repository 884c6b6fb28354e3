package isolation

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/theclaw/agents/internal/sandbox/wire"
)

// system is what of the host is shown, read-only. It holds programs and public
// settings: no /etc/passwd (a private one is written), no /var, /run, /home, /sys.
var system = []string{
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
	"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/ssl",
	"/etc/pki", "/etc/ca-certificates", "/etc/localtime", "/etc/mime.types", "/etc/protocols",
	"/etc/services", "/etc/nix", "/nix/store", "/gnu/store",
}

// NetworkFiles are shown in addition when the network is open.
var NetworkFiles = []string{"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf"}

var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}

// VisiblePaths returns the paths of the host that a program can see.
func VisiblePaths(o wire.Order) []string {
	paths := append(append([]string{}, system...), o.ReadOnly...)
	if o.Workspace != "" {
		paths = append(paths, o.Workspace)
	}
	return paths
}

// A tree is a detached copy of mounts, to be attached in the new root.
type tree struct {
	path string
	fd   int
	dir  bool
	link string // a symbolic link instead of a tree
}

// Enter replaces the root by a private one. The descriptors are the workdir and the workspace, ready
// to be attached, when the order says that they are id-mapped. Everything is opened first, with
// the rights in the host's directories; then init takes its ids and attaches.
// Landlock alone would not do: it covers neither path sockets nor chmod, xattr,
// utimes or stat.
func Enter(o wire.Order, mapped []int) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return wire.Step("mount private", err)
	}
	trees, err := open(o, mapped)
	if err != nil {
		return err
	}
	files := privateFiles(o)
	if o.Driver == wire.Full {
		if err := takeIDs(wire.ID, wire.ID); err != nil {
			return err
		}
	}
	base, err := newTmpfs("64m", "0755")
	if err != nil {
		return wire.Step("mount tmpfs", err)
	}
	// Any directory does: the old root is gone a moment later.
	if err := attach(base, "/tmp"); err != nil {
		if err = attach(base, "/usr"); err != nil {
			return wire.Step("mount tmpfs", err)
		}
	}
	if err := unix.Fchdir(base); err != nil {
		return wire.Step("chdir", err)
	}
	if err := furnish(o, trees, files); err != nil {
		return err
	}
	// The old root is stacked on the new one at the same place and taken away.
	if err := unix.PivotRoot(".", "."); err != nil {
		return wire.Step("pivot_root", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return wire.Step("detach old root", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return wire.Step("chdir", err)
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return wire.Step("seal root", err)
	}
	return wire.Step("chdir workdir", unix.Chdir(o.Workdir))
}

func open(o wire.Order, mapped []int) ([]tree, error) {
	var out []tree
	if o.Idmap && len(mapped) != len(Mapped(o)) {
		return nil, wire.Step("open workdir", unix.EBADF)
	}
	place := func(path string) string {
		if path == o.Workspace && o.WorkspaceAt != "" {
			return o.WorkspaceAt
		}
		return path
	}
	add := func(path string, attr uint64) error {
		st, err := os.Lstat(path)
		if err != nil {
			return nil // not on this host
		}
		if st.Mode()&os.ModeSymlink != 0 && (attr&unix.MOUNT_ATTR_RDONLY != 0) {
			to, err := os.Readlink(path)
			out = append(out, tree{path: path, link: to})
			return wire.Step("open "+path, err)
		}
		fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if err != nil {
			return wire.Step("open "+path, err)
		}
		if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: attr}); err != nil {
			return wire.Step("protect "+path, err)
		}
		out = append(out, tree{path: place(path), fd: fd, dir: st.IsDir()})
		return nil
	}
	for _, p := range devices {
		if err := add(p, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC); err != nil {
			return nil, err
		}
	}
	for _, p := range VisiblePaths(o) {
		if o.Idmap && p == o.Workspace {
			continue
		}
		if err := add(p, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV); err != nil {
			return nil, err
		}
	}
	if o.Idmap {
		for i, path := range Mapped(o) {
			out = append(out, tree{path: place(path), fd: mapped[i], dir: true})
		}
		return out, nil
	}
	return out, add(o.Workdir, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
}

// furnish fills the new root, which is the current directory.
func furnish(o wire.Order, trees []tree, files map[string][]byte) error {
	for _, d := range []string{"tmp", "proc", "dev", "etc"} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return wire.Step("make /"+d, err)
		}
	}
	tmp, err := newTmpfs(fmt.Sprint(o.Limits.FileBytes), "1777")
	if err == nil {
		err = attach(tmp, "tmp")
	}
	if err != nil {
		return wire.Step("mount /tmp", err)
	}
	for _, t := range trees {
		if err := place(t); err != nil {
			return wire.Step("show "+t.path, err)
		}
	}
	for name, b := range files {
		if err := os.WriteFile("."+name, b, 0o644); err != nil {
			return wire.Step("write "+name, err)
		}
	}
	for name, to := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "shm": "/tmp",
	} {
		if err := os.Symlink(to, "dev/"+name); err != nil {
			return wire.Step("link /dev/"+name, err)
		}
	}
	// Containers that mask parts of /proc refuse a new one. Programs then live
	// without, and nothing here needs it. Read-only: some files of /proc would
	// obey the host's uid 0 without any capability.
	if p, err := newMount("proc", unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC); err == nil {
		if err := attach(p, "proc"); err != nil {
			return wire.Step("mount /proc", err)
		}
	}
	return nil
}

func place(t tree) error {
	to := "." + t.path
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	switch {
	case t.link != "":
		return os.Symlink(t.link, to)
	case t.dir:
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
	default:
		f, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		_ = f.Close()
	}
	return attach(t.fd, to)
}

// privateFiles are written instead of the host's, which name its users and hosts.
func privateFiles(o wire.Order) map[string][]byte {
	f := map[string][]byte{
		"/etc/passwd":        fmt.Appendf(nil, "root:x:0:0::/nonexistent:/bin/false\nagent:x:%d:%d::%s:/bin/sh\n", wire.ID, wire.ID, o.Workdir),
		"/etc/group":         fmt.Appendf(nil, "root:x:0:\nagent:x:%d:\n", wire.ID),
		"/etc/hosts":         []byte("127.0.0.1 localhost sandbox\n::1 localhost\n"),
		"/etc/nsswitch.conf": []byte("passwd: files\ngroup: files\nhosts: files dns\n"),
	}
	if o.Network {
		for _, p := range NetworkFiles {
			if b, err := os.ReadFile(p); err == nil {
				f[p] = b
			}
		}
	}
	return f
}

func newTmpfs(size, mode string) (int, error) {
	return newMount("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, "size", size, "mode", mode, "nr_inodes", "65536")
}

func newMount(kind string, attr int, options ...string) (int, error) {
	fs, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fs)
	for i := 0; i < len(options); i += 2 {
		if err := unix.FsconfigSetString(fs, options[i], options[i+1]); err != nil {
			return -1, fmt.Errorf("%s: %w", strings.Join(options[i:i+2], "="), err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, err
	}
	return unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attr)
}

func attach(fd int, to string) error {
	return unix.MoveMount(fd, "", unix.AT_FDCWD, to, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// Mapped are the directories of an order that have the ids of a user namespace.
func Mapped(o wire.Order) []string {
	if o.Workspace == "" {
		return []string{o.Workdir}
	}
	return []string{o.Workdir, o.Workspace}
}

// IdmappedTrees are the directories of [Mapped], detached, with the ids of the user namespace. They are
// without the mounts below them: each would need to support the mapping as well.
func IdmappedTrees(o wire.Order, userns int) (trees []int, err error) {
	for _, dir := range Mapped(o) {
		attr := uint64(0)
		if dir == o.Workspace {
			attr = unix.MOUNT_ATTR_RDONLY
		}
		tree, err := idmappedTree(dir, userns, attr)
		if err != nil {
			for _, fd := range trees {
				_ = unix.Close(fd)
			}
			return nil, err
		}
		trees = append(trees, tree)
	}
	return trees, nil
}

func idmappedTree(dir string, userns int, attr uint64) (int, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return -1, err
	}
	err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{
		Attr_set: attr | unix.MOUNT_ATTR_IDMAP | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV, Userns_fd: uint64(userns),
	})
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}
