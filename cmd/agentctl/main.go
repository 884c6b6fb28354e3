// Command agentctl is the program for people: it makes agents, talks to them,
// and shows what became of every message. It is a client of the services; only
// fsck looks at databases itself.
//
// main is a recipe: streams, root command, exit code. Each group of commands is
// a package below internal; what they share is internal/command.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/theclaw/agents/cmd/agentctl/internal/command"
)

// version is set by the linker.
var version = "devel"

func main() {
	os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv))
}

// Main runs one command line and answers its exit code: 0, 1 for a failure, 2
// for a wrong command line. SIGINT and SIGTERM cancel what it waits for.
func Main(args []string, in io.Reader, out, errs io.Writer, getenv func(string) string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	env := command.New(in, out, errs, getenv, version)
	code := env.Report(execute(ctx, env, args))
	if err := env.Close(); err != nil && code == 0 {
		env.Flags.JSON = false // standard output is what failed
		code = env.Report(err)
	}
	return code
}
