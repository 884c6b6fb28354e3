package turn

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

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
	if shared := c.GetWorkdirShared(); shared != "" {
		// Its name is that of the agent; what is above it is there, or it is not shared.
		c.Workdir = filepath.Join(shared, filepath.Base(agentID))
		if err := os.Mkdir(c.GetWorkdir(), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make working directory of agent %s: %w", agentID, err)
		}
	} else if root != "" {
		if c.Workdir, err = makeDir(agentID, root, "workdir"); err != nil {
			return err
		}
	} else if dir := c.GetWorkdir(); dir != "" {
		// Not with what is above it: that would make a deleted agent's directory again. Where
		// that is missing, the tools report it.
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("make working directory of agent %s: %w", agentID, err)
		}
	}
	if root != "" {
		c.SessionsDir, err = makeDir(agentID, root, "sessions")
	}
	return err
}

// makeDir makes a directory of an agent. The id was checked where the agent was made.
func makeDir(agentID, root, name string) (string, error) {
	path := filepath.Join(root, filepath.Base(agentID), name)
	if err := os.MkdirAll(path, 0o700); err != nil {
		return "", fmt.Errorf("make %s of agent %s: %w", name, agentID, err)
	}
	return path, nil
}
