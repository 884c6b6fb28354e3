package main

import (
	"flag"
	"fmt"
	"io"
	"strings"
)

// flagGroups are the groups of flags in the help, each with its flags in order.
var flagGroups = []struct{ title, flags string }{
	{"Home and storage flags", "home profile dsn"},
	{"Network flags", "registry name listen port advertise tls"},
	{"Log and metrics flags", "log-format log-level metrics-listen metrics-remote"},
	{"Other flags", "lease-ttl grace version"},
}

// printHelp writes the help with two dashes before each flag, as agentctl does: package
// flag accepts both and would print one.
func printHelp(w io.Writer, f *flag.FlagSet) {
	fmt.Fprint(w, help)
	for _, g := range flagGroups {
		fmt.Fprintf(w, "\n%s:\n", g.title)
		for _, name := range strings.Fields(g.flags) {
			option := f.Lookup(name)
			kind, usage := flag.UnquoteUsage(option)
			switch option.DefValue {
			case "", "false":
			default:
				usage += fmt.Sprintf(" (default %s)", option.DefValue)
			}
			fmt.Fprintf(w, "  %s\n        %s\n", strings.TrimSpace("--"+name+" "+kind), usage)
		}
	}
}
