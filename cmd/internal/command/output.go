package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// The values of --output.
const (
	OutputTable = "table"
	OutputWide  = "wide"
	OutputYAML  = "yaml"
	OutputJSON  = "json"
	OutputName  = "name"
)

// Outputs are the values of --output in the order of the help.
var Outputs = []string{OutputTable, OutputWide, OutputYAML, OutputJSON, OutputName}

// WantsJSON reports whether a command line asks for JSON with --json or --output, before the
// flags are parsed, which may fail: an error has to be in that form too.
func WantsJSON(args []string) bool {
	for i, a := range args {
		name, value, _ := strings.Cut(a, "=")
		switch {
		case a == "--":
			return false
		case a == "--json", a == "--json=true", a == "-ojson", (name == "-o" || name == "--output") && value == OutputJSON,
			(a == "-o" || a == "--output") && i+1 < len(args) && args[i+1] == OutputJSON:
			return true
		}
	}
	return false
}

// Data reports whether the output is for programs: JSON, YAML or names.
func (e *Env) Data() bool {
	return e.Flags.JSON || e.Flags.Output.Value == OutputYAML || e.Flags.Output.Value == OutputName
}

// Wide reports whether a person asks for every column.
func (e *Env) Wide() bool { return e.Flags.Output.Value == OutputWide }

// Print prints what a command is about in the form that the command line asks for: v as
// JSON or YAML, its names, a line each, or else what text prints for people.
func (e *Env) Print(v any, names []string, text func() error) error {
	switch {
	case e.Flags.JSON:
		return e.PrintJSON(v)
	case e.Flags.Output.Value == OutputYAML:
		b, err := encode(v)
		if err == nil {
			b, err = toYAML(b)
		}
		if err == nil {
			_, err = e.Out.Write(b)
		}
		return err
	case e.Flags.Output.Value == OutputName:
		for _, n := range names {
			fmt.Fprintln(e.Out, n)
		}
		return nil
	}
	return text()
}

// Show is Print for one thing that a line of text describes.
func (e *Env) Show(v any, name, format string, args ...any) error {
	return e.Print(v, []string{name}, func() error {
		_, err := fmt.Fprintf(e.Out, format+"\n", args...)
		return err
	})
}

// Item prints one of a stream of things: a line of JSON, a document of YAML, or its name.
// It is false where the output is for people.
func (e *Env) Item(v any, name string) (printed bool, err error) {
	if !e.Data() {
		return false, nil
	}
	if e.Flags.Output.Value == OutputName && !e.Flags.JSON {
		_, err = fmt.Fprintln(e.Out, name)
		return true, err
	}
	line, ready := v.(json.RawMessage)
	if !ready {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(v); err != nil {
			return true, fmt.Errorf("encode the answer: %w", err)
		}
		line = b.Bytes()
	}
	line = append(bytes.TrimRight(line, "\n"), '\n')
	if !e.Flags.JSON {
		if line, err = toYAML(line); err != nil {
			return true, err
		}
		line = append([]byte("---\n"), line...)
	}
	_, err = e.Out.Write(line)
	return true, err
}
