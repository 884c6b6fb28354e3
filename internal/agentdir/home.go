package agentdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
)

// maxSocketPath is the longest path a Unix socket can have on Linux, in bytes
// (sun_path is 108 with its end mark).
const maxSocketPath = 107

// Home is an open home directory. Its methods may be used by many at once. The zero
// value is not usable; see [OpenHome] and [At].
type Home struct {
	// UserHome is what `~/` stands for in inbox.path; empty: such a path is refused.
	UserHome string

	path string
	root *os.Root   // nil when only the paths are wanted
	mu   sync.Mutex // one compare-and-set of a file at a time
}

// DefaultHome returns the home directory that the environment asks for: THECLAW_HOME,
// else .theclaw in HOME. The result is absolute.
func DefaultHome(getenv func(string) string) (string, error) {
	path, user := getenv("THECLAW_HOME"), getenv("HOME")
	switch rest, tilde := strings.CutPrefix(path, "~/"); {
	case path == "" && user != "":
		path = filepath.Join(user, ".theclaw")
	case tilde && user != "":
		path = filepath.Join(user, rest)
	case path == "" || tilde:
		return "", fault.New(codes.FailedPrecondition, fault.InvalidArgument, "there is no home directory",
			"set THECLAW_HOME to a directory, or set HOME")
	}
	if strings.ContainsAny(path, "\x00\n\r") {
		return "", fault.New(codes.InvalidArgument, fault.InvalidArgument, "the home directory's path holds a line break or NUL", "set THECLAW_HOME to another directory")
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("resolve home: %w", err)
	}
	return abs, nil
}

// At returns a Home for the paths alone: nothing is opened or made.
func At(path string) *Home { return &Home{path: filepath.Clean(path)} }

// OpenHome opens the home directory and makes it, run/, run/holders/ and agents/ with
// mode 0700 where they are missing. A home that others can write to is refused.
func OpenHome(path string) (*Home, error) {
	h := At(path)
	if err := os.MkdirAll(h.path, 0o700); err != nil {
		return nil, Fault(err)
	}
	if err := private(h.path); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(h.path)
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
	if h.root == nil {
		return nil
	}
	return h.root.Close()
}

// Path returns the home directory.
func (h *Home) Path() string { return h.path }

// RunDir holds what lives as long as a process: sockets, token, locks.
func (h *Home) RunDir() string { return filepath.Join(h.path, "run") }

// TokenFile holds the capability token of the local services.
func (h *Home) TokenFile() string { return filepath.Join(h.path, "run", "token") }

// LockFile is held by the one registry of this home.
func (h *Home) LockFile() string { return filepath.Join(h.path, "run", "registry.lock") }

// HoldersDir holds one locked file for each living holder of leases.
func (h *Home) HoldersDir() string { return filepath.Join(h.path, "run", "holders") }

// AgentsDir holds one directory for each agent.
func (h *Home) AgentsDir() string { return filepath.Join(h.path, "agents") }

// RegistryDB is the registry's own database. It is not in run/: what is in there may
// be lost at a reboot, leases and desired states may not.
func (h *Home) RegistryDB() string { return filepath.Join(h.path, "registry.db") }

// DefaultsFile is the optional file of home-wide settings.
func (h *Home) DefaultsFile() string { return filepath.Join(h.path, homeFile) }

const homeFile = "theclaw.yaml"

var serviceRule = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

// Socket returns the path of a service's Unix socket. A path that is longer than the
// system allows is an error that says what to do.
func (h *Home) Socket(service string) (string, error) {
	if !serviceRule.MatchString(service) {
		return "", fault.New(codes.InvalidArgument, fault.InvalidArgument, shown(service)+" is not a service name", "use registry, runner or deliverer")
	}
	path := filepath.Join(h.path, "run", service+".sock")
	if len(path) > maxSocketPath {
		return "", fault.New(codes.FailedPrecondition, fault.InvalidArgument,
			fmt.Sprintf("the socket path %s has %d bytes, %d is the limit", path, len(path), maxSocketPath),
			"set THECLAW_HOME to a shorter path, such as a symbolic link to it")
	}
	return path, nil
}

// Agent returns the directory of an agent, which need not exist: see [Dir.Check].
func (h *Home) Agent(id string) (Dir, error) {
	if err := ValidID(id); err != nil {
		return Dir{}, err
	}
	return Dir{ID: id, Path: filepath.Join(h.path, "agents", id), home: h}, nil
}
