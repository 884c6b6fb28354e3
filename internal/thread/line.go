package thread

import (
	"strconv"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// AppendLine appends the event's line as `thread peek` prints it and as
// events.jsonl holds it, without the newline. The encoding is that of
// JSON.stringify: only quotes, backslashes, control characters and lone
// surrogates are escaped, so that both tools write the same bytes.
func (e Event) AppendLine(b []byte) []byte {
	b = append(b, `{"id":`...)
	b = strconv.AppendInt(b, e.ID, 10)
	b = append(b, `,"created_at":`...)
	b = AppendString(b, e.CreatedAt)
	b = append(b, `,"source":`...)
	b = AppendString(b, e.Source)
	b = append(b, `,"type":`...)
	b = AppendString(b, e.Type)
	b = append(b, `,"subtype":`...)
	if e.Subtype == nil {
		b = append(b, "null"...)
	} else {
		b = AppendString(b, *e.Subtype)
	}
	b = append(b, `,"content":`...)
	b = AppendString(b, e.Content)
	return append(b, '}')
}

// AppendString appends s as a JSON string the way JSON.stringify does; bytes
// that are not UTF-8 become U+FFFD.
func AppendString(b []byte, s string) []byte {
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c >= ' ' && c != '"' && c != '\\' {
				i++
				continue
			}
			b = append(b, s[from:i]...)
			switch c {
			case '"', '\\':
				b = append(b, '\\', c)
			case '\b':
				b = append(b, '\\', 'b')
			case '\f':
				b = append(b, '\\', 'f')
			case '\n':
				b = append(b, '\\', 'n')
			case '\r':
				b = append(b, '\\', 'r')
			case '\t':
				b = append(b, '\\', 't')
			default:
				b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			}
			i++
			from = i
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			b = append(b, s[from:i]...)
			b = append(b, "\uFFFD"...)
			i++
			from = i
			continue
		}
		i += n
	}
	b = append(b, s[from:]...)
	return append(b, '"')
}
