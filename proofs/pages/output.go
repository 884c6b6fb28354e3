package pages

import (
	"regexp"
	"strings"
)

// rules take out of an output what differs between two runs of the same command, in their
// order. Numbers of messages and events are not among them: they are the same in each run.
var rules = []struct {
	what string
	is   *regexp.Regexp
	as   string
}{
	{"a time with its date", regexp.MustCompile(`\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|[+-]\d\d:\d\d)?`), "TIME"},
	{"a date", regexp.MustCompile(`\b\d{4}-\d\d-\d\d\b`), "DATE"},
	{"a time of the day", regexp.MustCompile(`\b\d\d:\d\d:\d\d(\.\d+)?\b`), "TIME"},
	{"the id of a run", regexp.MustCompile(`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(:\d+:[0-9a-f]{16})?\b`), "ID"},
	{"a hash or a key", regexp.MustCompile(`\b[0-9a-f]{16,}\b`), "ID"},
	{"an id that sorts by time", regexp.MustCompile(`\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b`), "ID"},
	{"a seed", regexp.MustCompile(`\bseed[ =]\d+`), "seed N"},
	{"a process id", regexp.MustCompile(`\bpid[ =]\d+`), "pid N"},
	{"a port of this machine", regexp.MustCompile(`\b(127\.0\.0\.1|localhost):\d+`), "$1:PORT"},
	{"a path: its last name stays", regexp.MustCompile(`(^|[^\w./~-]|://)(?:~|/[\w.@%+-]+)(?:/[\w.@%+-]+)*/([\w.@%+-]+)`), "$1/$2"},
	{"a short duration", regexp.MustCompile(`\bless than \d`), "0"},
	{"a duration", regexp.MustCompile(`\b(?:\d+(?:\.\d+)? ?(?:ns|us|µs|ms|min|s|m|h|d)\b)+`), "DURATION"},
	{"a size", regexp.MustCompile(`\b\d+(\.\d+)? (B|KiB|MiB|GiB|kB|MB|GB)\b`), "SIZE"},
	{"a count of tokens", regexp.MustCompile(`\b\d+ tokens in, \d+ out\b`), "TOKENS"},
	{"a count of files", regexp.MustCompile(`\b\d+ files\b`), "FILES"},
	{"the width of a column", regexp.MustCompile(`[ \t]+`), " "},
}

// shellReport is what a shell prints of a job that ended. At a terminal it is printed at the
// next prompt.
var shellReport = regexp.MustCompile(`^(\S+: line \d+: +\d+ (Killed|Terminated|Aborted)|\[\d+\][+-]? +(Done|Exit|Killed|Terminated|Aborted))\b.*$`)

// Normalize answers the lines of an output as they are compared: without blank lines and
// what a shell reports of its jobs, and with a word instead of what differs between runs.
func Normalize(lines []string) []string {
	var out []string
	for _, line := range lines {
		if shellReport.MatchString(line) {
			continue
		}
		for _, r := range rules {
			line = r.is.ReplaceAllString(line, r.as)
		}
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, line)
		}
	}
	return out
}

// Matches reports whether an output is the expected one, where a line "..." of the expected
// one stands for any number of lines. Both are normalized.
func Matches(want, got []string) bool {
	// reach[j]: the lines of want so far can match the first j lines of got.
	reach := make([]bool, len(got)+1)
	reach[0] = true
	for _, w := range want {
		next := make([]bool, len(got)+1)
		for j := range next {
			switch {
			case w == "...":
				next[j] = reach[j] || j > 0 && next[j-1]
			case j > 0:
				next[j] = reach[j-1] && got[j-1] == w
			}
		}
		reach = next
	}
	return reach[len(got)]
}
