package agentdir

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/theclaw/agents/internal/agentdir/safefile"
)

// OwnFile reads a file below the agent's directory whose name we made ourselves, such
// as a session's. The cause of one that is missing is fs.ErrNotExist.
func (d Dir) OwnFile(name string) ([]byte, error) {
	root, err := d.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	b, err := safefile.Read(root, name)
	if err != nil {
		return nil, Fault(fmt.Errorf("read %s: %w", name, err))
	}
	return b, nil
}

// OwnFiles lists the regular files of a directory below the agent's; one that is not there has
// none.
func (d Dir) OwnFiles(dir string) (names []string, err error) {
	root, err := d.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	entries, err := fs.ReadDir(root.FS(), dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, Fault(fmt.Errorf("list %s: %w", dir, err))
	}
	for _, e := range entries {
		if e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// RemoveFile removes such a file; one that is not there is no error.
func (d Dir) RemoveFile(name string) error {
	root, err := d.open()
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Fault(fmt.Errorf("remove %s: %w", name, err))
	}
	return nil
}
