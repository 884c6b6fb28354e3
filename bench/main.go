// Command bench measures the runtime against its goals and against the limits of
// the machine it runs on, in one run and one directory.
//
//	bench -agentd PATH [-before PATH] [-quick] [-only PART] [-out DIR] [-doc FILE]
//	bench -agentd PATH -curves DIR [-quick] [-doc FILE]
//	bench -agentd PATH -steady 10m [-out DIR] [-doc FILE]
//
// It starts `agentd all` on new homes, drives it over gRPC and with agentctl, and
// prints one table: goal, measured value, distance from the goal, met or not. Model time
// is zero: a provider on loopback answers at once, or the offline driver does. Ratios are to
// figures measured in the same run; those to an earlier build, with -before, in turns with it.
// With -curves it draws how figures grow instead, with -steady it keeps up a load for a
// while. Each has its own section in the page.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/theclaw/agents/bench/curve"
	"github.com/theclaw/agents/bench/table"
)

func main() { os.Exit(Main(os.Args[1:], os.Stdout, os.Stderr)) }

// Main runs the program and answers its exit status.
func Main(args []string, stdout, stderr io.Writer) int {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	agentd := f.String("agentd", ".bin/agentd", "the program to measure")
	before := f.String("before", "", "an earlier agentd to compare with")
	quick := f.Bool("quick", false, "a small run, under a minute")
	only := f.String("only", "", "measure only parts whose name has this in it")
	out := f.String("out", "", "folder to write the table to; default: only print it")
	doc := f.String("doc", "", "page whose table of figures is replaced")
	drawn := f.String("curves", "", "draw curves into this folder")
	held := f.Duration("steady", 0, "hold 70 % of the most for so long")
	if err := f.Parse(args); err != nil {
		return 2
	}
	var t *table.Table
	var err error
	name := "bench"
	switch {
	case *drawn != "":
		err = curve.Draw(context.Background(), *agentd, *drawn, *doc, *quick, stderr)
	case *held > 0:
		name = "steady"
		t, err = steady(context.Background(), *agentd, *held, stderr)
	default:
		t, err = measure(*agentd, *before, *only, *quick, stderr)
	}
	if err == nil && t != nil {
		fmt.Fprint(stdout, t)
		err = keep(t, name, *out, *doc)
	}
	if err != nil {
		fmt.Fprintln(stderr, "Error:", err)
		return 1
	}
	return 0
}

// keep writes the table where it is asked for.
func keep(t *table.Table, name, out, doc string) error {
	if out != "" {
		if err := t.Write(out, map[string]string{"steady": "-steady"}[name]); err != nil {
			return err
		}
	}
	if doc == "" {
		return nil
	}
	return t.Show(doc, name)
}
