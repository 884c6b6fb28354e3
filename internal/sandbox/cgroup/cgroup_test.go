package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestSweep(t *testing.T) {
	dir := t.TempDir()
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	for name, stays := range map[string]bool{
		fmt.Sprintf("theclaw-%d-1", dead.Process.Pid): false,
		fmt.Sprintf("theclaw-%d-1", os.Getpid()):      true,
		"theclaw-x":                                   true,
		"other-1-1":                                   true,
	} {
		p := filepath.Join(dir, name)
		if err := os.Mkdir(p, 0o755); err != nil {
			t.Fatal(err)
		}
		sweep(dir)
		if _, err := os.Stat(p); errors.Is(err, os.ErrNotExist) == stays {
			t.Errorf("%s: %v", name, err)
		}
	}
}
