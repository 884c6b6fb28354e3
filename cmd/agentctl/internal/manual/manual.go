// Package manual implements the command `agentctl man`: it writes a manual page for
// agentctl and for each of its commands, from the same texts as their help.
//
// It promises that a text stands in a page as it is in the help, whatever characters it
// holds. The pages need no macros but those of man(7).
//
// It is not cobra's own package for this, which reads the texts as Markdown: a <name> or a
// star in them would be lost.
package manual

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/theclaw/agents/cmd/internal/command"
	"github.com/theclaw/agents/internal/agentdir"
)

// Command answers the command man. It is hidden: packages are made with it.
func Command(e *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:     "man DEST",
		Short:   "Write the manual pages into a directory",
		Example: "  agentctl man ./man1\n  man ./man1/agentctl.1",
		Hidden:  true,
		RunE: func(c *cobra.Command, args []string) error {
			names, err := write(c.Root(), args[0], e.Version)
			if err != nil {
				return agentdir.Fault(err)
			}
			return e.Print(names, names, func() error {
				fmt.Fprintf(e.Out, "%s: %s\n", args[0], command.Count(len(names), "page"))
				return nil
			})
		},
	}
}

// write writes the pages of a command and of all below it that are not hidden, and answers
// the names of the files.
func write(c *cobra.Command, dir, version string) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the directory: %w", err)
	}
	names := []string{name(c) + ".1"}
	if err := os.WriteFile(filepath.Join(dir, names[0]), []byte(page(c, version)), 0o644); err != nil {
		return nil, fmt.Errorf("write the page: %w", err)
	}
	for _, sub := range c.Commands() {
		if sub.Hidden {
			continue
		}
		more, err := write(sub, dir, version)
		if err != nil {
			return nil, err
		}
		names = append(names, more...)
	}
	return names, nil
}

// name is the name of the page of a command: agentctl-dlq-list.
func name(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// page is the page of a command.
func page(c *cobra.Command, version string) string {
	c.InitDefaultHelpFlag()
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %q 1 \"\" %q \"TheClaw agents\"\n", strings.ToUpper(name(c)), "agentctl "+version)
	section := func(title, text string) {
		if text != "" {
			fmt.Fprintf(&b, ".SH %s\n%s", title, text)
		}
	}
	section("NAME", line(name(c)+" - "+c.Short))
	section("SYNOPSIS", line(c.UseLine()))
	section("DESCRIPTION", paragraphs(c.Long))
	var subs strings.Builder
	for _, sub := range c.Commands() {
		if !sub.Hidden {
			subs.WriteString(".TP\n.B " + line(sub.Name()) + line(sub.Short))
		}
	}
	section("COMMANDS", subs.String())
	section("OPTIONS", flags(c.LocalFlags()))
	section("OPTIONS OF ALL COMMANDS", flags(c.InheritedFlags()))
	section("EXAMPLES", ".nf\n"+verbatim(c.Example)+".fi\n")
	section("EXIT STATUS", line("0 success, 1 failure, 2 invalid command line."))
	also := []string{}
	if c.HasParent() {
		also = append(also, name(c.Parent())+"(1)")
	}
	for _, sub := range c.Commands() {
		if !sub.Hidden {
			also = append(also, name(sub)+"(1)")
		}
	}
	section("SEE ALSO", line(strings.Join(also, ", ")))
	return b.String()
}

// paragraphs are those of a text; one with indented lines stands as it is.
func paragraphs(text string) string {
	var b strings.Builder
	for i, p := range strings.Split(text, "\n\n") {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		if strings.Contains("\n"+p, "\n ") {
			b.WriteString(".nf\n" + verbatim(p) + ".fi\n")
		} else {
			b.WriteString(line(p))
		}
	}
	return b.String()
}

func flags(set *pflag.FlagSet) string {
	var b strings.Builder
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		short, value := "", ""
		if f.Shorthand != "" {
			short = "-" + f.Shorthand + ", "
		}
		kind, help := pflag.UnquoteUsage(f)
		if kind != "" {
			value = " " + kind
		}
		if d := f.DefValue; d != "" && d != "false" && d != "[]" && d != "0" {
			help += " (default " + d + ")"
		}
		b.WriteString(".TP\n.B " + line(short+"--"+f.Name+value) + line(help))
	})
	return b.String()
}

// line is text on one line that troff takes as it is.
func line(text string) string {
	if text == "" {
		return ""
	}
	return verbatim(strings.Join(strings.Fields(text), " "))
}

// verbatim is text in its lines that troff takes as they are.
func verbatim(text string) string {
	var b strings.Builder
	for l := range strings.SplitSeq(text, "\n") {
		l = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(l)
		if strings.HasPrefix(l, ".") {
			l = `\&` + l
		}
		b.WriteString(l + "\n")
	}
	return b.String()
}
