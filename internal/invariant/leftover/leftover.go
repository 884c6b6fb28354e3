// Package leftover owns which files of a home are what a killed process left of a
// write that never got its name. Nobody was told of what is in them, and nothing
// refers to them, so that they may go.
//
// It knows names only, and is asked where nobody works: the same names belong to
// writes that run.
package leftover

import (
	"path"
	"regexp"
	"strings"
)

var (
	agents = regexp.MustCompile(`^agents/\.[a-z0-9][a-z0-9_-]{0,63}\.tmp-[a-z0-9]+$`)
	copies = regexp.MustCompile(`^run/backup-[0-9]+$`)
	file   = regexp.MustCompile(`^(\.events\.(db|jsonl)\.[0-9]+|\.salvage-[0-9]+|\..+\.(md|yaml)[0-9]+)$`)
)

// Is tells whether a path, relative to the home and with slashes, is one. What an
// agent's programs make in their workdir is theirs.
func Is(rel string) bool {
	if agents.MatchString(rel) || copies.MatchString(rel) {
		return true
	}
	rest, ok := strings.CutPrefix(rel, "agents/")
	if !ok {
		return false
	}
	_, below, ok := strings.Cut(rest, "/")
	return ok && !strings.HasPrefix(below, "workdir/") && file.MatchString(path.Base(rel))
}
