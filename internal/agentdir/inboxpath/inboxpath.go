// Package inboxpath resolves inbox.path of the settings into the directory of an agent's
// inbox, or says why it is not allowed.
//
// The value may be relative to the agent's directory, start with `~/`, or lie below a
// directory that the owner of the home has listed; a path that ends in
// agents/<id>/inbox is what older tools wrote for the default, wherever the home was
// then. No symbolic link leads elsewhere. Other agents and run/ are out of reach.
package inboxpath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Place is what a path is judged by.
type Place struct {
	AgentID, Dir string   // the agent and its directory
	Home         string   // home directory of all agents
	UserHome     string   // what `~/` stands for; "" refuses it
	Allowed      []string // directories outside the home
}

// Resolve returns the directory, "" for the default one. problem says in words for a
// reader why a path is refused; err is a failure of the file system.
func Resolve(given string, in Place) (dir, problem string, err error) {
	if given == "" || strings.HasSuffix("/"+filepath.ToSlash(filepath.Clean(given)), "/agents/"+in.AgentID+"/inbox") {
		return "", "", nil
	}
	full, ok := expand(given, in.UserHome)
	switch {
	case !ok:
		return "", "starts with ~/ but the user's home directory is not known", nil
	case !filepath.IsAbs(full):
		full = filepath.Join(in.Dir, full)
	}
	full = filepath.Clean(full)
	if below(in.Dir, full) {
		return unlinked(in.Dir, full)
	}
	if full == in.Home || below(in.Home, full) {
		return "", "lies in another part of the home directory", nil
	}
	for _, allowed := range in.Allowed {
		allowed, ok = expand(allowed, in.UserHome)
		if allowed = filepath.Clean(allowed); ok && filepath.IsAbs(allowed) && (full == allowed || below(allowed, full)) {
			return unlinked(allowed, full)
		}
	}
	return "", "lies outside the home directory and is not listed below inbox_paths in theclaw.yaml", nil
}

// expand replaces a leading `~/`.
func expand(path, userHome string) (string, bool) {
	rest, tilde := strings.CutPrefix(path, "~/")
	switch {
	case !tilde:
		return path, true
	case userHome == "":
		return "", false
	}
	return filepath.Join(userHome, rest), true
}

// unlinked returns full unless a symbolic link leads it out of dir.
func unlinked(dir, full string) (path, problem string, err error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return full, "", nil // made at first use
	}
	if err != nil {
		return "", "", fmt.Errorf("open %s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	rel, err := filepath.Rel(dir, full)
	if err != nil {
		return "", "", fmt.Errorf("resolve inbox: %w", err)
	}
	if _, err := root.Stat(rel); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", "cannot be reached without leaving that directory", nil
	}
	return full, "", nil
}

// below reports whether a clean path lies strictly below dir.
func below(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != "." && filepath.IsLocal(rel)
}
