package execpolicy

import (
	"path/filepath"
	"slices"
	"strings"
)

// DefaultSafeBins only read their standard input when no argument is a file.
var DefaultSafeBins = []string{"jq", "grep", "cut", "sort", "uniq", "head", "tail", "tr", "wc"}

// unsafeFlags are flags with which a program of [DefaultSafeBins] reads or writes files, or runs
// a program, although no argument has the form of a path and no such file need exist.
var unsafeFlags = map[string]struct {
	short string
	long  []string
}{
	"jq":   {"fL", []string{"from-file", "slurpfile", "rawfile", "argfile", "library-path", "run-tests"}},
	"grep": {"rRfdD", []string{"recursive", "dereference-recursive", "file", "exclude-from", "directories", "devices"}},
	"sort": {"oT", []string{"output", "compress-program", "files0-from", "temporary-directory", "random-source"}},
	"wc":   {"", []string{"files0-from"}},
}

// safe reports whether a command is one of the programs in names and has no argument that may be
// a file: none with a /, none that is a file in the current directory, also as the value of a flag.
func (h Host) safe(c Command, names []string) bool {
	name := c.Words[0]
	if c.Path == "" || strings.Contains(name, "/") || !slices.Contains(names, name) {
		return false
	}
	bad := unsafeFlags[name]
	for i, w := range c.Words[1:] {
		if h.maybeFile(w) {
			return false
		}
		switch flag, value, _ := strings.Cut(w, "="); {
		case strings.HasPrefix(w, "--"):
			// A program takes any beginning of a long flag that is not ambiguous.
			if h.maybeFile(value) || slices.ContainsFunc(bad.long, func(l string) bool { return len(flag) > 2 && strings.HasPrefix(l, flag[2:]) }) {
				return false
			}
		case strings.HasPrefix(w, "-"):
			for j := 1; j < len(w); j++ { // the value of a flag may follow it at any place
				if h.maybeFile(w[j:]) {
					return false
				}
			}
			if strings.ContainsAny(w[1:], bad.short) {
				return false
			}
		case name == "uniq" && !(number(w) && slices.Contains([]string{"-f", "-s", "-w"}, c.Words[i])): // it writes its second operand
			return false
		case name == "jq" && (strings.Contains(w, "import") || strings.Contains(w, "include")): // modules are files
			return false
		}
	}
	return true
}

// maybeFile reports whether a word names a file, there or not.
func (h Host) maybeFile(w string) bool {
	if w == "" || w == "-" {
		return false
	}
	if strings.Contains(w, "/") || w == "." || w == ".." || strings.HasPrefix(w, "~") {
		return true
	}
	there, _ := h.Stat(filepath.Join(h.Dir, w))
	return there
}

func number(w string) bool {
	return !strings.ContainsFunc(w, func(r rune) bool { return r < '0' || r > '9' })
}
