package toolset

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/theclaw/agents/internal/boundary"
	"github.com/theclaw/agents/internal/outputdir"
)

// MaxResult bounds the result of a call, in bytes.
const MaxResult = 640 << 10

// Output is the result of a call that ran a program, in the journal and for the model.
type Output struct {
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	ExitCode  int    `json:"exitCode"`
	TimedOut  bool   `json:"timedOut"`
	Truncated bool   `json:"truncated"`
	// Spill is the file with what is above the cap of the sandbox. CompleteOutput is the file with everything, below the
	// working directory, where Stdout or Stderr is a part.
	Spill          string `json:"spill,omitempty"`
	CompleteOutput string `json:"complete_output,omitempty"`
}

// textual is the result of a call that answers a text. CompleteOutput is the file with all of it, below the working
// directory, where Text is a part.
type textual struct {
	Text           string `json:"text"`
	CompleteOutput string `json:"complete_output,omitempty"`
}

// JSON is the output in at most MaxResult bytes: escapes can make it six times as long.
func (out Output) JSON() []byte {
	out.Stdout, out.Stderr = WithoutPictures(out.Stdout), WithoutPictures(out.Stderr)
	for {
		b, err := json.Marshal(out)
		if err != nil {
			return Problem("the result cannot be encoded")
		}
		if len(b) <= MaxResult {
			return b
		}
		out.Truncated = true
		out.Stdout, out.Stderr = cut(out.Stdout, len(out.Stdout)/2), cut(out.Stderr, len(out.Stderr)/2)
	}
}

// Problem is the journaled result of a call that ran nothing, or of which nothing more is
// known.
func Problem(text string) []byte {
	b, err := json.Marshal(map[string]string{"error": cut(text, 4096)})
	if err != nil { // a map of strings always encodes
		return []byte(`{"error":"unknown"}`)
	}
	return b
}

// External is the line before and the line after what neither the owner nor this runtime wrote. Both hold a
// random mark that its author cannot know.
func External(source string) (begin, end string) {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	random := hex.EncodeToString(b[:])
	return fmt.Sprintf("[external content from %s %s]", boundary.Name(source), random), fmt.Sprintf("[end of external content %s]", random)
}

// valid is a result whose texts are valid UTF-8, whatever a tool answers. A byte that is
// not becomes U+FFFD. What is above the size of a complete output is dropped first: a tool bounds what it reads, and one
// that does not must not have a copy made of it.
func (r Result) valid() Result {
	if len(r.JSON) > outputdir.MaxText { // no part of it is JSON
		r.Text, r.JSON, r.Bounded = string(r.JSON[:outputdir.MaxText]), nil, false
	}
	r.Text = cut(r.Text, outputdir.MaxText)
	r.Text, _ = boundary.Text(r.Text, 0)
	if text, c := boundary.Text(string(r.JSON), 0); c != (boundary.Change{}) {
		r.JSON = json.RawMessage(text)
	}
	r.Messages = slices.Clone(r.Messages)
	for n := range r.Messages {
		r.Messages[n].Text, _ = boundary.Text(r.Messages[n].Text, 0)
	}
	return r
}

// annotate puts a note in front of what a result holds: how the call that was made differs
// from the one that was asked for.
func annotate(result []byte, note string) []byte {
	rest, object := bytes.CutPrefix(result, []byte("{"))
	quoted, err := json.Marshal(cut(note, 1024))
	if note == "" || !object || err != nil {
		return result
	}
	out := append([]byte(`{"note":`), quoted...)
	if rest = bytes.TrimLeft(rest, " \t\r\n"); len(rest) > 0 && rest[0] != '}' {
		out = append(out, ',')
	}
	return append(out, rest...)
}

// encode is the result of a call as it is journaled. JSON that is longer than the model reads becomes a text: no part of
// it would be JSON.
func (r Result) encode(c Call) []byte {
	most := ResultChars(c.Place.Config)
	switch long := !r.Bounded && utf8.RuneCount(r.JSON) > most; {
	case r.IsError || r.InDoubt:
		return Problem(r.Text)
	case long && json.Valid(r.JSON):
		r.Text = string(r.JSON)
	case len(r.JSON) > 0 && len(r.JSON) <= MaxResult && json.Valid(r.JSON):
		return r.JSON
	case len(r.JSON) > 0:
		return Fit(r.JSON)
	}
	text := WithoutPictures(r.Text)
	if r.Bounded {
		most = utf8.RuneCountInString(text)
	}
	var out textual
	complete := sync.OnceValue(func() string {
		out.CompleteOutput = Complete(c, text)
		return out.CompleteOutput
	})
	for {
		out.Text = Ends(text, most, func(string) string { return complete() })
		b, err := json.Marshal(out)
		if err != nil { // a struct of strings always encodes
			return Problem("the result cannot be encoded")
		}
		if len(b) <= MaxResult {
			return b
		}
		most /= 2 // a character takes up to six bytes
	}
}

// Note is a result with a line of ours behind what the program said.
func Note(result []byte, text string) []byte {
	out, problem := decode(result)
	if problem != "" {
		return result
	}
	out.Stderr += "\n[" + cut(text, 1024) + "]"
	return out.JSON()
}

// Fit is a result as it is, or what fits of it into MaxResult. It is also for results
// that another program has made.
func Fit(result json.RawMessage) []byte {
	text, _ := boundary.Text(string(result), 0)
	result = json.RawMessage(text)
	if small := WithoutPictures(string(result)); len(small) <= MaxResult && json.Valid([]byte(small)) {
		return []byte(small)
	}
	out, problem := decode(result)
	if problem != "" || out.Stdout+out.Stderr == "" {
		return Problem("the result is not understood, or larger than can be kept")
	}
	return out.JSON()
}

// Failure is what went wrong in a call, in a few words; empty: nothing did.
func Failure(result []byte) string {
	out, problem := decode(result)
	switch {
	case problem != "":
		return problem
	case out.TimedOut:
		return "it took too long"
	case out.ExitCode != 0:
		return fmt.Sprintf("it ended with exit code %d", out.ExitCode)
	}
	return ""
}

// decode reads a result; problem is why nothing ran, or what is wrong with it.
func decode(result []byte) (out Output, problem string) {
	var p struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(result, &out) != nil {
		return out, "the result is not understood"
	}
	_ = json.Unmarshal(result, &p) // an error that is no text is none of ours
	return out, p.Error
}

// cut shortens a text to at most n bytes of complete characters.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
