package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/theclaw/agents/cmd/internal/command"
)

// sections are the groups of the root help, in the order in which a user needs them.
var sections = []struct{ id, title, commands string }{
	{"talk", "Conversations:", "setup up chat send agent run cancel sessions channels pair bindings"},
	{"agents", "Agents:", "init list start stop rm status top config tools mcp hooks sandbox file memory context providers bootstrap cmds"},
	{"account", "Inspection:", "explain turns threads events errors usage approvals questions audit dlq lease"},
	{"home", "Home and data:", "doctor backup restore fsck migrate migrate-store prune export erase drill"},
	{"services", "Services:", "service gateway ready log profile certs token support"},
}

// daily are the commands that are shown when none is named, in the order in which
// a newcomer needs them.
const daily = "setup up init start chat send list status explain doctor"

// overview makes root show the commands of every day when it is called without a command,
// and gives it --version.
func overview(e *command.Env, root *cobra.Command) {
	version := root.Flags().BoolP("version", "v", false, "print the version of this program")
	group := root.RunE
	root.RunE = func(c *cobra.Command, args []string) error {
		switch {
		case *version && len(args) == 0:
			return printVersion(e)
		case len(args) > 0 || e.Flags.JSON:
			return group(c, args)
		}
		fmt.Fprintf(e.Err, "%s.\n\nCommands of every day:\n", root.Short)
		for _, name := range strings.Fields(daily) {
			if sub, _, err := root.Find([]string{name}); err == nil {
				fmt.Fprintf(e.Err, "  %-9s %s\n", name, sub.Short)
			}
		}
		fmt.Fprintf(e.Err, "\n'%s help' lists all commands, '%s COMMAND --help' explains one.\n", root.Name(), root.Name())
		return command.Usage(c, "no command given to '%s'", root.Name())
	}
}

// sortIn assigns the commands to the sections of the root help.
func sortIn(root *cobra.Command) {
	for _, s := range sections {
		root.AddGroup(&cobra.Group{ID: s.id, Title: s.title})
		names := strings.Fields(s.commands)
		for _, c := range root.Commands() {
			if slices.Contains(names, c.Name()) {
				c.GroupID = s.id
			}
		}
	}
}
