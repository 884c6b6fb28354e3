package agentdir

import (
	"errors"
	"io/fs"
	"os"
	"sync"
	"syscall"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir/layer"
	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/fault"
)

// Home is an open home directory. Its methods may be used by many at once. The zero
// value is not usable; see [OpenHome].
type Home struct {
	// UserHome is what `~/` stands for in inbox.path; empty: such a path is refused.
	UserHome string

	layout.Home // the paths

	root *os.Root
	mu   sync.Mutex // one compare-and-set of a file at a time

	goodMu  sync.Mutex
	good    goodHome    // the settings of the home when they could last be used
	known   bool        // good was read
	shared  *layer.Home // what several registries share; nil: this home is alone
	seen    string      // the stamp of the files that problem is of; empty: read them again
	bad     error       // what is wrong with them
	refused string      // version of the last file that was read and not taken over
	first   *layer.Home // the settings that were first read

	cache fileCache

	// Concurrent creations share these syncs: first of the new trees, then of agents/.
	trees, names syncGroup
}

// OpenHome opens the home directory and makes it, run/, run/holders/ and agents/ with
// mode 0700 where they are missing. A home that others can write to is refused.
func OpenHome(path string) (*Home, error) {
	h := &Home{Home: layout.At(path)}
	if err := os.MkdirAll(h.Path(), 0o700); errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrNotExist) {
		return nil, fault.Wrap(fault.New(codes.FailedPrecondition, fault.InvalidArgument, h.Path()+" is not a directory and cannot be created", "set THECLAW_HOME to a directory"), err)
	} else if err != nil {
		return nil, Fault(err)
	}
	if err := private(h.Path()); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(h.Path())
	if err != nil {
		return nil, Fault(err)
	}
	for _, dir := range []string{"run", "run/holders", "agents"} {
		if err := root.Mkdir(dir, 0o700); err == nil || !errors.Is(err, fs.ErrExist) {
			if err != nil {
				return nil, errors.Join(Fault(err), root.Close())
			}
			continue
		}
		// Made by an older tool under a wide umask. A directory that is not ours stays.
		if err := root.Chmod(dir, 0o700); err != nil && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.EROFS) {
			return nil, errors.Join(Fault(err), root.Close())
		}
	}
	h.root = root
	return h, nil
}

// private refuses a home that anybody can write to and closes one that is ours.
func private(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return Fault(err)
	}
	if !info.IsDir() {
		return fault.New(codes.FailedPrecondition, fault.InvalidArgument, path+" is not a directory", "set THECLAW_HOME to a directory")
	}
	if info.Mode().Perm()&0o002 != 0 {
		return fault.New(codes.FailedPrecondition, fault.PermissionDenied, path+" can be written by everybody",
			"use a directory of your own as THECLAW_HOME, or run chmod 700 "+path)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if info.Mode().Perm()&0o077 == 0 || !ok || int(owner.Uid) != os.Geteuid() {
		return nil
	}
	if err := os.Chmod(path, 0o700); err != nil && !errors.Is(err, syscall.EROFS) && !errors.Is(err, fs.ErrPermission) {
		return Fault(err)
	}
	return nil
}

// Close releases the directory handle; the paths stay usable.
func (h *Home) Close() error {
	return h.root.Close()
}

// Agent returns the directory of an agent, which need not exist: see [Dir.Check].
func (h *Home) Agent(id string) (Dir, error) {
	if err := layout.ValidID(id); err != nil {
		return Dir{}, err
	}
	return Dir{ID: id, Path: h.AgentDir(id), home: h}, nil
}
