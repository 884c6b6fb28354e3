package agentdir

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/theclaw/agents/internal/agentdir/safefile"
)

// HasFile tells whether a regular file is there. name is below the agent's directory
// and made by ourselves, such as a session's.
func (d Dir) HasFile(name string) (bool, error) {
	root, err := d.open()
	if err != nil {
		return false, err
	}
	defer func() { _ = root.Close() }()
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, Fault(fmt.Errorf("look at %s: %w", name, err))
	}
	return info.Mode().IsRegular(), nil
}

// OwnFile reads such a file.
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
