// Package exposure checks what other users may read of a home: the modes of its files
// ([File.Exposed]), and whether a file contains a text that must stay secret ([Holds]).
//
// It changes nothing and knows no agent but by the place of a file ([Walk]).
package exposure

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/theclaw/agents/internal/agentdir/layout"
	"github.com/theclaw/agents/internal/filetree"
)

// File is a file, a directory or another entry of a home.
type File struct {
	filetree.Entry        // its Path is relative to the home
	Full           string // the complete path
	Agent          string // the agent in whose directory it lies; empty: none
	Rest           string // the path in that directory, with slashes
}

// Workdir reports whether a file lies in a working directory: what an agent's programs
// make there is theirs, and the directory itself keeps everybody else out.
func (f File) Workdir() bool { return strings.HasPrefix(f.Rest, "workdir/") }

// hook reports whether a file lies among the programs of hooks, of the home or of the agent.
func (f File) hook() bool {
	return strings.HasPrefix(f.Path, "hooks/") || strings.HasPrefix(f.Rest, "hooks/")
}

// Walk calls visit for a home and every file in it, and failed for what cannot be read, which ends
// nothing. Of other agents than only it calls for none. An [fs.SkipDir] of visit leaves
// out what is in a directory.
func Walk(ctx context.Context, home layout.Home, only string, visit func(File) error, failed func(File, error)) error {
	root, err := os.OpenRoot(home.Path())
	if err != nil {
		return fmt.Errorf("walk home: %w", err)
	}
	defer func() { _ = root.Close() }() // it was only read
	info, err := root.Stat(".")
	if err != nil {
		return fmt.Errorf("walk home: %w", err)
	}
	if err := visit(at(home, filetree.Entry{Path: ".", Info: info, Dir: root})); err != nil {
		return err
	}
	err = filetree.Walk(ctx, root, ".", func(e filetree.Entry) error {
		f := at(home, e)
		if only != "" && f.Agent != "" && f.Agent != only {
			if e.Info.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		return visit(f)
	}, func(path string, err error) { failed(at(home, filetree.Entry{Path: path}), err) })
	if err != nil {
		return fmt.Errorf("walk home: %w", err)
	}
	return nil
}

func at(home layout.Home, e filetree.Entry) File {
	f := File{Entry: e, Full: filepath.Join(home.Path(), e.Path)}
	if rel, err := filepath.Rel(home.Path(), home.AgentsDir()); err == nil {
		if below, ok := strings.CutPrefix(e.Path, filepath.ToSlash(rel)+"/"); ok {
			f.Agent, f.Rest, _ = strings.Cut(below, "/")
		}
	}
	return f
}

// Exposure is how far the mode of a file is wider than it should be.
type Exposure int

// The exposures.
const (
	Private Exposure = iota
	// Enclosed: other users may read the file by its mode, but not enter its directory, and
	// another program made it: the external thread tool, whose logs follow its umask.
	Enclosed
	// Exposed: the mode is one that our own programs never set.
	Exposed
)

// Exposed reports whether the mode of a file lets other users in, and the mode that it must
// have at most.
func (f File) Exposed() (Exposure, fs.FileMode) {
	most, counts := privateMode(f.Info)
	if f.hook() {
		most |= 0o100
	}
	switch {
	case !counts || f.Workdir() || f.Info.Mode().Perm()&^most == 0:
		return Private, most
	case f.toolLog():
		if dir, err := f.Dir.Stat("."); err == nil && dir.Mode().Perm()&0o077 == 0 {
			return Enclosed, most
		}
	}
	return Exposed, most
}

// toolLog reports whether a file is a log of a thread, which every program that uses the
// thread may write.
func (f File) toolLog() bool {
	dir, name, ok := strings.Cut(f.Rest, "/logs/")
	return ok && f.Info.Mode().IsRegular() && strings.HasSuffix(name, ".log") && !strings.Contains(name, "/") &&
		(dir == "inbox" || strings.HasPrefix(dir, "threads/"))
}

// privateMode is the mode that a file of a home must have at most; false when
// the mode does not count, as that of a symbolic link.
func privateMode(info fs.FileInfo) (fs.FileMode, bool) {
	switch {
	case info.IsDir():
		return 0o700, true
	case info.Mode().IsRegular(), info.Mode()&fs.ModeSocket != 0:
		return 0o600, true
	}
	return 0, false
}

// Holds reports whether a stream holds one of the secrets, as it is or as JSON
// writes it. It reads pieces that overlap by the longest secret.
func Holds(r io.Reader, secrets []string) bool {
	var want [][]byte
	longest := 0
	for _, s := range secrets {
		if s == "" {
			continue
		}
		want = append(want, []byte(s))
		if j, err := json.Marshal(s); err == nil && string(j[1:len(j)-1]) != s {
			want = append(want, j[1:len(j)-1])
		}
	}
	for _, w := range want {
		longest = max(longest, len(w))
	}
	if longest == 0 {
		return false
	}
	buf := make([]byte, 0, 1<<18+longest)
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		for _, w := range want {
			if bytes.Contains(buf, w) {
				return true
			}
		}
		if err != nil {
			return false
		}
		keep := min(len(buf), longest-1)
		buf = append(buf[:0], buf[len(buf)-keep:]...)
	}
}
