package main

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// columns is the width that help fits into; examples stay as they are pasted.
const columns = 80

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

// fit breaks the texts of a command and of all below it where the columns end.
func fit(c *cobra.Command) {
	if !c.HasParent() {
		c.SetUsageTemplate(strings.ReplaceAll(c.UsageTemplate(), "FlagUsages", "FlagUsagesWrapped 80"))
	}
	parts := strings.Split(c.Long, "\n\n")
	for i, p := range parts {
		if !strings.Contains("\n"+p, "\n ") { // lines that are indented stand as they are
			parts[i] = fill(p)
		}
	}
	c.Long = strings.Join(parts, "\n\n")
	for _, sub := range c.Commands() {
		fit(sub)
	}
}

// fill is a paragraph in lines of at most columns-1, so that no terminal adds an
// empty one.
func fill(text string) string {
	var b strings.Builder
	wide := 0
	for _, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case wide == 0:
		case wide+1+n < columns:
			b.WriteByte(' ')
			wide++
		default:
			b.WriteByte('\n')
			wide = 0
		}
		b.WriteString(word)
		wide += n
	}
	return b.String()
}
