package shell

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// shown are the directories that every sandbox shows anyway.
var shown = []string{"/usr/", "/bin/", "/sbin/", "/nix/store/", "/gnu/store/"}

// Locate returns where programs in the sandbox find the program `agent` that is at a
// path here, and what has to be shown of the host for that: the one file. Nothing,
// when it is not there, or is a link to a program of another name.
func Locate(path string) (seen string, show []string) {
	at, err := filepath.EvalSymlinks(path)
	if err != nil || filepath.Base(at) != "agent" || !filepath.IsAbs(at) {
		return "", nil
	}
	if st, err := os.Stat(at); err != nil || !st.Mode().IsRegular() || st.Mode()&0o111 == 0 {
		return "", nil
	}
	if slices.ContainsFunc(shown, func(d string) bool { return strings.HasPrefix(at, d) }) {
		return at, nil
	}
	return at, []string{at}
}
