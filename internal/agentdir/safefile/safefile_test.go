package safefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestReplaceAndRead(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Replace(root, "f", []byte("new")); err != nil {
		t.Fatal(err)
	}
	if data, err := Read(root, "f"); err != nil || string(data) != "new" {
		t.Errorf("%q, %v", data, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "f")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of a file that was open to others: %v, %v", info.Mode(), err)
	}
	if err := Replace(root, "none/f", nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	if err := Replace(root, "../f", nil); err == nil {
		t.Error("wrote outside the root")
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "d"), 0o700), syscall.Mkfifo(filepath.Join(dir, "p"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := Replace(root, "d", []byte("x")); err == nil {
		t.Error("replaced a directory")
	}
	for _, name := range []string{"d", "p", "none", "../x"} {
		if _, err := Read(root, name); err == nil {
			t.Errorf("read %s", name)
		}
	}
	if err := Replace(root, "big", []byte(strings.Repeat("x", MaxSize+1))); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(root, "big"); err == nil || !strings.Contains(err.Error(), "larger") {
		t.Errorf("large file: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
