package agents_test

import (
	"bytes"
	"io/fs"
	"os"
	"strings"
	"testing"
)

// Only source is committed: no compiled program is part of the repository. Folders that
// begin with a dot, and those of npm, are not committed.
func TestNoPrograms(t *testing.T) {
	seen := 0
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || name != "." && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		var head [4]byte
		n, _ := f.Read(head[:])
		for _, magic := range []string{"\x7fELF", "\xcf\xfa\xed\xfe", "MZ\x90\x00"} {
			if bytes.Equal(head[:n], []byte(magic)) {
				t.Errorf("%s is a program", name)
			}
		}
		seen++
		return nil
	})
	if err != nil || seen < 500 {
		t.Errorf("%d files seen, %v", seen, err)
	}
}
