//go:build !linux

package runlock

import (
	"errors"
	"os"
)

// whole needs files without a name, which only Linux has.
func whole(string) (*os.File, error) { return nil, errors.ErrUnsupported }
