package backup

import (
	"errors"
	"os"
)

// exchangeByNames swaps two directories with three renames; a kill in between leaves
// one of them under the name with .aside.
func exchangeByNames(a, b string) error {
	aside := a + ".aside"
	if err := os.Rename(b, aside); err != nil {
		return err
	}
	if err := os.Rename(a, b); err != nil {
		return errors.Join(err, os.Rename(aside, b))
	}
	return os.Rename(aside, a)
}
