package toolset

import (
	"cmp"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/theclaw/agents/internal/outputdir"
	"github.com/theclaw/agents/internal/toolpolicy"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// The limits of a runner whose registry names none.
const (
	// Parallel is the most calls of class read that run at once.
	Parallel = 8
	// MaxText is how much a model reads of a Text, in characters.
	MaxText = 30_000
)

// Keep is how much of complete outputs and previous contents the settings keep.
func Keep(c *registrypb.TurnConfig) outputdir.Keep {
	l := c.GetToolLimits()
	return outputdir.Keep{Age: l.GetOutputKeepAge().AsDuration(), Bytes: l.GetOutputKeepBytes()}
}

func parallel(c *registrypb.TurnConfig) int {
	return cmp.Or(int(c.GetToolLimits().GetParallel()), Parallel)
}

// ResultChars is how many characters of a result the model reads.
func ResultChars(c *registrypb.TurnConfig) int {
	return cmp.Or(int(c.GetToolLimits().GetResultChars()), MaxText)
}

// Complete writes the complete text of a result of which the model reads a part, and returns the path of the file below
// the working directory. Where it cannot be written the path is empty: a result without it is better than none.
func Complete(c Call, text string) (file string) {
	c.Shortened()
	file, err := outputdir.Write(c.Place.Config.GetWorkdir(), toolpolicy.Canonical(c.Name), c.Key, text, Keep(c.Place.Config))
	if err != nil {
		return ""
	}
	return file
}

// Shortened counts the result of the call as one of which the model reads a part. [Complete] does that too.
func (c Call) Shortened() {
	if c.truncated != nil {
		c.truncated()
	}
}

// LeftOut is the line in place of n characters that the model does not read. file is what [Complete] returns.
func LeftOut(n int, file string) string {
	if file != "" {
		file = "; complete output: " + file + " (read with offset)"
	}
	return fmt.Sprintf("[… %s characters left out%s …]", thousands(n), file)
}

// Ends is a text as it is, or the first 60 % and the last 40 % of most characters, with the line [LeftOut] between
// them: complete is called with a longer text, and returns what [Complete] does.
func Ends(s string, most int, complete func(string) string) string {
	n := utf8.RuneCountInString(s)
	if n <= most {
		return s
	}
	head := most * 6 / 10
	tail := most - head
	from, to, at := 0, len(s), 0
	for i := range s {
		switch at {
		case head:
			from = i
		case n - tail:
			to = i
		}
		at++
	}
	return s[:from] + "\n" + LeftOut(n-head-tail, complete(s)) + "\n" + s[to:]
}

// thousands writes a number that is not negative with a comma before each three digits.
func thousands(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}
