package transcript

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// Gist is what a tool call is about, in one line: the command of a shell, else
// its arguments.
func Gist(arguments string) string {
	var a struct {
		Command string `json:"command"`
	}
	if json.Unmarshal([]byte(arguments), &a) == nil && a.Command != "" {
		return a.Command
	}
	return arguments
}

// Full is a tool call's arguments to be read.
func Full(arguments string) string {
	var a map[string]any
	if json.Unmarshal([]byte(arguments), &a) != nil {
		return arguments
	}
	var b strings.Builder
	if command, ok := a["command"].(string); ok {
		fmt.Fprintf(&b, "$ %s\n", command)
		delete(a, "command")
	}
	if comment, ok := a["comment"].(string); ok {
		fmt.Fprintf(&b, "# %s\n", comment)
		delete(a, "comment")
	}
	if len(a) > 0 {
		var raw bytes.Buffer
		enc := json.NewEncoder(&raw)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		if enc.Encode(a) == nil {
			b.Write(raw.Bytes())
		}
	}
	return b.String()
}

// ReadResult reads the result of a tool: that of a program, {"stdout","stderr",
// "exit_code"} or {"error"}, or any other text.
func ReadResult(raw string) Result {
	var r struct {
		Stdout, Stderr *string
		ExitCode       *int `json:"exit_code"`
		Old            *int `json:"exitCode"`
		Error          string
	}
	if json.Unmarshal([]byte(raw), &r) != nil || r.Stdout == nil && r.Stderr == nil && r.Error == "" {
		return Result{Text: raw}
	}
	var out Result
	for _, part := range []*string{r.Stdout, r.Stderr} {
		if part != nil && *part != "" {
			out.Text += strings.TrimRight(*part, "\n") + "\n"
		}
	}
	code := r.ExitCode
	if code == nil {
		code = r.Old
	}
	switch {
	case r.Error != "":
		out.Fail = "failed"
		out.Text += r.Error
	case code != nil && *code != 0:
		out.Fail = fmt.Sprintf("exit %d", *code)
	}
	return out
}
