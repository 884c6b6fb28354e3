package transfer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/theclaw/agents/internal/agentdir"
)

// eachText calls found for the texts of an agent's directory that move with the agent, in
// the order of their names: settings, identity, usage, and memory. It ignores other files.
func eachText(dir string, found func(name string, data []byte) error) error {
	names := []string{"IDENTITY.md", "USAGE.md", "config.yaml"}
	for _, below := range []string{"memory/", "memory/past/"} {
		entries, err := os.ReadDir(filepath.Join(dir, filepath.FromSlash(below)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("list memory: %w", err)
		}
		for _, e := range entries {
			if name := below + e.Name(); e.Type().IsRegular() && agentdir.ValidFile(name) == nil {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read file: %w", err)
		}
		if err := found(name, append([]byte{}, data...)); err != nil {
			return err
		}
	}
	return nil
}

// writeText writes a text below dir and syncs it. It refuses a name that an agent's
// directory cannot have.
func writeText(dir, name string, data []byte) error {
	if err := agentdir.ValidFile(name); err != nil {
		return err
	}
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("make directory of file: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
