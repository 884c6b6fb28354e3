package backup

import (
	"errors"

	"golang.org/x/sys/unix"
)

// exchange swaps two directories at once where the file system can do it.
func exchange(a, b string) error {
	err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return exchangeByNames(a, b)
	}
	return err
}
