//go:build !linux

package agentdir

import (
	"errors"
	"os"
)

// Other systems have no call that waits for one entire filesystem: each caller syncs its
// own files.
func filesystemSyncs(*os.File) bool { return false }

func syncFilesystem(*os.File) error { return errors.ErrUnsupported }
