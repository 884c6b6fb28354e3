package output

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text makes output fit for a record, a terminal and a model: valid UTF-8 without
// control characters except newline and tab. Terminal escape sequences go as a
// whole, a carriage return becomes a newline (progress bars), a byte that is no
// UTF-8 becomes U+FFFD, and marks that turn the direction of text are removed.
func Text(b []byte) string {
	var out strings.Builder
	out.Grow(len(b))
	for len(b) > 0 {
		if b[0] == 0x1b {
			b = b[escape(b):]
			continue
		}
		r, n := utf8.DecodeRune(b)
		b = b[n:]
		switch {
		case r == '\r':
			if len(b) == 0 || b[0] != '\n' {
				out.WriteByte('\n')
			}
		case r == '\n' || r == '\t' || !unicode.IsControl(r) && !unicode.Is(unicode.Bidi_Control, r):
			out.WriteRune(r)
		}
	}
	return out.String()
}

// escape is the length of the escape sequence b starts with: ESC [ .. letter,
// ESC ] .. BEL or ESC \, else ESC and intermediate bytes and one more.
func escape(b []byte) int {
	if len(b) < 2 {
		return len(b)
	}
	switch b[1] {
	case '[':
		for i := 2; i < len(b); i++ {
			if b[i] < 0x20 || b[i] > 0x3f {
				if b[i] >= 0x40 && b[i] <= 0x7e {
					return i + 1
				}
				return i // broken: the byte is text again
			}
		}
		return len(b)
	case ']', 'P', 'X', '^', '_':
		const longest = 4096 // an unterminated string must not swallow the output
		for i := 2; i < len(b) && i < longest; i++ {
			switch {
			case b[i] == 0x07:
				return i + 1
			case b[i] == '\n':
				return i
			case b[i] == 0x1b:
				if i+1 < len(b) && b[i+1] == '\\' {
					return i + 2
				}
				return i
			}
		}
		return 2
	}
	i := 1
	for i < len(b) && b[i] >= 0x20 && b[i] <= 0x2f {
		i++
	}
	if i < len(b) && b[i] >= 0x30 && b[i] <= 0x7e {
		i++
	}
	return i
}
