package unit

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// A text of PostgreSQL holds UTF-8 without NUL; one of the contract holds any bytes.
// So a byte that cannot stand there is written as the mark and two hex digits, and so
// is the mark itself: each text has one form, two texts never share one, and what
// people write is stored as it is.
const (
	mark   = 0x01
	digits = "0123456789abcdef"
)

func escape(s string) string {
	if strings.IndexByte(s, 0) < 0 && strings.IndexByte(s, mark) < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == 0 || r == mark || (r == utf8.RuneError && n == 1) {
			b.Write([]byte{mark, digits[s[0]>>4], digits[s[0]&15]})
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

func unescape(s string) (string, error) {
	if strings.IndexByte(s, mark) < 0 {
		return s, nil
	}
	var b strings.Builder
	for {
		plain, rest, ok := strings.Cut(s, string(rune(mark)))
		b.WriteString(plain)
		if !ok {
			return b.String(), nil
		}
		if len(rest) < 2 {
			return "", fmt.Errorf("a stored text ends in an escape")
		}
		high, low := strings.IndexByte(digits, rest[0]), strings.IndexByte(digits, rest[1])
		if high < 0 || low < 0 {
			return "", fmt.Errorf("a stored text has the escape %q", rest[:2])
		}
		b.WriteByte(byte(high<<4 | low))
		s = rest[2:]
	}
}

// stored is an argument as the server takes it.
func stored(a any) any {
	switch v := a.(type) {
	case string:
		return escape(v)
	case *string:
		if v == nil {
			return v
		}
		s := escape(*v)
		return &s
	case []string:
		out := make([]string, len(v))
		for i, s := range v {
			out[i] = escape(s)
		}
		return out
	}
	return a
}

// restore undoes stored in what a row was scanned into.
func restore(dest []any) (err error) {
	for _, d := range dest {
		switch v := d.(type) {
		case *string:
			*v, err = unescape(*v)
		case **string:
			if *v != nil {
				**v, err = unescape(**v)
			}
		case *[]string:
			for i := range *v {
				if (*v)[i], err = unescape((*v)[i]); err != nil {
					return err
				}
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
