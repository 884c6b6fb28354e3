package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// sections are the commands in the order in which one needs them.
var sections = []struct{ id, title, commands string }{
	{"talk", "Talk:", "up chat send agent run cancel"},
	{"agents", "Agents:", "init list start stop rm status top config file memory context providers bootstrap cmds"},
	{"account", "What happened:", "explain turns threads events errors usage approvals audit dlq lease"},
	{"home", "The home:", "doctor backup restore fsck migrate migrate-store prune export erase drill"},
	{"services", "The services:", "ready log profile certs token"},
}

// sortIn gives the commands of the root help their sections.
func sortIn(root *cobra.Command) {
	for _, s := range sections {
		root.AddGroup(&cobra.Group{ID: s.id, Title: s.title})
		for _, c := range root.Commands() {
			if slices.Contains(strings.Fields(s.commands), c.Name()) {
				c.GroupID = s.id
			}
		}
	}
}
