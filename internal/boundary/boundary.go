// Package boundary makes data that comes from outside valid and bounded where it enters:
// the answers of models, the results of tools, the responses of channels, file names and
// HTTP bodies.
//
// What it returns is valid UTF-8 and no longer than its limit, so that nothing behind the
// boundary (the wire contract, a database, JSON) can refuse it. A byte that is not UTF-8
// becomes U+FFFD. What was changed is reported, so that the caller can note it next to the
// text; data is never changed silently.
//
// It does not judge content: who may say what, which file may be opened, and whether a text
// is safe for a terminal or a shell is decided elsewhere.
package boundary

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Change says how a text differs from what came from outside. The zero value means that
// it does not.
type Change struct {
	// Replaced is how many runs of invalid bytes became U+FFFD.
	Replaced int
	// Cut is how many bytes beyond the limit were left out.
	Cut int
}

// Add returns both changes as one.
func (c Change) Add(d Change) Change {
	return Change{Replaced: c.Replaced + d.Replaced, Cut: c.Cut + d.Cut}
}

// Note describes the change in one sentence without a period; empty for no change.
func (c Change) Note() string {
	var parts []string
	if c.Replaced > 0 {
		parts = append(parts, fmt.Sprintf("bytes that are not UTF-8 were replaced by U+FFFD in %d places", c.Replaced))
	}
	if c.Cut > 0 {
		parts = append(parts, fmt.Sprintf("%d bytes over the limit were cut off", c.Cut))
	}
	return strings.Join(parts, "; ")
}

// Text returns s as valid UTF-8 of at most limit bytes; limit <= 0 means no limit. Each
// run of invalid bytes becomes one U+FFFD. A character is never cut in the middle.
func Text(s string, limit int) (string, Change) {
	var c Change
	if limit > 0 && len(s) > limit {
		// The replacement of an invalid byte is longer than it, so the limit is applied
		// to the result; nothing beyond the limit can come back into it.
		c.Cut = len(s) - limit
		s = s[:limit]
		for n := 1; n < utf8.UTFMax && n <= len(s); n++ {
			if last := s[len(s)-n:]; utf8.RuneStart(last[0]) {
				if !utf8.FullRuneInString(last) {
					s, c.Cut = s[:len(s)-n], c.Cut+n
				}
				break
			}
		}
	}
	if utf8.ValidString(s) {
		return s, c
	}
	c.Replaced = invalidRuns(s)
	s = strings.ToValidUTF8(s, "\uFFFD")
	if limit > 0 && len(s) > limit {
		end := limit
		for end > 0 && !utf8.RuneStart(s[end]) {
			end--
		}
		c.Cut += len(s) - end
		s = s[:end]
	}
	return s, c
}

func invalidRuns(s string) (runs int) {
	inside := false
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		invalid := r == utf8.RuneError && n == 1
		if invalid && !inside {
			runs++
		}
		inside = invalid
		s = s[n:]
	}
	return runs
}

// Name returns a file name, or another name from outside, for a message, a log line or a
// table: as it is when it consists of printable characters, else quoted as in Go source,
// so that different names stay different. A name over 300 bytes is shortened.
func Name(s string) string {
	const limit = 300
	if len(s) > limit {
		head, _ := Text(s[:limit/2], 0)
		tail, _ := Text(s[len(s)-limit/2:], 0)
		s = head + "..." + tail
	}
	for _, r := range s {
		if r == utf8.RuneError || !strconv.IsPrint(r) {
			return strconv.Quote(s)
		}
	}
	if s == "" {
		return `""`
	}
	return s
}

// ErrTooLarge is returned by [Body] for a body over its limit.
var ErrTooLarge = errors.New("the body is larger than the limit")

// Body reads a body of at most limit bytes. A longer one is an error that wraps
// [ErrTooLarge]; its first limit bytes are returned with it, and nothing more is read.
func Body(r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if int64(len(b)) > limit {
		return b[:limit], fmt.Errorf("%w of %d bytes", ErrTooLarge, limit)
	}
	return b, err
}
