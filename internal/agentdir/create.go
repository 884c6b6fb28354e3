package agentdir

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/agentdir/safefile"
	"github.com/theclaw/agents/internal/fault"
)

// Spec is what a new agent begins with.
type Spec struct {
	Kind            string // system or user; "" is user
	Provider, Model string // "" leaves the choice to the home-wide settings
	Identity, Usage []byte // nil: the text for the id, else the one for a user agent
	// Profile and AlsoAllow are its tools, unless the settings of the home choose them.
	Profile   string // "" is none
	AlsoAllow []string
	// Prepare creates what this package does not, the inbox database, in the unfinished
	// directory. When it fails no agent is created.
	Prepare func(dir string) error
}

// tree lists the directories of an agent. threads/main is a thread once it is used.
var tree = []string{
	"inbox", "logs", "memory", "sessions", "workdir",
	"threads", "threads/channels", "threads/main", "threads/peers", "threads/sessions",
}

// Create creates an agent: it builds the tree under a temporary name and renames it, so that
// nobody sees half of it and of two creations one fails with AGENT_EXISTS.
func (h *Home) Create(id string, spec Spec) (Dir, error) {
	d, err := h.Agent(id)
	if err != nil {
		return Dir{}, err
	}
	files, err := spec.Files(d)
	if err != nil {
		return Dir{}, err
	}
	agents, err := h.root.OpenRoot("agents")
	if err != nil {
		return Dir{}, Fault(err)
	}
	defer func() { _ = agents.Close() }()
	if _, err := agents.Lstat(id); err == nil {
		return Dir{}, d.Exists()
	}
	tmp := "." + id + ".tmp-" + strings.ToLower(rand.Text())
	err = h.build(agents, tmp, files, spec.Prepare)
	if err == nil {
		fault.Point("agentdir:before-create")
		err = h.place(agents, tmp, d)
	}
	if err != nil {
		return Dir{}, errors.Join(Fault(err), agents.RemoveAll(tmp))
	}
	return d, nil
}

// place gives the finished directory its name. A rename replaces an empty directory
// only, and ours never are, so the second of two fails.
func (h *Home) place(agents *os.Root, tmp string, d Dir) error {
	err := agents.Rename(tmp, d.ID)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.ENOTDIR) {
		return d.Exists()
	}
	if err != nil {
		return err
	}
	return h.names.syncEntries(func() error { return safefile.SyncDir(agents, ".") })
}

// Exists is the error for an agent that is there; it has the words of the command line
// (CONTRACTS 6).
func (d Dir) Exists() *fault.Error {
	e := fault.New(codes.AlreadyExists, fault.AgentExists, fmt.Sprintf("Agent '%s' already exists at %s", d.ID, d.Path),
		"remove the directory first or choose a different id")
	e.Meta = map[string]string{"agent_id": d.ID, "dir": d.Path}
	return e
}

// Files renders the text files of a new agent and checks them before anything is created.
func (s Spec) Files(d Dir) (map[string][]byte, error) {
	preset := presetFor(d.ID)
	settings, err := s.settings(d)
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{"IDENTITY.md": s.Identity, "USAGE.md": s.Usage, configFile: settings}
	if s.Identity == nil {
		out["IDENTITY.md"] = preset.Identity
	}
	if s.Usage == nil {
		out["USAGE.md"] = preset.Usage
	}
	for name, data := range out {
		if err := d.Accept(name, data); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// settings are the config.yaml of a new agent.
func (s Spec) settings(d Dir) ([]byte, error) {
	text := configText(d.ID, s)
	if s.Profile == "" {
		return text, nil
	}
	plain := s
	plain.Profile, plain.AlsoAllow = "", nil
	home := configText(d.ID, plain)
	a, err := d.load(home, codes.InvalidArgument, nil)
	if err != nil {
		return nil, err
	}
	for _, key := range append(config.ToolKeys(), "tools.profile") {
		for _, key := range []string{key, config.HomeKey + key} {
			if v, err := a.Get(key); err == nil && v.Origin != "default" {
				return home, nil
			}
		}
	}
	return text, nil
}

// build makes the tree below the temporary name and syncs it.
func (h *Home) build(agents *os.Root, tmp string, files map[string][]byte, prepare func(string) error) (err error) {
	if err := agents.Mkdir(tmp, 0o700); err != nil {
		return err
	}
	root, err := agents.OpenRoot(tmp)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	hold, err := root.Open(".")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hold.Close()) }()
	// While this lock is held, List knows that somebody is at work here.
	if err := syscall.Flock(int(hold.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("lock new directory: %w", err)
	}
	for _, dir := range tree {
		if err := root.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	for name, data := range files {
		if err := root.WriteFile(name, data, 0o600); err != nil { // nobody reads here yet
			return err
		}
	}
	if prepare != nil {
		if err := prepare(filepath.Join(h.AgentsDir(), tmp)); err != nil {
			return fmt.Errorf("prepare agent: %w", err)
		}
	}
	return h.trees.syncTree(root, hold)
}
