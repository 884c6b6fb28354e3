package agentlog

import (
	"errors"

	"golang.org/x/sys/unix"
)

// renameNew renames and never replaces, in one step where the file system can.
func renameNew(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return renameAfterLook(from, to)
	}
	return err
}
