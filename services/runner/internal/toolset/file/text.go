package file

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/sandbox"
)

// encoding is how the text of a file is written, as its byte order mark says.
type encoding int

const (
	plain  encoding = iota // UTF-8 without a mark
	marked                 // UTF-8 with a mark
	little                 // UTF-16, little endian
	big                    // UTF-16, big endian
)

var marks = map[encoding]string{marked: "\xef\xbb\xbf", little: "\xff\xfe", big: "\xfe\xff"}

// encodingOf is the encoding of a content, by its beginning.
func encodingOf(b []byte) encoding {
	for e, mark := range marks {
		if bytes.HasPrefix(b, []byte(mark)) {
			return e
		}
	}
	return plain
}

// wide reports whether an encoding is UTF-16.
func (e encoding) wide() bool { return e == little || e == big }

// decode returns the text of a content in an encoding. What cannot be decoded becomes
// U+FFFD and is reported.
func (e encoding) decode(b []byte) (string, boundary.Change) {
	b = b[len(marks[e]):]
	if !e.wide() {
		return boundary.Text(string(b), 0)
	}
	var out strings.Builder
	var c boundary.Change
	unit := func(i int) rune { // none: -1
		if i+1 >= len(b) {
			return -1
		}
		if e == big {
			return rune(b[i])<<8 | rune(b[i+1])
		}
		return rune(b[i+1])<<8 | rune(b[i])
	}
	for i := 0; i < len(b); i += 2 {
		r := unit(i)
		if utf16.IsSurrogate(r) {
			if r = utf16.DecodeRune(r, unit(i+2)); r != utf8.RuneError {
				i += 2
			} else {
				c.Replaced++
			}
		} else if r < 0 {
			r = utf8.RuneError
			c.Replaced++
		}
		out.WriteRune(r)
	}
	return out.String(), c
}

// encode is the content of a text.
func (e encoding) encode(text string) []byte {
	out := append(make([]byte, 0, len(text)+3), marks[e]...)
	if !e.wide() {
		return append(out, text...)
	}
	for _, u := range utf16.Encode([]rune(text)) {
		if e == big {
			out = append(out, byte(u>>8), byte(u))
		} else {
			out = append(out, byte(u), byte(u>>8))
		}
	}
	return out
}

// sample is how much of a file decides whether it is text.
const sample = 8 << 10

// isBinary reports whether a content is no text, by its beginning.
func isBinary(b []byte) bool {
	return !encodingOf(b).wide() && bytes.IndexByte(b[:min(len(b), sample)], 0) >= 0
}

// text reads a file that is to be changed as text.
func (d *dir) text(name string, info fs.FileInfo) (raw []byte, text string, e encoding, err error) {
	if raw, err = d.content(name, info); err != nil {
		return nil, "", 0, err
	}
	e = encodingOf(raw)
	text, c := e.decode(raw)
	switch {
	case isBinary(raw):
		err = fmt.Errorf("%s is a binary file: change it with a command", shown(name))
	case c.Replaced > 0:
		err = fmt.Errorf("%s has bytes that are no text in its encoding, in %s, and a change would lose them: change it with a command", shown(name), plural(c.Replaced, "place"))
	}
	return raw, text, e, err
}

// clean is a text as a result may hold it: without control characters. It reports whether
// something was left out.
func clean(text string) (string, bool) {
	if strings.IndexFunc(text, isControl) < 0 { // nearly always; sandbox.Text costs four times as much
		return text, false
	}
	out := sandbox.Text([]byte(text))
	return out, out != text
}

// isControl reports whether [sandbox.Text] may change a character.
func isControl(r rune) bool {
	if r < utf8.RuneSelf {
		return (r < ' ' || r == 0x7f) && r != '\n' && r != '\t'
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}

// crlf is a text whose lines end in CRLF.
func crlf(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\n", "\r\n")
}

// endsInCRLF reports whether most lines of a text do.
func endsInCRLF(text string) bool {
	return 2*strings.Count(text, "\r\n") > strings.Count(text, "\n")
}

// errEnded is the result of a call whose turn has ended.
var errEnded = errors.New("the turn was ended before the call was finished")
