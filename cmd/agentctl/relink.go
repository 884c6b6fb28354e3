package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/internal/fault"
)

// threadCommand refuses `agentctl thread ...`: the thread tool is cmd/thread.
func threadCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "thread ...",
		Short:              "Use the program thread for the commands of the thread tool",
		Example:            `  thread peek --thread ./t --last-event-id 0     (not: agentctl thread peek ...)`,
		Hidden:             true,
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
		RunE: func(*cobra.Command, []string) error {
			return fault.Usage("the commands of the thread tool are the program thread", "write 'thread' for 'agentctl thread'; 'make install WITH_THREAD=1' installs it")
		},
	}
}

// relink reports, for a call of agentctl under the name thread, which file must
// become what, and answers the exit code.
func relink(called string, errs io.Writer) int {
	err := calledThread(called)
	fmt.Fprintln(errs, fault.Line(err))
	return fault.ExitCode(err)
}

func calledThread(called string) error {
	file, err := exec.LookPath(called)
	if err != nil {
		file = called
	}
	if abs, err := filepath.Abs(file); err == nil {
		file = abs
	}
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		real = file
	}
	what := file + " is agentctl, and agentctl is not the thread tool any more"
	target := filepath.Join(filepath.Dir(real), "thread")
	if target == file { // it stands where the program belongs
		return fault.Usage(what, "replace it by the program thread: 'make install WITH_THREAD=1'")
	}
	fix := "relink it to the program thread: ln -sf " + quote(target) + " " + quote(file)
	if _, err := os.Stat(target); err != nil {
		fix += ", after 'make install WITH_THREAD=1'"
	}
	return fault.Usage(what, fix)
}

// quote makes a word of the shell of a path.
func quote(path string) string { return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'" }
