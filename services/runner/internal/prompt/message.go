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
	"github.com/theclaw/agents/services/runner/internal/toolset"
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
			m := Message(e)
			if blank(m) {
				continue
			}
			part := newPart(m, messageName(e.ID), "it is in no digest")
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

// messageName names the part of a message, with one allocation: each prompt has many.
func messageName(id int64) string {
	var b [32]byte
	return string(strconv.AppendInt(append(b[:0], "message "...), id, 10))
}

// blank reports whether a message has nothing to read, such as one that was left out because too many waited: providers
// refuse it.
func blank(m model.Message) bool { return m.Text == "" && len(m.Images) == 0 && len(m.ToolCalls) == 0 }

// Messages are events as the model reads them, without those that have nothing to read.
func Messages(list []Event) (out []model.Message) {
	for _, e := range list {
		if m := Message(e); !blank(m) {
			out = append(out, m)
		}
	}
	return out
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
	m := model.Message{Role: role}
	if text, ok := plain(e.Content); ok {
		m.Text = text
		return m
	}
	var files []Attachment
	m.Text, files = decoded(e.Content, e.Transcripts, role == model.RoleAssistant)
	if role == model.RoleUser {
		for _, f := range files {
			if i, ok := toolset.ImageOf(f.MIME, f.Name, f.Media, f.Size); ok {
				m.Images = append(m.Images, i)
			}
		}
	}
	return m
}

// Text is what was said in a content: the message that it answers, as a quotation, its text and a line for each attachment,
// with its transcript, where there is one. Content that is no JSON object with a text is taken as it is.
func Text(content string, transcripts ...thread.Transcript) string {
	if text, ok := plain(content); ok {
		return text
	}
	text, _ := decoded(content, transcripts, false)
	return text
}

// decoded is what was said in a content, and the files that came with it. What precedes the text of a reply of the
// agent's own, such as the calls of its tools, is for people: a model would take it for its own words.
func decoded(content string, transcripts []thread.Transcript, own bool) (string, []Attachment) {
	var c struct {
		Text        *string         `json:"text"`
		AnswerFrom  int             `json:"answer_from"`
		ReplyTo     json.RawMessage `json:"reply_to"`
		Attachments []Attachment    `json:"attachments"`
	}
	if json.Unmarshal([]byte(content), &c) != nil || c.Text == nil {
		return content, nil
	}
	if from := c.AnswerFrom; own && from > 0 && from < len(*c.Text) && utf8.RuneStart((*c.Text)[from]) {
		*c.Text = (*c.Text)[from:]
	}
	var b strings.Builder
	if answered := quotation(c.ReplyTo); answered != "" {
		b.WriteString(quoted(answered) + "\n\n")
	}
	b.WriteString(*c.Text)
	for _, a := range c.Attachments {
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(a.line(transcripts))
	}
	return b.String(), c.Attachments
}

// quoted marks each line of a text, so that none looks like one of another.
func quoted(text string) string { return "> " + strings.ReplaceAll(breaks.Replace(text), "\n", "\n> ") }

// quotation is the text of the message that another one answers; empty: it is not known.
func quotation(replyTo json.RawMessage) string {
	var c struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(replyTo, &c) != nil {
		return ""
	}
	return strings.TrimSpace(c.Text)
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
		if e.message.Role != model.RoleTool || len(e.message.Text) <= len(toolNote) && len(e.message.Images) == 0 {
			continue
		}
		before := e.Tokens
		e.message.Text, e.message.Images, e.Cut = toolNote, nil, true
		e.Tokens = cost(model.Request{Messages: []model.Message{e.message}})
		gained += before - e.Tokens
	}
	if last >= 0 && gained < need && len(turn[last].message.Images) > 0 {
		e := &turn[last]
		before := e.Tokens
		e.message, e.Cut = e.message.WithoutImages("it does not fit into the model's context"), true
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
