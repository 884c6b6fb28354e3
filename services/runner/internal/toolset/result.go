package toolset

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"
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
	Spill     string `json:"spill,omitempty"`
}

// JSON is the output in at most MaxResult bytes: escapes can make it six times as long.
func (out Output) JSON() []byte {
	out.Stdout, out.Stderr = withoutPictures(out.Stdout), withoutPictures(out.Stderr)
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

// encode is a result as it is journaled.
func (r Result) encode() []byte {
	switch {
	case r.IsError:
		return Problem(r.Text)
	case len(r.JSON) > 0 && len(r.JSON) <= MaxResult && json.Valid(r.JSON):
		return r.JSON
	case len(r.JSON) > 0:
		return Fit(r.JSON)
	}
	b, err := json.Marshal(map[string]string{"text": withoutPictures(r.Text)})
	if err != nil { // a map of strings always encodes
		return Problem("the result cannot be encoded")
	}
	return Fit(b)
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
	if small := withoutPictures(string(result)); len(small) <= MaxResult && json.Valid([]byte(small)) {
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
