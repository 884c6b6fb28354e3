package notifier

import (
	"crypto/sha1" //nolint:gosec // the tool's own name for a path; nothing trusts it
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"unicode"
)

// Home returns the notifier's directory and whether there is a notifier: the
// directory exists, or the program is on the PATH of env.
func Home(env func(string) string) (dir string, ok bool) {
	if dir = env("NOTIFIER_HOME"); dir == "" {
		user := env("HOME")
		if user == "" {
			return "", false
		}
		dir = filepath.Join(user, ".local", "share", "notifier")
	}
	if i, err := os.Stat(dir); err == nil {
		return dir, i.IsDir()
	}
	return dir, onPath(env("PATH"))
}

func onPath(path string) bool {
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) { // depends on where we happen to stand
			continue
		}
		if i, err := os.Stat(filepath.Join(dir, "notifier")); err == nil && i.Mode().IsRegular() && i.Mode()&0o111 != 0 {
			return true
		}
	}
	return false
}

// A longer slug is cut and gets a piece of the path's hash.
const (
	maxSlug = 40
	cutSlug = 32
)

// TaskID names the dispatch of a thread as the thread tool does: every UTF-16
// unit of its path that is no letter or digit becomes a dash.
func TaskID(threadDir string) string {
	var b strings.Builder
	for _, r := range threadDir {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			b.WriteRune(r)
		case r > 0xFFFF:
			b.WriteString("--")
		default:
			b.WriteByte('-')
		}
	}
	slug := b.String()
	if len(slug) > maxSlug {
		sum := sha1.Sum([]byte(threadDir)) //nolint:gosec // as above
		slug = slug[:cutSlug] + "-" + hex.EncodeToString(sum[:])[:6]
	}
	return "dispatch-" + slug
}

// Command is the task's command line, for `sh -c`. A path of plain characters
// stands as it is, as the thread tool writes it; any other is quoted, because
// the tool's own unquoted one never dispatches.
func Command(threadDir string) string {
	return "thread dispatch --thread " + Word(threadDir)
}

// Word is s as one word of a command line for `sh -c`: itself, or in quotes.
func Word(s string) string {
	if s != "" && !strings.ContainsFunc(s, special) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// special reports whether a shell may see more in r than the character.
func special(r rune) bool {
	if r < unicode.MaxASCII {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+:@%,", r))
	}
	return !unicode.IsLetter(r) && !unicode.IsDigit(r)
}
