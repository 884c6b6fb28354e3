package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// sections are the groups of the root help, in the order in which a user needs them.
var sections = []struct{ id, title, commands string }{
	{"talk", "Conversations:", "up chat send agent run cancel"},
	{"agents", "Agents:", "init list start stop rm status top config file memory context providers bootstrap cmds"},
	{"account", "Inspection:", "explain turns threads events errors usage approvals audit dlq lease"},
	{"home", "Home and data:", "doctor backup restore fsck migrate migrate-store prune export erase drill"},
	{"services", "Services:", "ready log profile certs token"},
}

// sortIn assigns the commands to the sections of the root help.
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
