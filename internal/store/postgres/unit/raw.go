package unit

// Stored is a value as the server takes it, for a statement outside of a Tx.
func Stored(v any) any { return stored(v) }

// Restore undoes Stored in what a row was scanned into.
func Restore(dest []any) error { return restore(dest) }
