// Command agentd runs the services of the runtime: one of them, or all in one process.
//
//	agentd all | registry | runner | deliverer | gateway [flags]
//
// Each service has its own socket in $THECLAW_HOME/run and reaches the others
// through theirs, also within one process. SIGTERM drains: nothing new is started,
// running work may finish, exit 0. A second signal ends the process at once.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/theclaw/agents/internal/fault"
	"github.com/theclaw/agents/internal/sandbox"
)

// version is set by the build.
var version string

func main() {
	sandbox.Main() // a sandboxed child may be this program too
	if os.Getenv("GOGC") == "" {
		tuneCollector()
	}
	os.Exit(Main(os.Args[1:], os.Getenv, os.Stderr))
}

// Main runs the program and answers its exit status.
func Main(args []string, getenv func(string) string, stderr io.Writer) int {
	drain, abort := signals()
	o, err := parse(args, getenv, stderr)
	if err == nil {
		err = run(drain, abort, o, stderr)
	}
	if err == nil || errors.Is(err, errHelp) {
		return 0
	}
	fmt.Fprintln(stderr, fault.Line(err))
	return fault.ExitCode(err)
}

// signals answers a context that ends with the first signal, and a channel that
// closes with the second.
func signals() (context.Context, <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	abort := make(chan struct{})
	ch := make(chan os.Signal, 2)
	signal.Notify(ch, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-ch
		cancel()
		<-ch
		close(abort)
	}()
	return ctx, abort
}
