// Command agentctl is the program for people: it makes agents, talks to them,
// and shows what became of every message. It is a client of the services; only
// fsck, and thread where no registry serves it, look at databases themselves.
//
// Under the name thread it is the external tool of that name, package threadcmd.
//
// main is a recipe: streams, root command, exit code. Each group of commands is
// a package below internal; what they share is internal/command.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/internal/command"
)

// version is set by the linker.
var version = "devel"

func main() {
	program := Main
	if filepath.Base(os.Args[0]) == "thread" {
		program = Thread
	}
	os.Exit(program(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv))
}

// Main runs one command line and answers its exit code: 0, 1 for a failure, 2
// for a wrong command line. SIGINT and SIGTERM cancel what it waits for.
func Main(args []string, in io.Reader, out, errs io.Writer, getenv func(string) string) int {
	env := command.New(in, out, errs, getenv, version)
	env.Flags.JSON = wantsJSON(args) // known before the flags are parsed, which may fail
	return perform(env, newRoot(env), args)
}

// Thread runs one command line of the program `thread`, which is this one under
// another name. Its errors are text, with --json too.
func Thread(args []string, in io.Reader, out, errs io.Writer, getenv func(string) string) int {
	env := command.New(in, out, errs, getenv, version)
	return perform(env, newThread(env), args)
}

func perform(env *command.Env, root *cobra.Command, args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := execute(ctx, root, args)
	if root.Name() == "thread" {
		env.Flags.JSON = false
	}
	code := env.Report(err)
	if err := env.Close(); err != nil && code == 0 {
		env.Flags.JSON = false // standard output is what failed
		code = env.Report(err)
	}
	return code
}
