package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// The exit codes.
const (
	exitLogic = 1 // no key, no provider, no configuration
	exitAPI   = 2 // and a wrong option
	exitHead  = 3 // an API error, since
	exitFile  = 4 // a file that cannot be read or understood
)

// failure ends a call: its event, and the exit code.
type failure struct {
	code    int
	message string
	context details
}

// details are a JSON object that keeps its order.
type details [][2]any

// MarshalJSON implements json.Marshaler.
func (d details) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for i, kv := range d {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, encode(kv[0])...), ':'), encode(kv[1])...)
	}
	return append(out, '}'), nil
}

func (f *failure) Error() string { return f.message }

// program is one run of pai.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	quirks         map[string]string
	o              options
}

// Main runs the program and answers its exit code.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string) int {
	p := &program{stdin: stdin, stdout: stdout, stderr: stderr, getenv: getenv, quirks: map[string]string{}}
	for _, q := range strings.Split(getenv("STANDIN_PAI"), ",") {
		name, value, _ := strings.Cut(q, "=")
		p.quirks[name] = value
	}
	if path := p.quirks["usage"]; path != "" {
		if f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
			line, _ := json.Marshal(args)
			_, _ = f.Write(append(line, '\n'))
			_ = f.Close()
		}
	}
	switch {
	case len(args) >= 2 && args[0] == "model" && args[1] == "resolve":
		return p.resolve()
	case len(args) == 0 || args[0] != "chat":
		fmt.Fprintf(stderr, "error: unknown command\n")
		return exitAPI
	}
	args = args[1:]
	if slices.Contains(args, "--help") || slices.Contains(args, "-h") {
		if path := p.quirks["die-help"]; path != "" && os.Remove(path) == nil {
			fmt.Fprint(stdout, p.usage()[:40])
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		fmt.Fprint(stdout, p.usage())
		return 0
	}
	if problem := p.parse(args); problem != "" {
		fmt.Fprintf(stderr, "error: %s\n\n%s", problem, p.usage())
		return exitAPI
	}
	err := p.chat()
	if err == nil {
		return 0
	}
	var f *failure
	if !errors.As(err, &f) {
		f = &failure{code: exitLogic, message: err.Error()}
	}
	if p.o.json {
		p.line(struct {
			Type    string  `json:"type"`
			Message string  `json:"message"`
			Context details `json:"context,omitempty"`
		}{"error", f.message, f.context})
	} else {
		fmt.Fprintf(stderr, "Error: %s\n", f.message)
	}
	return f.code
}

// event writes {"type","data","timestamp"}.
func (p *program) event(kind string, data any) {
	if !p.o.json {
		return
	}
	p.line(struct {
		Type      string `json:"type"`
		Data      any    `json:"data"`
		Timestamp int64  `json:"timestamp"`
	}{kind, data, time.Now().UnixMilli()})
}

func (p *program) line(v any) { _, _ = p.stderr.Write(append(encode(v), '\n')) }

// encode is JSON as the real program writes it: no escapes for browsers.
func encode(v any) []byte {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // everything written here encodes
	}
	return []byte(strings.TrimSuffix(b.String(), "\n"))
}

// api is an error of the provider.
func (p *program) api(message string) *failure {
	if _, head := p.quirks["head"]; head {
		return &failure{code: exitHead, message: message}
	}
	return &failure{code: exitAPI, message: message, context: details{{"originalError", "Error: " + message}}}
}
