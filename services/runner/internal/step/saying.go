package step

import (
	"slices"
	"strings"

	registrypb "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
	"github.com/theclaw/agents/services/runner/internal/model"
	"github.com/theclaw/agents/services/runner/internal/run"
	"github.com/theclaw/agents/services/runner/internal/silence"
)

// What becomes of the text of an answer that calls tools (reply.break). It is
// journaled with the answer, so that a turn that goes on elsewhere, or under other
// settings, does the same.
const (
	BreakText    = "text_end"    // it is a message of its own, together with its step
	BreakMessage = "message_end" // it stands before the last answer
)

// NewAnswerWithBreak is [NewAnswer] for an answer whose text is treated as mode says; inBlocks
// bytes of it are in blocks.
func NewAnswerWithBreak(r model.Response, at *run.Span, mode string, inBlocks int) (Answer, []byte, *model.Error) {
	if (mode == BreakText || mode == BreakMessage) && len(r.ToolCalls) > 0 && strings.TrimSpace(silence.Text(r.Text)) != "" {
		return newAnswer(r, at, mode, inBlocks)
	}
	return newAnswer(r, at, "", inBlocks)
}

// Sayings is what an answer says to the peer together with its step.
func (a Answer) Sayings(key string) []*registrypb.Saying {
	text := a.left()
	if a.Break != BreakText || strings.TrimSpace(text) == "" {
		return nil
	}
	return []*registrypb.Saying{{StepKey: key, Text: text}}
}

// Output is what an answer that calls tools says to the peer together with its step, and in
// blocks before; empty when it is nothing.
func (a Answer) Output() string {
	if a.Break != BreakText {
		return ""
	}
	return silence.Text(a.Text)
}

// Sent are the texts that tools of the turn have sent to the peer, in their order.
func (l *Log) Sent() (texts []string) {
	for _, key := range l.order {
		for _, m := range l.Tools.Sent(l.tools[key]) {
			texts = append(texts, m.Text)
		}
	}
	return texts
}

// Reply is what is left to say at the end: the last answer, behind what was held
// back for it. One that a tool has sent before, but for its white space, is not said
// again (S1-52, S1-55).
func (l *Log) Reply(last Answer) string { return l.reply(last.left()) }

// LastText is [Log.Reply] with what the blocks of the last answer have said.
func (l *Log) LastText(last Answer) string { return l.reply(silence.Text(last.Text)) }

func (l *Log) reply(text string) string {
	if slices.ContainsFunc(l.Sent(), func(sent string) bool { return same(sent, text) }) {
		text = ""
	}
	var parts []string
	for n := 1; l.answers[ModelKey(n)] != nil; n++ {
		if a, err := Decode(l.answers[ModelKey(n)].GetResult()); err == nil && a.Break == BreakMessage {
			parts = append(parts, strings.TrimSpace(a.left()))
		}
	}
	if len(parts) == 0 {
		return text
	}
	if strings.TrimSpace(text) != "" {
		parts = append(parts, text)
	}
	return capText(strings.Join(parts, "\n\n"))
}

func same(a, b string) bool { return slices.Equal(strings.Fields(a), strings.Fields(b)) }
