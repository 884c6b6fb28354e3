package prompt

import (
	"encoding/json"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/theclaw/agents/internal/thread"
	"github.com/theclaw/agents/services/runner/internal/model"
)

// Notes at the place of a cut.
const (
	cutNote  = "\n[the rest was cut: it does not fit into the model's context]"
	toolNote = `{"note":"the result was left out: it does not fit into the model's context any more"}`
)

// history are the messages before the inbound one.
type history struct{}

func (history) group() group { return oldest }

func (history) Parts(s *Scope) []Part {
	parts := make([]Part, 0, len(s.Tail))
	for i, e := range s.Tail {
		if s.Inbound.ID == 0 || e.ID < s.Inbound.ID {
			part := newPart(Message(e), "message "+strconv.FormatInt(e.ID, 10), "it is in no digest")
			if part.id = e.ID; s.digested(part) {
				part.Why = "among the newest messages"
			}
			parts = append(parts, part)
			if e.Unanswered && !(i+1 < len(s.Tail) && s.Tail[i+1].Source == thread.SourceSelf) {
				note := newPart(model.Message{Role: model.RoleAssistant, Text: unanswered(e.Class)}, part.Name+" (no answer)", "the message has no answer")
				note.id, note.note = e.ID, true
				parts = append(parts, note)
			}
		}
	}
	return parts
}

// refusedText stands for a message whose words the provider of the model refuses: with them
// it would refuse every later prompt.
const refusedText = "[a message was left out here: the provider of the model refused it]"

// unanswered stands for the answer of a message that died, so that two messages of a peer
// do not read as one.
func unanswered(class string) string {
	if class == "" {
		return "[no answer was given]"
	}
	return "[no answer was given: " + class + "]"
}

// inbound is the message to answer.
type inbound struct{}

func (inbound) group() group { return end }

func (inbound) Parts(s *Scope) []Part {
	if s.Inbound.ID == 0 {
		return nil
	}
	return []Part{newPart(Message(s.Inbound), fmt.Sprintf("message %d (inbound)", s.Inbound.ID), "the message to answer")}
}

// turn is what was said and done since.
type turn struct{}

func (turn) group() group { return results }

func (turn) Parts(s *Scope) (parts []Part) {
	for i, m := range s.Turn {
		parts = append(parts, newPart(m, fmt.Sprintf("turn %d", i+1), "said or done since the message"))
	}
	return parts
}

func newPart(m model.Message, name, why string) Part {
	return Part{Name: name, Role: m.Role, Why: why, message: m, Tokens: cost(model.Request{Messages: []model.Message{m}})}
}

// Message is an event as the model reads it: the agent's own words are the
// assistant's, everybody else's the user's.
func Message(e Event) model.Message {
	role := model.RoleUser
	if e.Source == thread.SourceSelf {
		role = model.RoleAssistant
	}
	if e.Refused {
		return model.Message{Role: role, Text: refusedText}
	}
	return model.Message{Role: role, Text: Text(e.Content)}
}

// Text is what was said in a content: its text and a line for each attachment.
// Content that is no JSON object with a text is taken as it is.
func Text(content string) string {
	if text, ok := plain(content); ok {
		return text
	}
	return decoded(content)
}

func decoded(content string) string {
	var c struct {
		Text        *string `json:"text"`
		Attachments []struct {
			Type string `json:"type"`
			URL  string `json:"url"`
			Name string `json:"name"`
		} `json:"attachments"`
	}
	if json.Unmarshal([]byte(content), &c) != nil || c.Text == nil {
		return content
	}
	var b strings.Builder
	b.WriteString(*c.Text)
	for _, a := range c.Attachments {
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		if strings.HasPrefix(a.URL, "data:") {
			a.URL = "(inline)" // megabytes that are no text (S1-51)
		}
		b.WriteString("[" + strings.Join(strings.Fields("attachment: "+a.Type+" "+a.Name+" "+a.URL), " ") + "]")
	}
	return b.String()
}

// shrinkTools leaves out the results of the oldest tools until need tokens are
// gained; it returns how many were. The newest result stays.
func shrinkTools(turn []Part, need int64) (gained int64) {
	last := len(turn) - 1
	for last >= 0 && turn[last].message.Role != model.RoleTool {
		last--
	}
	for i := 0; i < last && gained < need; i++ {
		e := &turn[i]
		if e.message.Role != model.RoleTool || len(e.message.Text) <= len(toolNote) {
			continue
		}
		before := e.Tokens
		e.message.Text, e.Cut = toolNote, true
		e.Tokens = cost(model.Request{Messages: []model.Message{e.message}})
		gained += before - e.Tokens
	}
	if last >= 0 && gained < need {
		gained += shrinkText(&turn[last], need-gained)
	}
	return gained
}

// shrinkText cuts the end of a message so that need tokens are gained, but for
// a first part that always stays.
func shrinkText(e *Part, need int64) (gained int64) {
	const least = 64
	keep := max(e.Tokens-need-model.EstimateTokens(cutNote), least)
	text := Cut(e.message.Text, keep)
	if len(text)+len(cutNote) >= len(e.message.Text) {
		return 0
	}
	before := e.Tokens
	e.message.Text, e.Cut = text+cutNote, true
	e.Tokens = cost(model.Request{Messages: []model.Message{e.message}})
	return before - e.Tokens
}

// Cut is the longest beginning of text that costs at most tokens.
func Cut(text string, tokens int64) string {
	n := sort.Search(len(text)+1, func(n int) bool { return model.EstimateTokens(text[:n]) > tokens }) - 1
	if n < 0 {
		return ""
	}
	for n > 0 && n < len(text) && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}
