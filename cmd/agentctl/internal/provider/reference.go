package provider

import (
	"path/filepath"
	"regexp"
	"strings"
)

// Reference is where a settings file has a secret from.
type Reference struct {
	Kind string // env or file
	Name string // the variable, or the path as it is written
}

var reference = regexp.MustCompile(`\b(env|file):([^\s"',}\]]+)`)

// References are those in the text of a settings file.
func References(text string) (list []Reference) {
	for _, m := range reference.FindAllStringSubmatch(text, -1) {
		list = append(list, Reference{m[1], m[2]})
	}
	return list
}

// Path is the file that a reference to a file means: below userHome after ~/, else relative
// to the home.
func (r Reference) Path(home, userHome string) string {
	if rest, ok := strings.CutPrefix(r.Name, "~/"); ok {
		return filepath.Join(userHome, rest)
	}
	if filepath.IsAbs(r.Name) {
		return r.Name
	}
	return filepath.Join(home, r.Name)
}
