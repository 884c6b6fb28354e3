package turn

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/theclaw/agents/internal/agentdir/config"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// localDirs replaces the directories of a claim where this runner shares no files with
// the registry: by a directory that all runners have, or by those below root. It makes
// them. An empty root keeps the registry's paths; a working directory that settings name is
// made there when the directory above it exists.
func localDirs(agentID, root string, c *registrypb.TurnConfig) (err error) {
	if c == nil {
		return nil
	}
	at := Workdir(agentID, root, c)
	if c.GetSandbox().GetScratch() != "" {
		c.Sandbox.Scratch = Scratch(root, c)
		if err := makeScratch(agentID, c.GetSandbox().GetScratch()); err != nil {
			return err
		}
	}
	switch shared := c.GetWorkdirShared() != ""; {
	case onScratch(c):
		c.Workdir = at
	case shared:
		// What is above it is there, or it is not shared.
		c.Workdir = at
		if err := os.Mkdir(c.GetWorkdir(), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make working directory of agent %s: %w", agentID, err)
		}
	case root != "":
		if c.Workdir, err = makeDir(agentID, at, "working directory"); err != nil {
			return err
		}
	case at != "":
		// Not with what is above it: that would make a deleted agent's directory again. Where
		// that is missing, the tools report it.
		if err := os.Mkdir(at, 0o700); err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("make working directory of agent %s: %w", agentID, err)
		}
	}
	if root != "" {
		c.SessionsDir, err = makeDir(agentID, filepath.Join(root, filepath.Base(agentID), "sessions"), "directory of sessions")
	}
	return err
}

// Workdir is the working directory of a turn on the machine of a runner: below the directory that all
// runners have, else below root, else where the registry says; the scratch directory where the turn has no
// access to the agent's. The id was checked where the agent was made.
func Workdir(agentID, root string, c *registrypb.TurnConfig) string {
	if onScratch(c) {
		return Scratch(root, c)
	}
	if shared := c.GetWorkdirShared(); shared != "" {
		return filepath.Join(shared, filepath.Base(agentID))
	}
	if root != "" {
		return filepath.Join(root, filepath.Base(agentID), "workdir")
	}
	return c.GetWorkdir()
}

// scratchDir holds the scratch directories of a runner of another machine. No agent has this name.
const scratchDir = ".sandboxes"

// onScratch reports whether the scratch directory is the working directory.
func onScratch(c *registrypb.TurnConfig) bool {
	return c.GetSandbox().GetScratch() != "" && c.GetSandbox().GetAccess() == config.AccessNone
}

// Scratch is the scratch directory of a turn on the machine of a runner, which is found as [Workdir] is.
func Scratch(root string, c *registrypb.TurnConfig) string {
	at := c.GetSandbox().GetScratch()
	if shared := c.GetWorkdirShared(); shared != "" {
		root = shared
	}
	if root == "" {
		return at
	}
	return filepath.Join(root, scratchDir, filepath.Base(at))
}

// makeScratch makes a scratch directory and the one that holds all of them, and nothing above.
func makeScratch(agentID, at string) error {
	for _, dir := range []string{filepath.Dir(at), at} {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make scratch directory of agent %s: %w", agentID, err)
		}
	}
	return nil
}

// makeDir makes a directory of an agent.
func makeDir(agentID, path, what string) (string, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return "", fmt.Errorf("make %s of agent %s: %w", what, agentID, err)
	}
	return path, nil
}
