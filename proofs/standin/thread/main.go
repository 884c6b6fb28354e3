// Command thread stands in for the external `thread` tool, version 1.0.9, in
// tests: the same command lines, exit codes, files, database and faults.
//
// True to it:
//   - a push appends in WAL mode with synchronous NORMAL, waits 5 s for a lock,
//     appends events.jsonl after the commit, schedules `notifier task add` and
//     takes exit 1 of that for "queued already", whatever the reason;
//   - dispatch makes run/<consumer>.lock, starts the handler by sh -c in a session
//     of its own with no input or output, and never removes the lock;
//   - dispatch ends at the first subscription whose filter does not work;
//   - the directory stands unquoted in the notifier's command.
//
// Not modeled: help texts, and the words of diagnostics (the class is: an error
// of the tool says `Error: `, one of the command line `error: `).
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/theclaw/agents/proofs/standin/option"
)

// failure is an error with an exit code.
type failure struct {
	code int
	text string
}

func (f *failure) Error() string { return f.text }

func logic(format string, a ...any) error { return &failure{1, "Error: " + fmt.Sprintf(format, a...)} }

func usage(format string, a ...any) error { return &failure{2, "Error: " + fmt.Sprintf(format, a...)} }

func main() { os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// Main runs one command line.
func Main(args []string, in io.Reader, out, errs io.Writer) int {
	err := run(args, in, out)
	if err == nil {
		return 0
	}
	code, text := 2, "Error: "+err.Error()
	if f := (*failure)(nil); errors.As(err, &f) {
		code, text = f.code, f.text
	}
	fmt.Fprintln(errs, text)
	return code
}

var commands = map[string]struct {
	spec option.Spec
	run  func(option.Set, io.Reader, io.Writer) error
}{
	"init":        {option.Spec{}, initThread},
	"push":        {option.Spec{Values: []string{"thread!", "source", "type", "subtype", "content"}, Flags: []string{"batch"}}, push},
	"peek":        {option.Spec{Values: []string{"thread!", "last-event-id!", "limit", "filter"}}, peek},
	"pop":         {option.Spec{Values: []string{"thread!", "consumer!", "last-event-id!", "limit"}}, pop},
	"subscribe":   {option.Spec{Values: []string{"thread!", "consumer!", "handler!", "filter"}}, subscribe},
	"unsubscribe": {option.Spec{Values: []string{"thread!", "consumer!"}}, unsubscribe},
	"info":        {option.Spec{Values: []string{"thread!"}, Flags: []string{"json"}}, info},
	"dispatch":    {option.Spec{Values: []string{"thread!"}}, dispatch},
}

func run(args []string, in io.Reader, out io.Writer) error {
	if len(args) == 1 && args[0] == "--version" {
		fmt.Fprintln(out, "1.0.9")
		return nil
	}
	if len(args) == 0 {
		return &failure{2, "Invalid command: "}
	}
	c, ok := commands[args[0]]
	if !ok {
		return &failure{2, "Invalid command: " + strings.Join(args, " ")}
	}
	o, err := option.Parse(c.spec, args[1:])
	if err != nil {
		return &failure{2, err.Error()}
	}
	return c.run(o, in, out)
}

// absolute resolves a directory as the tool does: a trailing slash stays.
func absolute(dir string) (string, error) {
	if rest, ok := strings.CutPrefix(dir, "~/"); ok {
		dir = filepath.Join(os.Getenv("HOME"), rest)
	}
	abs, err := filepath.Abs(dir)
	if err == nil && strings.HasSuffix(dir, "/") && abs != "/" {
		abs += "/"
	}
	return abs, err
}

// open opens the thread that the command line names.
func open(o option.Set) (*thread, error) {
	dir, err := absolute(o.Get("thread"))
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, "events.db")); err != nil {
		return nil, logic("%s is not a thread directory - run thread init %s first", dir, dir)
	}
	return openThread(dir)
}

func number(o option.Set, name string, least, def int64) (int64, error) {
	if !o.Has(name) {
		return def, nil
	}
	n, err := strconv.ParseInt(o.Get(name), 10, 64)
	if err != nil || n < least {
		return 0, usage("--%s must be a whole number from %d", name, least)
	}
	return n, nil
}

func initThread(o option.Set, _ io.Reader, out io.Writer) error {
	if len(o.Words) == 0 {
		return &failure{2, "error: missing required argument 'path'"}
	}
	dir, err := absolute(o.Words[0])
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "events.db")); err == nil {
		return logic("%s is a thread directory already", dir)
	}
	for _, d := range []string{"run", "logs"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	t, err := openThread(dir)
	if err != nil {
		return err
	}
	defer t.close()
	if err := t.exec(schema); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "events.jsonl"), nil, 0o644); err != nil {
		return err
	}
	fmt.Fprintln(out, "Initialized thread at "+dir)
	return nil
}
