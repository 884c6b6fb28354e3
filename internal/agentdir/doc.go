// Package agentdir owns the files below the home directory: agent ids, where
// everything lies, the making of an agent's directory, its text files and settings.
//
//	$THECLAW_HOME/                 0700
//	├── theclaw.yaml               home-wide defaults (optional)
//	├── registry.db                leases and desired states
//	├── run/                       <service>.sock, token, registry.lock, holders/
//	└── agents/<id>/
//	    ├── IDENTITY.md USAGE.md config.yaml
//	    ├── inbox/                 a thread
//	    ├── threads/{peers,channels,sessions}/<segment>/, threads/main/
//	    ├── memory/ sessions/ workdir/ logs/ run.lock
//
// It promises:
//   - an agent's directory appears whole or not at all, and of two that make the same
//     one exactly one succeeds;
//   - a file is replaced whole or not at all, after an fsync;
//   - directories are 0700 and files 0600, whatever the umask allows beyond;
//   - no id, file name or symbolic link leads outside the agent's directory ([os.Root]).
//
// It does not open databases, hold leases or run anything. Only the registry writes
// here (one per home); other programs use it for the paths.
package agentdir

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/codes"

	"github.com/theclaw/agents/internal/fault"
)

var idRule = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// ValidID checks an agent id. The error is a [*fault.Error] with reason INVALID_ARGUMENT.
func ValidID(id string) error {
	if idRule.MatchString(id) {
		return nil
	}
	const rule = "use 1 to 64 lower-case letters, digits, _ and -, starting with a letter or a digit"
	e := fault.New(codes.InvalidArgument, fault.InvalidArgument, fmt.Sprintf("%s is not an agent id", shown(id)), rule)
	e.Fields = []fault.Field{{Name: "agent_id", Problem: rule}}
	return e
}

// Limits of a thread id. Four levels is one more than any of ours has.
const (
	maxThreadLevels  = 4
	maxSegmentBytes  = 255
	maxThreadIDBytes = 1024
)

// ValidThread checks a thread id: `inbox`, or `threads/` and one to three segments.
// It accepts directories made by other tools, so a segment may hold any printable text.
func ValidThread(id string) error {
	bad := func(why string) error {
		e := fault.New(codes.InvalidArgument, fault.InvalidArgument, fmt.Sprintf("%s is not a thread id: %s", shown(id), why),
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
	case len(segments) > maxThreadLevels:
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

// shown quotes a string from outside, shortened, for a message.
func shown(s string) string {
	if r := []rune(s); len(r) > 80 {
		s = string(r[:77]) + "..."
	}
	return fmt.Sprintf("%q", s)
}
