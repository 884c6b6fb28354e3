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
	"slices"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/cmd/internal/threadtool"
)

// version is set by the linker.
var version = "devel"

func main() {
	switch filepath.Base(os.Args[0]) {
	case "thread":
		os.Exit(threadtool.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv, version))
	case "ac", "agentclaw":
		os.Exit(Main(chatting(os.Args[1:]), os.Stdin, os.Stdout, os.Stderr, os.Getenv))
	case "agent": // a command that the program agent does not have
		env := command.New(os.Stdin, os.Stdout, os.Stderr, os.Getenv, version)
		env.Older = true
		os.Exit(execute(env, os.Args[1:]))
	}
	os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv))
}

// chatting is the command line of agentctl for that of ac or agentclaw, which are 'agentctl chat'.
func chatting(args []string) []string {
	if len(args) == 1 && (args[0] == "--version" || args[0] == "-v") {
		return args
	}
	at := 0
	if len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd) {
		at = 1
	}
	return slices.Insert(slices.Clone(args), at, "chat")
}

// Main runs one command line and answers its exit code: 0, 1 for a failure, 2
// for a wrong command line. SIGINT and SIGTERM cancel what it waits for.
func Main(args []string, in io.Reader, out, errs io.Writer, getenv func(string) string) int {
	return execute(command.New(in, out, errs, getenv, version), args)
}

func execute(env *command.Env, args []string) int {
	env.Flags.JSON = command.WantsJSON(args) // known before the flags are parsed, which may fail
	return command.Run(env, newRoot(env), args)
}
