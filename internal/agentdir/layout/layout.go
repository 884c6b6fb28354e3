// Package layout defines the names below the home directory: ids of agents and threads,
// and the paths of sockets, locks and directories. It only computes; it opens, creates and
// reads no file (but ResolveThread follows symbolic links), and it is small enough for the
// dispatch shim. Package agentdir works on the files at these paths.
package layout

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
)

// ValidID checks an agent id. The error is a [*fault.Error] with reason INVALID_ARGUMENT.
func ValidID(id string) error {
	if name(id, 64, "_-") && id[0] != '_' && id[0] != '-' {
		return nil
	}
	const rule = "use 1 to 64 lower-case letters, digits, _ and -, starting with a letter or a digit"
	e := fault.New(codes.InvalidArgument, fault.InvalidArgument, fmt.Sprintf("%.80q is not an agent id", id), rule)
	e.Fields = []fault.Field{{Name: "agent_id", Problem: rule}}
	return e
}

// name reports whether s is 1 to most lower-case letters, digits and others. The shim
// is started for each message; a regular expression would be a tenth of its start.
func name(s string, most int, others string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && strings.IndexByte(others, c) < 0 {
			return false
		}
	}
	return s != "" && len(s) <= most
}

// MaxThreadLevels is the number of segments of a thread id; ours have three at most.
const MaxThreadLevels = 4

// Limits of a thread id in bytes.
const (
	maxSegmentBytes  = 255
	maxThreadIDBytes = 1024
)

// ValidThread checks a thread id: `inbox`, or `threads/` and one to three segments.
// It accepts directories made by other tools, so a segment may hold any printable text.
func ValidThread(id string) error {
	bad := func(why string) error {
		e := fault.New(codes.InvalidArgument, fault.InvalidArgument, fmt.Sprintf("%.80q is not a thread id: %s", id, why),
			"use inbox, or a path below threads/ such as threads/peers/cli-cli")
		e.Fields = []fault.Field{{Name: "thread_id", Problem: why}}
		return e
	}
	if id == "inbox" {
		return nil
	}
	segments := strings.Split(id, "/")
	switch {
	case len(id) > maxThreadIDBytes:
		return bad("it is too long")
	case !utf8.ValidString(id):
		return bad("it is not UTF-8")
	case segments[0] != "threads" || len(segments) < 2:
		return bad("it does not start with threads/")
	case len(segments) > MaxThreadLevels:
		return bad("it has too many levels")
	}
	for _, s := range segments {
		switch {
		case s == "" || s == "." || s == "..":
			return bad("a level is empty or made of dots")
		case len(s) > maxSegmentBytes:
			return bad("a level is too long")
		case strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' }):
			return bad("it holds a control character or a backslash")
		}
	}
	return nil
}
