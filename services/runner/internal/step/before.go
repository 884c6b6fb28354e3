package step

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/theclaw/agents/internal/agentdir/config"
	"github.com/theclaw/agents/internal/markup"
	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/toolset"
)

// Bounds of what precedes a reply.
const (
	maxCallLines = 6 << 10 // bytes of the lines about calls
	maxExcerpt   = 500     // characters of a result
	maxThought   = 2000    // bytes of what the model thought
)

// Before is what people read before the text of a reply, as Markdown: a line for each call of a tool, and what the model
// thought before its last answer, each where parts says so (S1-53). It is made of the journal, so a turn that goes on
// in another process makes the same.
func (l *Log) Before(last Answer, parts *registrypb.ReplyParts) string {
	var out []string
	if lines := l.callLines(parts.GetVerbose()); lines != "" {
		out = append(out, lines)
	}
	if thought := strings.TrimSpace(last.Reasoning); parts.GetReasoning() == config.ReasoningBlock && thought != "" {
		if short := Clip(thought, maxThought); short != thought {
			thought = short + "…"
		}
		out = append(out, "> Thinking: "+strings.ReplaceAll(thought, "\n", "\n> "))
	}
	return strings.Join(out, "\n\n")
}

// callLines has a line for each call that has ended, in the order of the journal; the last says how many it leaves
// out. Messages that a call has sent speak for themselves.
func (l *Log) callLines(verbose string) string {
	if verbose == "" || verbose == config.VerboseOff {
		return ""
	}
	var b strings.Builder
	left := 0
	for _, key := range l.order {
		s := l.tools[key]
		if s.GetState() == registrypb.StepState_STEP_STATE_INTENT || len(l.Tools.Sent(s)) > 0 {
			continue
		}
		line := callLine(s, verbose)
		if left > 0 || b.Len()+len(line) > maxCallLines {
			left++
			continue
		}
		b.WriteString(line + "\n")
	}
	if left > 0 {
		fmt.Fprintf(&b, "and %d more calls\n", left)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// callLine is a call as people read it: what was called, and how it ended. A mode that this runner does not know is
// one that shows less.
func callLine(s *registrypb.Step, verbose string) string {
	name, _, _ := strings.Cut(s.GetSummary(), " ")
	details := verbose == config.VerboseOn || verbose == config.VerboseFull
	if details {
		name = s.GetSummary()
	}
	if name == "" { // the step of an earlier build
		name = s.GetName()
	}
	line := markup.Code(name) + ": "
	why := toolset.Failure(s.GetResult())
	switch {
	case s.GetState() == registrypb.StepState_STEP_STATE_IN_DOUBT:
		return line + "it is not known how it ended"
	case why != "":
		line += "failed"
	default:
		line += "ok"
	}
	line += " in " + s.GetDuration().AsDuration().Round(time.Millisecond).String()
	if text := excerpt(s.GetResult()); verbose == config.VerboseFull && text != "" {
		return line + "\n" + markup.Fenced(text)
	}
	if details && why != "" {
		line += ": " + markup.Code(toolset.Line(why))
	}
	return line
}

// excerpt is the beginning of a result as people read it.
func excerpt(result []byte) string {
	var r struct {
		Text, Error, Stdout, Stderr *string
	}
	text := string(result)
	if json.Unmarshal(result, &r) == nil {
		var parts []string
		for _, p := range []*string{r.Text, r.Error, r.Stdout, r.Stderr} {
			if p != nil {
				parts = append(parts, strings.TrimRight(*p, "\n"))
			}
		}
		if len(parts) > 0 {
			text = strings.Join(parts, "\n")
		}
	}
	text = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, text))
	if utf8.RuneCountInString(text) > maxExcerpt {
		text = string([]rune(text)[:maxExcerpt]) + "…"
	}
	return text
}
