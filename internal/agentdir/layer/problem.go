package layer

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/theclaw/agents/internal/agentdir/config"
)

// maxProblems are collected; one mistake can cause many.
const maxProblems = 20

// Problem is one thing that is wrong with the settings. Line and Column count from
// 1 and are 0 when the complete file is meant; Origin names the override instead when
// the value came from one. Source is the line and a caret below the place.
type Problem struct {
	File         string
	Line, Column int
	Key, Text    string
	Source       string
	Origin       string
}

func (p Problem) String() string {
	switch {
	case p.Origin != "":
		return fmt.Sprintf("%s: %s: %s", p.Origin, p.Key, p.Text)
	case p.Line == 0 && isJSON5(p.File) && p.Key != "" && !strings.Contains(p.Text, p.Key):
		return fmt.Sprintf("%s: %s: %s", p.File, p.Key, p.Text) // there are no positions
	case p.Line == 0:
		return fmt.Sprintf("%s: %s", p.File, p.Text)
	}
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Text)
}

// Error is every problem found, in the order of the layers and lines.
type Error struct{ Problems []Problem }

// Error returns all problems, each followed by the place it is at.
func (e *Error) Error() string {
	var b strings.Builder
	for i, p := range e.Problems {
		if i > 0 {
			b.WriteString("\n")
		}
		b.WriteString(p.String())
		if p.Source != "" {
			b.WriteString("\n" + p.Source)
		}
	}
	return b.String()
}

// secretKey finds what may be a secret on a line that is about to be shown.
var secretKey = regexp.MustCompile(`(?i)((?:secret|token|passw|pwd|key|auth|cred|url|dsn|postgres)[a-z0-9_-]*["']?\s*[:=]\s*)(\S.*)`)

// source renders a line of data with a caret under a column, at most 100 characters.
func source(data []byte, lineNo, column int) string {
	lines := strings.Split(string(data), "\n")
	if lineNo < 1 || lineNo > len(lines) {
		return ""
	}
	text := secretKey.ReplaceAllString(strings.TrimRight(lines[lineNo-1], "\r"), "${1}***")
	runes := []rune(text)
	for i, r := range runes {
		if !unicode.IsPrint(r) {
			runes[i] = ' '
		}
	}
	if len(runes) > 100 {
		runes = runes[:100]
	}
	margin := fmt.Sprintf("%5d | ", lineNo)
	out := margin + string(runes)
	if column >= 1 && column <= len(runes)+1 {
		out += "\n" + strings.Repeat(" ", len(margin)+column-1) + "^"
	}
	return out
}

// suggest returns ` (did you mean "x"?)` for a key that is nearly right.
func suggest(key string, among []string) string {
	best := config.Nearest(key, among)
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", best)
}
