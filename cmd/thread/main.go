// Command thread is package threadtool as a program of its own, for a machine that needs
// nothing else. A release has the same commands in agentctl, under the name thread: see
// docs/decisions/026-thread-is-agentctl.md.
package main

import (
	"io"
	"os"

	"github.com/theclaw/agents/cmd/internal/threadtool"
)

// version is set by the linker.
var version = "devel"

func main() {
	os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv))
}

// Main runs one command line and answers its exit code.
func Main(args []string, in io.Reader, out, errs io.Writer, getenv func(string) string) int {
	return threadtool.Main(args, in, out, errs, getenv, version)
}
