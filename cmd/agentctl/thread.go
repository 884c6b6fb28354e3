package main

import (
	"github.com/spf13/cobra"

	"github.com/theclaw/agents/internal/fault"
)

// threadCommand refuses `agentctl thread ...`: the thread tool is a program
// of its own by its name.
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
