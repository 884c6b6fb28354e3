package pai

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/theclaw/agents/internal/sandbox"
	"github.com/theclaw/agents/services/runner/internal/model"
)

// ownTries is how often pai asks a provider before it reports a failure that
// passes.
const ownTries = 3

// leading is the status that a message of pai begins with.
var leading = regexp.MustCompile(`^([1-5][0-9][0-9])\b`)

// judge returns what was wrong with a call that was not ended by us; nil when it is
// an answer.
func (d *Driver) judge(a *answer, r sandbox.Result) *model.Error {
	switch {
	case a.failed:
		return d.classify(a.failure, r.ExitCode)
	case r.TimedOut:
		return d.error(model.Unavailable, fmt.Sprintf("pai ran longer than %s and was ended", sandbox.MaxTimeout))
	case r.Signal != "":
		return d.error(model.CutStream, "pai was ended by "+r.Signal)
	case r.ExitCode == 126 || r.ExitCode == 127 || r.ExitCode != 0 && a.rounds == 0:
		return d.error(model.Config, fmt.Sprintf("pai ended with %d: %s", r.ExitCode, clean(a.last)))
	case r.ExitCode != 0:
		return d.error(model.CutStream, fmt.Sprintf("pai ended with %d in the middle: %s", r.ExitCode, clean(a.last)))
	case a.complete == 0 || a.complete < a.rounds || a.open != nil:
		return d.error(model.CutStream, "pai ended without the end of its answer")
	case a.finish != "stop" && a.finish != "length":
		return d.error(model.CutStream, fmt.Sprintf("pai ended with finish reason %q", clean(a.finish)))
	case d.at.Spare && a.calls == 0 && a.finish == "stop":
		if sign := Truncated(a.text.String()); sign != "" {
			return d.error(model.CutStream, "the answer "+sign+", and pai tells of a stream that broke off as of one that ended")
		}
	}
	return nil
}

// Truncated reports the sign by which a text looks incomplete; empty: it
// does not. Most that broke off do not.
func Truncated(text string) string {
	fences := 0
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimLeft(line, " "), "```") {
			fences++
		}
	}
	switch {
	case strings.HasSuffix(text, " "), strings.HasSuffix(text, "\t"):
		return "ends in front of its next word"
	case fences%2 == 1:
		return "ends inside of a block of code"
	}
	return ""
}

// classify reads the message of pai's last event. The exit code is 2 or 3,
// depending on the version, and says nothing; 1 and 4 are pai's own complaints.
func (d *Driver) classify(message string, exit int) *model.Error {
	e := d.error(model.Config, clean(message))
	status := 0
	if m := leading.FindString(message); m != "" {
		status, _ = strconv.Atoi(m)
	}
	e.Status = status
	switch {
	case status != 0:
		if e.Class = model.ClassOf(status, message); e.Class == model.RateLimited || e.Class == model.Unavailable {
			e.Tries = ownTries
		}
	case model.ClassOf(0, message) == model.Policy:
		e.Class = model.Policy
	case strings.HasPrefix(message, "Connection error"):
		e.Class = model.Unreachable
	case strings.HasPrefix(message, "Request timed out"):
		e.Class, e.Tries = model.Unavailable, ownTries
	case strings.HasPrefix(message, "No credentials"):
		e.Class = model.Auth
	case exit != 1 && exit != 4:
		e.Class = model.BadResponse
	}
	return e
}

// clean bounds pai's words and takes keys out of them.
func clean(s string) string {
	s = model.CleanWords(sandbox.Text([]byte(s)))
	if s == "" {
		return "no reason given"
	}
	return s
}
