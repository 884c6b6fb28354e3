// Command bench measures the runtime against its goals and against the limits of
// the machine it runs on, in one run and one directory.
//
//	bench -agentd PATH [-quick] [-out DIR]
//
// It starts `agentd all` on a fresh home, drives it over gRPC, and prints one
// table: goal, measured, met or not. Model time is none: the offline driver
// answers. Ratios are to figures measured in the same run.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() { os.Exit(Main(os.Args[1:], os.Stdout, os.Stderr)) }

// Main runs the program and answers its exit status.
func Main(args []string, stdout, stderr io.Writer) int {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	agentd := f.String("agentd", ".bin/agentd", "the program to measure")
	quick := f.Bool("quick", false, "a small run, under a minute")
	out := f.String("out", "", "folder to write the table to; default: only print it")
	if err := f.Parse(args); err != nil {
		return 2
	}
	t, err := measure(*agentd, *quick, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "Error:", err)
		return 1
	}
	text := t.String()
	fmt.Fprint(stdout, text)
	if *out != "" {
		if err := t.write(*out); err != nil {
			fmt.Fprintln(stderr, "Error:", err)
			return 1
		}
	}
	return 0
}
