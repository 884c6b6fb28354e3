//go:build linux

package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A program of another build, and one that is not there, are not used.
func TestFindProgram(t *testing.T) {
	good, err := program()
	if err != nil {
		t.Fatal(err)
	}
	if s := with(t, LevelOff, Options{}); s.self != good {
		t.Errorf("the sandbox starts %s, not %s", s.self, good)
	}
	dir := t.TempDir()
	sum := strings.Repeat("0", 64)
	if p, err := FindProgram(dir, sum); err == nil {
		t.Errorf("found %s in an empty directory", p)
	}
	if err := os.WriteFile(filepath.Join(dir, ProgramName), []byte("another"), 0o700); err != nil {
		t.Fatal(err)
	}
	if p, err := FindProgram(dir, sum); err == nil || !strings.Contains(err.Error(), "another build") {
		t.Errorf("a program of another build: %s %v", p, err)
	}
	if p, err := FindProgram(filepath.Dir(good), ""); err == nil {
		t.Errorf("found %s without a hash", p)
	}
}

// Without the small program this one starts itself.
func TestSelfAsProgram(t *testing.T) {
	s, err := New(t.Context(), Options{Mode: Off, ScratchDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r, err := s.Run(t.Context(), Command{Shell: "echo here", Workdir: workdir(t, LevelOff)})
	if err != nil || string(r.Stdout) != "here\n" || r.ExitCode != 0 {
		t.Errorf("%+v %v", r, err)
	}
}
