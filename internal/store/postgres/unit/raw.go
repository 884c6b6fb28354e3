package unit

import (
	"crypto/sha256"
	"encoding/hex"
)

// maxIndexed is the longest text of an index, in bytes: the server refuses a row of an index over 2,704 bytes.
const maxIndexed = 2500

// Indexed is a text as an index has it, which is compared with others as they are there: its hash, where it is too long.
func Indexed(s string) string {
	if len(s) <= maxIndexed {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Stored is a value as the server takes it, for a statement outside of a Tx.
func Stored(v any) any { return stored(v) }

// Restore undoes Stored in what a row was scanned into.
func Restore(dest []any) error { return restore(dest) }
