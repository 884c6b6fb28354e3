// Command agentctl is the command line for people: it creates agents, talks to them,
// and shows what happened to every message. It is a client of the services; only
// fsck opens databases itself.
//
// main contains only the streams, the root command and the exit code. Each group of
// commands is a package below internal; what they share is cmd/internal/command.
package main

import (
	"io"
	"os"
	"path/filepath"

	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/cmd/internal/threadtool"
)

// version is set by the linker.
var version = "devel"

func main() {
	if filepath.Base(os.Args[0]) == "thread" {
		os.Exit(threadtool.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv, version))
	}
	os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv))
}

// Main runs one command line and answers its exit code: 0, 1 for a failure, 2
// for a wrong command line. SIGINT and SIGTERM cancel what it waits for.
func Main(args []string, in io.Reader, out, errs io.Writer, getenv func(string) string) int {
	env := command.New(in, out, errs, getenv, version)
	env.Flags.JSON = command.WantsJSON(args) // known before the flags are parsed, which may fail
	return command.Run(env, newRoot(env), args)
}
