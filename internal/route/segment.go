package route

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Lengths of one path segment, in bytes. Two segments and a '-' between them
// stay under the 255 that file systems allow.
const (
	maxSegment  = 120
	keptSegment = 80
)

// blank stands for the empty string; no other text encodes to a lone '%'.
const blank = "%"

// Segment encodes any string as one path segment. Different strings give
// different segments, also on a file system that ignores case, and no segment
// is empty, `.`, `..` or holds a '/'.
//
// The bytes a-z, 0-9 and _.:@+- stay; every other byte becomes %XX. `.` and `..`
// are encoded completely. What would be longer than 120 bytes becomes its first
// 80 bytes (fewer where that would cut a %XX), a '~', which is otherwise always
// encoded, and 32 hex digits of the sha256 of s.
func Segment(s string) string { return encode(s, false, false) }

// Part is [Segment] with each '-' encoded too, so that one can separate it from what is
// before it.
func Part(s string) string { return encode(s, true, false) }

// maxName is the longest name of several parts that is kept as it is, in bytes.
const maxName = 200

// Name is the name of a directory that consists of several parts, shortened like a segment
// where it is longer than 200 bytes. Different ids have different names where different names
// are given or the id alone differs: id is what the name stands for.
func Name(name, id string) string { return shorten(name, id, maxName) }

// encode is Segment; dash encodes '-' as well, first encodes the first byte
// whatever it is.
func encode(s string, dash, first bool) string {
	if s == "" {
		return blank
	}
	dots := s == "." || s == ".."
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if dots || dash && c == '-' || first && i == 0 || !kept(c) {
			const digits = "0123456789ABCDEF"
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
			continue
		}
		b.WriteByte(c)
	}
	return shorten(b.String(), s, maxSegment)
}

// shorten cuts an encoded name over limit bytes; whole is what it stands for.
func shorten(enc, whole string, limit int) string {
	if len(enc) <= limit {
		return enc
	}
	cut := min(len(enc), keptSegment)
	if i := strings.LastIndexByte(enc[:cut], '%'); i >= 0 && i > cut-3 {
		cut = i
	}
	sum := sha256.Sum256([]byte(whole))
	return enc[:cut] + "~" + hex.EncodeToString(sum[:16])
}

func kept(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || strings.IndexByte("_.:@+-", c) >= 0
}

// Raw decodes a segment. ok is false for a shortened one, whose end is lost (the
// thread's own records keep the real ids), and for what no encoding gives.
func Raw(segment string) (s string, ok bool) {
	if segment == blank {
		return "", true
	}
	if segment == "" || segment == "." || segment == ".." || len(segment) > maxSegment {
		return "", false
	}
	var b strings.Builder
	for i := 0; i < len(segment); i++ {
		c := segment[i]
		if c != '%' {
			if !kept(c) {
				return "", false
			}
			b.WriteByte(c)
			continue
		}
		if i+2 >= len(segment) || strings.ToUpper(segment[i+1:i+3]) != segment[i+1:i+3] {
			return "", false
		}
		v, err := hex.DecodeString(segment[i+1 : i+3])
		if err != nil {
			return "", false
		}
		b.WriteByte(v[0])
		i += 2
	}
	return b.String(), true
}
