// Command notifier stands in for the external `notifier` tool in tests: its task
// files, command lines and exit codes, and the faults of its daemon.
//
// True to it:
//   - `task add` writes the file in place, and a file that is there already is
//     exit 1, as is every other failure: an author with a slash, a name that is
//     too long;
//   - the daemon reads a file as soon as its name is there, so one that is half
//     written goes to tasks/error and is lost;
//   - it runs one task at a time by sh -c with its own directory and environment,
//     waits for it, and moves the file to tasks/done whatever the exit code; while
//     a task runs its file is still pending.
//
// NOTIFIER_LOSE=P makes the daemon read P per cent of the files half written, by
// the seed NOTIFIER_SEED. Not modeled: timers.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/theclaw/agents/proofs/standin/option"
)

// failure is an error with an exit code and the text as it is printed.
type failure struct {
	code int
	text string
}

func (f *failure) Error() string { return f.text }

func refuse(format string, a ...any) error { return &failure{1, fmt.Sprintf(format, a...)} }

func main() { os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// Main runs one command line. Wrong ones exit 1 here, not 2.
func Main(args []string, in io.Reader, out, errs io.Writer) int {
	err := run(args, in, out, errs)
	if err == nil {
		return 0
	}
	text := "Error: " + err.Error()
	if f, ok := errors.AsType[*failure](err); ok {
		text = f.text
	}
	fmt.Fprintln(errs, text)
	return 1
}

func run(args []string, in io.Reader, out, errs io.Writer) error {
	verb, rest := "", args
	for len(rest) > 0 && len(strings.Fields(verb)) < 2 && !strings.HasPrefix(rest[0], "-") {
		verb, rest = strings.TrimSpace(verb+" "+rest[0]), rest[1:]
	}
	c, ok := commands[verb]
	if !ok {
		return refuse("error: too many arguments. Expected 0 arguments but got %d.", len(args))
	}
	o, err := option.Parse(c.spec, rest)
	if err != nil {
		return refuse("%v", err)
	}
	h, err := openHome()
	if err != nil {
		return err
	}
	return c.run(h, o, in, out, errs)
}

var commands = map[string]struct {
	spec option.Spec
	run  func(home, option.Set, io.Reader, io.Writer, io.Writer) error
}{
	"task add":    {option.Spec{Values: []string{"author!", "task-id!", "command", "cmd", "description"}}, taskAdd},
	"task list":   {option.Spec{Values: []string{"status"}, Flags: []string{"all", "json"}}, taskList},
	"task remove": {option.Spec{Values: []string{"author!", "task-id!", "status"}}, taskRemove},
	"start":       {option.Spec{Flags: []string{"foreground"}}, start},
	"stop":        {option.Spec{}, stop},
	"status":      {option.Spec{Flags: []string{"json"}}, status},
}
