package topology

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

// Reachable copies programs to where every user can start them, until the test ends, and
// answers the directory.
func Reachable(t testing.TB, paths ...string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "programs")
	check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	check(t, os.Chmod(dir, 0o755))
	for _, path := range paths {
		in, err := os.Open(path)
		check(t, err)
		out, err := os.OpenFile(filepath.Join(dir, filepath.Base(path)), os.O_CREATE|os.O_WRONLY, 0o755)
		check(t, err)
		_, err = io.Copy(out, in)
		check(t, err)
		check(t, out.Close())
		_ = in.Close() // only read
	}
	return dir
}

// Root is a directory that every user can pass, until the test ends.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "site")
	check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	check(t, os.Chmod(dir, 0o755))
	return dir
}
