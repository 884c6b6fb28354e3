package config

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/types/known/durationpb"

	registryv1 "github.com/theclaw/agents/proto/gen/theclaw/registry/v1"
)

// Media says what becomes of files that come with messages.
type Media struct{ Transcribe Transcribe }

// Transcribe says what makes text of voice messages: the endpoint of a provider, or a command. The zero value is nothing.
type Transcribe struct {
	// Provider is the name of a provider, and Model its model; empty: whisper-1.
	Provider, Model string
	// Command is a program with its arguments, which prints the text.
	Command []string
	// Timeout of one file; 0: 2 minutes.
	Timeout time.Duration
}

const (
	transcribeOff = "off"
	// transcribeForm is what a value may be.
	transcribeForm = "off, {provider: NAME, model: NAME, timeout: 2m}, or {command: [PROGRAM, ARGUMENT], timeout: 2m}"

	transcribeModel   = "whisper-1"
	transcribeTimeout = 2 * time.Minute

	leastTranscribe, mostTranscribe = time.Second, 30 * time.Minute
	maxWords, maxWord               = 64, 4096
)

// Off reports whether nothing makes text of voice messages.
func (t Transcribe) Off() bool { return t.Provider == "" && len(t.Command) == 0 }

// String writes the value for a reader, and for YAML.
func (t Transcribe) String() string {
	var parts []string
	switch {
	case t.Off():
		return transcribeOff
	case t.Provider != "":
		parts = append(parts, "provider: "+Quote(t.Provider))
	default:
		parts = append(parts, "command: "+FlowList(t.Command))
	}
	if t.Model != "" {
		parts = append(parts, "model: "+Quote(t.Model))
	}
	if t.Timeout != 0 {
		parts = append(parts, "timeout: "+Duration(t.Timeout))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// ParseTranscribe reads off, or a mapping on one line such as {provider: openai}. See [ParseNumber].
func ParseTranscribe(s string, to *Transcribe) string {
	s = strings.TrimSpace(s)
	if s == transcribeOff {
		*to = Transcribe{}
		return ""
	}
	in, ok := inside(s, "{", "}")
	if !ok {
		return "must be " + transcribeForm
	}
	var t Transcribe
	for _, part := range flowParts(in) {
		name, value, ok := strings.Cut(part, ":")
		if !ok {
			return "must be " + transcribeForm
		}
		value = strings.TrimSpace(value)
		if problem := t.Set(strings.TrimSpace(name), unquote(value), func(list *[]string) string {
			words, ok := inside(value, "[", "]")
			if !ok {
				return "must be a list of texts"
			}
			for _, w := range flowParts(words) {
				*list = append(*list, unquote(w))
			}
			return ""
		}); problem != "" {
			return problem
		}
	}
	*to = t
	return t.problem()
}

// Set reads one attribute of a mapping: text is its value, where that is a text, and list reads it as a list.
func (t *Transcribe) Set(name, text string, list func(*[]string) string) (problem string) {
	switch name {
	case "provider":
		t.Provider = text
	case "model":
		t.Model = text
	case "timeout":
		problem = ParseDuration(text, &t.Timeout)
		if problem == "" && t.Timeout == 0 {
			problem = "must be above 0s"
		}
	case "command":
		problem = list(&t.Command)
	default:
		return fmt.Sprintf("has no %q; it is %s", Clip(name), transcribeForm)
	}
	if problem != "" {
		return name + " " + problem
	}
	return ""
}

// problem is what is wrong with the value; empty: nothing is.
func (t Transcribe) problem() string {
	switch {
	case t.Off() && (t.Model != "" || t.Timeout != 0 || t.Command != nil), t.Provider == "" && t.Model != "":
		return "needs a provider or a command; it is " + transcribeForm
	case t.Provider != "" && len(t.Command) > 0:
		return "has a provider and a command; keep one of them"
	case t.Provider != "":
		for _, s := range []*string{&t.Provider, &t.Model} {
			if problem := name(s); *s != "" && problem != "" {
				return problem
			}
		}
	case len(t.Command) > maxWords:
		return fmt.Sprintf("command has %d words, and %d are the most", len(t.Command), maxWords)
	}
	for i, w := range t.Command {
		if len(w) > maxWord || strings.ContainsFunc(w, unicode.IsControl) || i == 0 && strings.TrimSpace(w) == "" {
			return fmt.Sprintf("word %d of command is empty, longer than %d bytes, or has control characters", i+1, maxWord)
		}
	}
	if t.Timeout != 0 && (t.Timeout < leastTranscribe || t.Timeout > mostTranscribe) {
		return fmt.Sprintf("timeout %s is not between %s and %s", Duration(t.Timeout), Duration(leastTranscribe), Duration(mostTranscribe))
	}
	return ""
}

// transcribe is the rule of a [Transcribe].
func transcribe() Rule {
	return Rule{Form: transcribeForm, check: func(v any) string { return v.(*Transcribe).problem() }}
}

// config is what a runner needs; nil: nothing makes text.
func (t Transcribe) config() *registryv1.Transcribe {
	if t.Off() {
		return nil
	}
	out := &registryv1.Transcribe{Provider: t.Provider, Model: t.Model, Command: slices.Clone(t.Command), Timeout: durationpb.New(transcribeTimeout)}
	if t.Provider != "" && t.Model == "" {
		out.Model = transcribeModel
	}
	if t.Timeout != 0 {
		out.Timeout = durationpb.New(t.Timeout)
	}
	return out
}

// inside is what of s is between two texts.
func inside(s, begin, end string) (string, bool) {
	s, begins := strings.CutPrefix(s, begin)
	s, ends := strings.CutSuffix(s, end)
	return s, begins && ends
}

// flowParts divides what is between brackets of YAML at its commas: not at those in quotes or in brackets.
func flowParts(s string) (parts []string) {
	depth, from, quote := 0, 0, byte(0)
	for i := range len(s) {
		switch c := s[i]; {
		case quote != 0:
			if c == quote {
				quote = 0 // of two in a row, which stand for one, the second begins again
			}
		case c == '\'' || c == '"':
			quote = c
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			depth--
		case c == ',' && depth == 0:
			parts, from = append(parts, strings.TrimSpace(s[from:i])), i+1
		}
	}
	if last := strings.TrimSpace(s[from:]); last != "" {
		parts = append(parts, last)
	}
	return parts
}

// unquote is the text of a word of YAML without a control character.
func unquote(s string) string {
	if in, ok := inside(s, "'", "'"); ok {
		return strings.ReplaceAll(in, "''", "'")
	}
	if in, ok := inside(s, `"`, `"`); ok {
		return in
	}
	return s
}
