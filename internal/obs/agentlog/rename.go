package agentlog

import "os"

// renameAfterLook renames and never replaces: looking first is enough, since all
// writers hold the lock here.
func renameAfterLook(from, to string) error {
	if _, err := os.Lstat(to); err == nil {
		return os.ErrExist
	}
	return os.Rename(from, to)
}
