// Package threadtool implements the commands of the external thread tool: init, push,
// peek, pop, subscribe, unsubscribe, info and dispatch, on the path of any thread
// directory, with the same flags, output and exit codes. Two programs run it: thread,
// and agentctl where it is called by the name thread.
//
// It promises that push exits with 0 only for what is on disk, that a batch is stored
// completely or not at all, and that events go through the registry where one serves
// the thread (package access).
//
// It differs from that tool on purpose: errors are in English; types other than
// message and record are refused; filters are those of package filter and are also
// checked when subscribing; content that is not a string is stored as its JSON text;
// one invalid subscription does not stop a dispatch; logs/thread.log is appended to.
// Through a registry its rules apply as well: who may write what where, the limits of
// a push, and that a pop with an invalid filter acknowledges nothing.
package threadtool

import (
	"io"

	"github.com/theclaw/agents/cmd/internal/command"
)

// Main runs one command line and answers its exit code: 0, 1 for a failure, 2
// for a wrong command line. Its errors are text, with --json too. The version is that
// of the program; what `thread --version` prints is [Version].
func Main(args []string, in io.Reader, out, errs io.Writer, getenv func(string) string, version string) int {
	env := command.New(in, out, errs, getenv, version)
	env.TextErrors = true
	return command.Run(env, New(env), args)
}
