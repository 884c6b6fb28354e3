// Package leftover recognizes files of a home that a killed process left of a write that
// was not finished. No caller received their content, and nothing refers to them, so
// they may be removed.
//
// It knows names only. Call it where no process works: running writes use the same names.
package leftover

import (
	"path"
	"regexp"
	"strings"
	"sync"
)

var (
	agents = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^agents/\.[a-z0-9][a-z0-9_-]{0,63}\.tmp-[a-z0-9]+$`) })
	copies = regexp.MustCompile(`^run/backup-[0-9]+$`)
	file   = regexp.MustCompile(`^(\.events\.(db|jsonl)\.[0-9]+|\.salvage-[0-9]+|\.media-[0-9]+|\..+\.(md|yaml)[0-9]+)$`)
)

// Is reports whether a path, relative to the home and with slashes, is one. What an
// agent's programs make in their workdir is theirs.
func Is(rel string) bool {
	if agents().MatchString(rel) || copies.MatchString(rel) {
		return true
	}
	rest, ok := strings.CutPrefix(rel, "agents/")
	if !ok {
		return false
	}
	_, below, ok := strings.Cut(rest, "/")
	return ok && !strings.HasPrefix(below, "workdir/") && file.MatchString(path.Base(rel))
}
