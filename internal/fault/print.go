package fault

import (
	"strings"
	"unicode/utf8"
)

// ExitCode is the one switch from an error to a process exit code: 0 for nil, 2
// for a wrong command line, 1 for everything else.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case Is(err, WrongUsage):
		return 2
	}
	return 1
}

// Line is the text for stderr, without a newline: "Error: <what> - <how to fix>".
// The second half is absent when there is no advice. Control characters, which
// could move a terminal's cursor, are written as \xNN. nil gives "".
func Line(err error) string {
	e := From(err)
	if e == nil {
		return ""
	}
	what, fix := e.What, e.Fix
	if what == "" {
		what = e.Reason
	}
	line := "Error: " + visible(what)
	if fix != "" {
		line += " - " + visible(fix)
	}
	return line
}

// JSON is the text for stdout with --json, without a newline:
// {"error":"<what>","suggestion":"<how to fix>"}. It is encoded as the external
// tools do it: no HTML escapes, U+2028 as itself. nil gives nil.
func JSON(err error) []byte {
	e := From(err)
	if e == nil {
		return nil
	}
	what := e.What
	if what == "" {
		what = e.Reason
	}
	b := quote([]byte(`{"error":`), what)
	b = quote(append(b, `,"suggestion":`...), e.Fix)
	return append(b, '}')
}

// visible writes what is not printable text (C0, DEL, C1 and invalid bytes) as
// an escape, so that one error stays one line.
func visible(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			hex(&b, s[i])
		case r < 0x20 || r >= 0x7f && r < 0xa0:
			hex(&b, byte(r))
		case r == '\u2028' || r == '\u2029':
			b.WriteByte(' ')
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

const digits = "0123456789abcdef"

func hex(b *strings.Builder, c byte) {
	b.WriteString(`\x`)
	b.WriteByte(digits[c>>4])
	b.WriteByte(digits[c&15])
}

// quote appends s as a JSON string; encoding/json has no option to leave
// U+2028 alone.
func quote(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s { // an invalid byte arrives as U+FFFD
		switch r {
		case '"', '\\':
			b = append(b, '\\', byte(r))
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		case '\b':
			b = append(b, '\\', 'b')
		case '\f':
			b = append(b, '\\', 'f')
		default:
			if r < 0x20 {
				b = append(b, '\\', 'u', '0', '0', digits[r>>4], digits[r&15])
				continue
			}
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}
