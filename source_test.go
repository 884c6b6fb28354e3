package agents_test

import (
	"bytes"
	"io/fs"
	"os"
	"strings"
	"testing"
)

// What is kept is source: a program that was built in passing belongs to no clone. Folders
// that begin with a dot, and what npm brings, are not kept.
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
