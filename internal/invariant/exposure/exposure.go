// Package exposure checks what other users may read of a home: the modes of its files
// ([PrivateMode]), and whether a file contains a text that must stay secret ([Holds]).
//
// It changes nothing and knows no agent but by the place of a file ([Walk]).
package exposure

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/theclaw/agents/internal/agentdir/layout"
)

// Walk calls fn for every file of a home: its path, the agent in whose directory it
// lies (empty: none) and where below that. Of other agents than only it calls for none.
func Walk(ctx context.Context, home layout.Home, only string, fn func(path, agent, rest string, e fs.DirEntry)) error {
	err := filepath.WalkDir(home.Path(), func(path string, e fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) { // a side file that was closed meanwhile
				return nil
			}
			return err
		}
		agent, rest := "", ""
		if rel, err := filepath.Rel(home.AgentsDir(), path); err == nil && filepath.IsLocal(rel) && rel != "." {
			agent, rest, _ = strings.Cut(rel, string(filepath.Separator))
		}
		if only != "" && agent != "" && agent != only {
			return fs.SkipDir
		}
		fn(path, agent, rest, e)
		return nil
	})
	if err != nil {
		return fmt.Errorf("walk home: %w", err)
	}
	return nil
}

// PrivateMode is the mode that a file of a home must have at most; false when
// the mode does not count, as that of a symbolic link.
func PrivateMode(info fs.FileInfo) (fs.FileMode, bool) {
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
