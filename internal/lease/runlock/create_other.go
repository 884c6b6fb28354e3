//go:build !linux

package runlock

import (
	"errors"
	"os"
)

// createLocked needs files without a name, which only Linux has.
func createLocked(string) (*os.File, error) { return nil, errors.ErrUnsupported }
